//! Apertus (arXiv:2509.14233): Llama with norms on every query and key head, a feed-forward layer without a gate whose
//! function is xIELU with numbers of its own in every layer, and the half-split form of RoPE.

use crate::page::*;

pub(crate) fn build(b: &mut Builder<'_>, f: &Facts<'_>) -> Result<(), Error> {
    f.only(&[])?;
    let rope = rope(b, f, RopeStyle::Neox)?;
    let plain = Style { qk_norms: Some(QkNorm::Over(NormOver::Head)), ..Style::plain(f, rope) };
    let each = |name: &str| f.of_layers(&format!("xielu.{name}"));
    let (alpha_p, alpha_n, beta, eps) =
        (each("alpha_p")?, each("alpha_n")?, each("beta")?, each("eps")?);
    // Files have what the model learnt, of which softplus makes its numbers.
    let softplus = |x: f32| f64::from(x).exp().ln_1p() as f32;
    let style = |layer: usize| {
        let function = Xielu {
            alpha_p: softplus(alpha_p[layer]),
            alpha_n: beta[layer] + softplus(alpha_n[layer]),
            beta: beta[layer],
            eps: eps[layer],
        };
        Style { ffn: Ffn::Plain(Activation::Xielu(function)), ..plain }
    };
    Decoder::of((0..f.layers).map(style).collect()).build(b, f)
}
