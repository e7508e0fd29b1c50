//! Qwen3-VL (arXiv:2511.21631): Qwen3. Sections of RoPE are as in Qwen2-VL, but take turns. Behind each of the first
//! layers tokens of images have something added that the image encoder makes for it (DeepStack, arXiv:2406.04334).

use crate::page::*;

pub(crate) fn build(b: &mut Builder<'_>, f: &Facts<'_>) -> Result<(), Error> {
    f.only(&["rope.dimension_sections"])?;
    let rope = rope(b, f, RopeStyle::Neox)?;
    let axes = axes(f, true)?;
    b.follow(rope, axes);
    let style = Style { qk_norms: Some(QkNorm::Over(NormOver::Head)), ..Style::plain(f, rope) };
    let deep = f.opt_size("n_deepstack_layers")?.unwrap_or(0);
    Decoder { deep, ..Decoder::uniform(f, style) }.build(b, f)
}
