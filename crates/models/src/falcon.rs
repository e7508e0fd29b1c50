//! Falcon (arXiv:2311.16867): attention and feed-forward layer read the same stream, in the smaller model behind one
//! LayerNorm, in the larger ones each behind its own; few key/value heads, one in the smaller model; Q, K and V in one
//! tensor, GELU without a gate, RoPE of the half-split form.

use crate::page::*;

pub(crate) fn build(b: &mut Builder<'_>, f: &Facts<'_>) -> Result<(), Error> {
    f.only(&[])?;
    let rope = rope(b, f, RopeStyle::Neox)?;
    let one = Style {
        norms: Norms::PreLayer,
        parallel: Some(Parallel::OneNorm),
        fused_qkv: true,
        ffn: Ffn::Plain(Activation::GeluErf),
        ..Style::plain(f, rope)
    };
    // Where there are two norms, files call attention's the second.
    let two = Style {
        parallel: Some(Parallel::TwoNorms),
        attn_norm: Some("attn_norm_2"),
        ffn_norm: "attn_norm",
        ..one
    };
    let style = if b.has("blk.0.attn_norm_2.weight") { two } else { one };
    Decoder::uniform(f, style).build(b, f)
}
