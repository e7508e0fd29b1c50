//! dots.llm1 (arXiv:2506.05767): Qwen3's attention; the first layers are dense, the others have experts as
//! DeepSeek-V3, with a bias for the choice alone, beside experts for all tokens.

use crate::page::*;

pub(crate) fn build(b: &mut Builder<'_>, f: &Facts<'_>) -> Result<(), Error> {
    f.only(&[EXPERTS, LEADING_DENSE, SHARED_EXPERTS])?;
    let rope = rope(b, f, RopeStyle::Neox)?;
    let style = Style { qk_norms: Some(QkNorm::Over(NormOver::Head)), ..Style::plain(f, rope) };
    let moe = f.experts(Router { gate: Gate::Sigmoid, ..Router::softmax(0, 0) })?;
    Decoder::sparse(f, style, moe.with_shared(f)?)?.build(b, f)
}
