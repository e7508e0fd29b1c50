//! Phi-1, 1.5 and 2 (arXiv:2306.11644, arXiv:2309.05463): attention and feed-forward layer read one LayerNorm; biases
//! everywhere, of the head too; GELU without a gate, RoPE of the half-split form on a part of a head. Q, K and V are
//! one tensor in some files.

use crate::page::*;

pub(crate) fn build(b: &mut Builder<'_>, f: &Facts<'_>) -> Result<(), Error> {
    f.only(&[])?;
    let rope = rope(b, f, RopeStyle::Neox)?;
    let style = Style {
        bias: Bias::All,
        norms: Norms::PreLayer,
        parallel: Some(Parallel::OneNorm),
        fused_qkv: b.has("blk.0.attn_qkv.weight"),
        ffn: Ffn::Plain(Activation::Gelu),
        ..Style::plain(f, rope)
    };
    Decoder { head_bias: true, ..Decoder::uniform(f, style) }.build(b, f)
}
