//! gpt-oss (arXiv:2508.10925): pre-norm attention with biases and a learned sink for each head, a sliding window
//! in every other layer, RoPE of the half-split form stretched by YaRN, whose ramp begins and ends within pairs;
//! experts with biases, softmax over the chosen, SwiGLU with both sides held within bounds.

use crate::page::*;

pub(crate) fn build(b: &mut Builder<'_>, f: &Facts<'_>) -> Result<(), Error> {
    f.only(&[EXPERTS, WINDOW, WINDOW_PATTERN])?;
    let rope = rope_by(b, f, RopeStyle::Neox, Yarn { whole_pairs: false, ..Yarn::default() })?;
    let moe = f.experts(Router { gate: Gate::ChosenSoftmax, ..Router::softmax(0, 0) })?;
    let expert = Expert { activation: Activation::ClampedSilu, ..moe.expert };
    let global = Style {
        bias: Bias::Attention,
        sinks: true,
        ffn: Ffn::Experts(Moe { expert, biases: true, ..moe }),
        ffn_norm: "post_attention_norm",
        ..Style::plain(f, rope)
    };
    Decoder::windowed(f, 2, Style { window: f.window, ..global }, global)?.build(b, f)
}
