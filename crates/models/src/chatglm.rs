//! ChatGLM 3 and GLM-4 of 2024 (arXiv:2406.12793): Llama with biases of Q, K and V, which are one tensor in some files,
//! gate and up in one tensor, RoPE of the interleaved form on half of a head.

use crate::page::*;

pub(crate) fn build(b: &mut Builder<'_>, f: &Facts<'_>) -> Result<(), Error> {
    f.only(&[])?;
    let rope = rope(b, f, RopeStyle::Normal)?;
    let fused_qkv = b.has("blk.0.attn_qkv.weight");
    let biased = b.has("blk.0.attn_qkv.bias") || b.has("blk.0.attn_q.bias");
    let style = Style {
        bias: if biased { Bias::Qkv } else { Bias::None },
        fused_qkv,
        ffn: Ffn::GatedFused(Activation::Silu),
        ..Style::plain(f, rope)
    };
    Decoder::uniform(f, style).build(b, f)
}
