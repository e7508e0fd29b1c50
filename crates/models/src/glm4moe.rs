//! GLM-4.5, 4.6 and 4.7 (arXiv:2508.06471): pre-norm attention with biases on queries, keys and values and,
//! in the larger models, norms of their heads, RoPE of the half-split form on half of a head; the first layers
//! are dense, the others have experts as DeepSeek-V3.

use crate::page::*;

pub(crate) fn build(b: &mut Builder<'_>, f: &Facts<'_>) -> Result<(), Error> {
    f.only(&[EXPERTS, LEADING_DENSE, SHARED_EXPERTS, NEXTN])?;
    let rope = rope(b, f, RopeStyle::Neox)?;
    let style = Style {
        bias: if b.has("blk.0.attn_q.bias") { Bias::Qkv } else { Bias::None },
        qk_norms: b.has("blk.0.attn_q_norm.weight").then_some(QkNorm::Over(NormOver::Head)),
        ffn_norm: "post_attention_norm",
        ..Style::plain(f, rope)
    };
    let moe = f.experts(Router { gate: Gate::Sigmoid, ..Router::softmax(0, 0) })?;
    Decoder::sparse(f, style, moe.with_shared(f)?)?.predicting(f).build(b, f)
}
