//! Hunyuan-A13B (arXiv:2411.02265): Llama's layer with norms on every query and key head after RoPE of the
//! half-split form; experts, softmax over all divided by the sum of the chosen, beside one for all tokens.

use crate::page::*;

pub(crate) fn build(b: &mut Builder<'_>, f: &Facts<'_>) -> Result<(), Error> {
    f.only(&[EXPERTS, SHARED_EXPERTS])?;
    let rope = rope(b, f, RopeStyle::Neox)?;
    let moe = f.experts(Router { normalised: true, ..Router::softmax(0, 0) })?.with_shared(f)?;
    // As wide as the experts, if files do not say.
    let moe = Moe { shared: Some(moe.shared.unwrap_or(f.ffn)), ..moe };
    let style = Style {
        qk_norms: Some(QkNorm::Over(NormOver::Head)),
        norms_after_rope: true,
        ffn: Ffn::Experts(moe),
        ..Style::plain(f, rope)
    };
    Decoder::uniform(f, style).build(b, f)
}
