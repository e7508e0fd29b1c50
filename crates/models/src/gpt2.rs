//! GPT-2, and StarCoder (arXiv:2305.06161), which has one key/value head: LayerNorm, biases everywhere, Q, K and V in one
//! tensor, GELU without a gate. Positions have embeddings, which are added to those of tokens; contexts are no longer than
//! these.

use crate::page::*;

pub(crate) fn build(b: &mut Builder<'_>, f: &Facts<'_>) -> Result<(), Error> {
    f.only(&[])?;
    let style = Style {
        bias: Bias::All,
        norms: Norms::PreLayer,
        fused_qkv: true,
        ffn: Ffn::Plain(Activation::Gelu),
        ..Style::plain(f, None)
    };
    Decoder { positions: true, ..Decoder::uniform(f, style) }.build(b, f)
}
