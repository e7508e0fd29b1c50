//! BLOOM (arXiv:2211.05100): LayerNorm, also behind the embedding, biases everywhere, ALiBi (arXiv:2108.12409) instead
//! of RoPE, Q, K and V in one tensor, GELU without a gate.

use crate::page::*;

pub(crate) fn build(b: &mut Builder<'_>, f: &Facts<'_>) -> Result<(), Error> {
    f.only(&[ALIBI])?;
    let style = Style {
        bias: Bias::All,
        norms: Norms::PreLayer,
        alibi: f.cap(ALIBI, Some(8.0))?,
        fused_qkv: true,
        ffn: Ffn::Plain(Activation::Gelu),
        ..Style::plain(f, None)
    };
    Decoder {
        embedding_norm: Some((Norms::PreLayer, "token_embd_norm")),
        ..Decoder::uniform(f, style)
    }
    .build(b, f)
}
