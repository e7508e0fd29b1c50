//! Qwen3 with experts (Qwen3 technical report, arXiv:2505.09388): Qwen3's attention; every layer has
//! experts, softmax over all of them, the weights of the chosen divided by their sum.

use crate::page::*;

pub(crate) fn build(b: &mut Builder<'_>, f: &Facts<'_>) -> Result<(), Error> {
    f.only(&[EXPERTS])?;
    let rope = rope(b, f, RopeStyle::Neox)?;
    let moe = f.experts(Router { normalised: true, ..Router::softmax(0, 0) })?;
    let style = Style {
        qk_norms: Some(QkNorm::Over(NormOver::Head)),
        ffn: Ffn::Experts(moe),
        ..Style::plain(f, rope)
    };
    Decoder::uniform(f, style).build(b, f)
}
