//! GLM-4 of 2025 (GLM-4-0414, GLM-Z1; arXiv:2406.12793 describes its predecessors): norms before and
//! after each block, gate and up in one tensor, RoPE of the interleaved form on half of a head. Some
//! sizes have biases on queries, keys and values.

use crate::page::*;

pub(crate) fn build(b: &mut Builder<'_>, f: &Facts<'_>) -> Result<(), Error> {
    f.only(&[])?;
    let rope = rope(b, f, RopeStyle::Normal)?;
    let style = Style {
        bias: if b.has("blk.0.attn_q.bias") { Bias::Qkv } else { Bias::None },
        norms: Norms::Both,
        ffn: Ffn::GatedFused(Activation::Silu),
        ..Style::plain(f, rope)
    };
    Decoder::uniform(f, style).build(b, f)
}
