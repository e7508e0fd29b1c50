//! Qwen3.5 and 3.6: Qwen3-Next's layers, dense or with experts (`qwen35moe`). Heads of keys of the delta nets
//! take turns in files, and gains and time steps are tensors of their own. Sections of RoPE are as in Qwen3-VL: of text,
//! whose tokens have one position, they are one.

use crate::page::*;
use crate::recurrent::{Kind, Recurrent};

pub(crate) fn build(b: &mut Builder<'_>, f: &Facts<'_>) -> Result<(), Error> {
    f.only(&[EXPERTS, NEXTN, SHARED_EXPERTS, "rope.dimension_sections"])?;
    let rope = rope(b, f, RopeStyle::Neox)?;
    let axes = axes(f, true)?;
    b.follow(rope, axes);
    let recurrent = Recurrent::read(f, Kind::Delta { fused: false }, true)?;
    let plain = Style::plain(f, rope);
    let ffn = match f.opt_size(EXPERTS)? {
        None => plain.ffn,
        Some(_) => {
            let router = Router { normalised: true, ..Router::softmax(0, 0) };
            Ffn::Experts(f.experts(router)?.with_shared(f)?)
        }
    };
    let attends = Style {
        qk_norms: Some(QkNorm::Over(NormOver::Head)),
        gated: true,
        ffn,
        ffn_norm: "post_attention_norm",
        ..plain
    };
    Decoder::of(f.with_recurrence(attends, recurrent)?).predicting(f).build(b, f)
}
