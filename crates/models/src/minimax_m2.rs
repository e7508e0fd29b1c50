//! MiniMax-M2: norms over all queries and all keys, RoPE of the half-split form on a part of a head; every
//! layer has experts, sigmoids with a bias for the choice alone, divided by their sum.

use crate::page::*;

pub(crate) fn build(b: &mut Builder<'_>, f: &Facts<'_>) -> Result<(), Error> {
    f.only(&[EXPERTS])?;
    let rope = rope(b, f, RopeStyle::Neox)?;
    let router = Router { gate: Gate::Sigmoid, normalised: true, ..Router::softmax(0, 0) };
    let style = Style {
        qk_norms: Some(QkNorm::Over(NormOver::Row)),
        ffn: Ffn::Experts(f.experts(router)?),
        ..Style::plain(f, rope)
    };
    Decoder::uniform(f, style).build(b, f)
}
