//! Phi-3.5-MoE (arXiv:2404.14219): LayerNorm before the blocks, biases of attention and of the head, RoPE of the
//! half-split form with LongRoPE, a sliding window in some files; experts, chosen by SparseMixer.

use crate::page::*;

pub(crate) fn build(b: &mut Builder<'_>, f: &Facts<'_>) -> Result<(), Error> {
    f.only(&[EXPERTS, WINDOW])?;
    let rope = rope(b, f, RopeStyle::Neox)?;
    let moe = f.experts(Router { gate: Gate::SparseMixer, ..Router::softmax(0, 0) })?;
    let style = Style {
        bias: Bias::Attention,
        norms: Norms::PreLayer,
        window: f.window,
        ffn: Ffn::Experts(moe),
        ..Style::plain(f, rope)
    };
    let decoder = Decoder::uniform(f, style);
    Decoder { head_bias: b.has("output.bias"), ..decoder }.build(b, f)
}
