//! MPT: LayerNorm, ALiBi (arXiv:2108.12409) instead of RoPE, Q, K and V in one tensor, which may be held within a
//! limit, GELU without a gate. Published models have no biases; some files have them, or embeddings of positions.

use crate::page::*;

pub(crate) fn build(b: &mut Builder<'_>, f: &Facts<'_>) -> Result<(), Error> {
    f.only(&[CLAMP, ALIBI])?;
    let biased = |tensor: &str| b.has(&format!("blk.0.{tensor}.bias"));
    let style = Style {
        bias: if biased("attn_qkv") { Bias::All } else { Bias::None },
        norms: if biased("attn_norm") { Norms::PreLayer } else { Norms::PreLayerUnbiased },
        clamp: f.cap(CLAMP, None)?,
        alibi: f.cap(ALIBI, None)?,
        fused_qkv: true,
        ffn: Ffn::Plain(Activation::GeluErf),
        ..Style::plain(f, None)
    };
    let positions = b.has("position_embd.weight");
    Decoder { positions, ..Decoder::uniform(f, style) }.build(b, f)
}
