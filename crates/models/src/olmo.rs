//! OLMo and OLMo 1.7 (arXiv:2402.00838): Llama with LayerNorms that have neither weights nor biases; queries, keys and
//! values may be held within a limit. Rows of Q and K are permuted for the interleaved form of RoPE.

use crate::page::*;

pub(crate) fn build(b: &mut Builder<'_>, f: &Facts<'_>) -> Result<(), Error> {
    f.only(&[CLAMP])?;
    let rope = rope(b, f, RopeStyle::Normal)?;
    let style =
        Style { clamp: f.cap(CLAMP, None)?, norms: Norms::PreLayerPlain, ..Style::plain(f, rope) };
    Decoder::uniform(f, style).build(b, f)
}
