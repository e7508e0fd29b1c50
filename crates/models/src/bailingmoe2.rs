//! Ling and Ring 2.0 (arXiv:2510.22115): Q, K and V in one tensor, norms on every query and key head, RoPE of the
//! half-split form on a part of a head; the first layers are dense, the others have experts as DeepSeek-V3.
//! Layers that predict further tokens are left alone.

use crate::page::*;

pub(crate) fn build(b: &mut Builder<'_>, f: &Facts<'_>) -> Result<(), Error> {
    f.only(&[EXPERTS, LEADING_DENSE, SHARED_EXPERTS, NEXTN])?;
    let rope = rope(b, f, RopeStyle::Neox)?;
    let style = Style {
        qk_norms: Some(QkNorm::Over(NormOver::Head)),
        fused_qkv: true,
        ..Style::plain(f, rope)
    };
    let moe = f.experts(Router { gate: Gate::Sigmoid, ..Router::softmax(0, 0) })?;
    Decoder::sparse(f, style, moe.with_shared(f)?)?.build(b, f)
}
