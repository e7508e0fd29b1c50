//! Qwen3-VL (arXiv:2511.21631): Qwen3, dense or with experts. Sections of RoPE are as in Qwen2-VL, but take turns. Behind
//! each of the first layers tokens of images have something added that the image encoder makes for it (DeepStack,
//! arXiv:2406.04334).

use crate::page::*;

pub(crate) fn build(b: &mut Builder<'_>, f: &Facts<'_>) -> Result<(), Error> {
    f.only(&["rope.dimension_sections"])?;
    decoder(b, f, None)
}

/// With experts as Qwen3 has them.
pub(crate) fn build_experts(b: &mut Builder<'_>, f: &Facts<'_>) -> Result<(), Error> {
    f.only(&["rope.dimension_sections", EXPERTS])?;
    let moe = f.experts(Router { normalised: true, ..Router::softmax(0, 0) })?;
    decoder(b, f, Some(Ffn::Experts(moe)))
}

fn decoder(b: &mut Builder<'_>, f: &Facts<'_>, experts: Option<Ffn>) -> Result<(), Error> {
    let rope = rope(b, f, RopeStyle::Neox)?;
    let axes = axes(f, true)?;
    b.follow(rope, axes);
    let plain = Style::plain(f, rope);
    let ffn = experts.unwrap_or(plain.ffn);
    let style = Style { qk_norms: Some(QkNorm::Over(NormOver::Head)), ffn, ..plain };
    let deep = f.opt_size("n_deepstack_layers")?.unwrap_or(0);
    Decoder { deep, ..Decoder::uniform(f, style) }.build(b, f)
}
