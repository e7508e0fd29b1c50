//! Qwen3, dense (Qwen3 technical report, arXiv:2505.09388): pre-norm, grouped-query attention with
//! an RMSNorm on every query and key head, SwiGLU; the head may be tied to the embedding.

use crate::page::*;

pub(crate) fn build(b: &mut Builder<'_>, f: &Facts<'_>) -> Result<(), Error> {
    f.only(&[])?;
    let rope = rope(b, f, RopeStyle::Neox)?;
    let style = Style { qk_norms: Some(QkNorm::Over(NormOver::Head)), ..Style::plain(f, rope) };
    Decoder::uniform(f, style).build(b, f)
}
