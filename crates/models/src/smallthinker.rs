//! SmallThinker (arXiv:2507.20984): a token's experts are chosen by the residual stream before attention; sigmoids of
//! scores divided by their sum, ReLU as the gate's function. In some every fourth layer, from the first on, sees all
//! keys, without positions; the others have a window, and RoPE of the half-split form. Without windows all have RoPE.

use crate::page::*;

/// The first of so many layers has no window.
const PERIOD: usize = 4;

pub(crate) fn build(b: &mut Builder<'_>, f: &Facts<'_>) -> Result<(), Error> {
    f.only(&[EXPERTS, WINDOW])?;
    let rope = rope(b, f, RopeStyle::Neox)?;
    let router = Router { gate: Gate::Sigmoid, normalised: true, ..Router::softmax(0, 0) };
    let moe = f.experts(router)?;
    let expert = Expert { activation: Activation::Relu, ..moe.expert };
    let moe = Moe { expert, early: true, ..moe };
    let local = Style { window: f.window, ffn: Ffn::Experts(moe), ..Style::plain(f, rope) };
    let global = Style { rope: local.rope.filter(|_| f.window.is_none()), window: None, ..local };
    let style = |layer: usize| if layer.is_multiple_of(PERIOD) { global } else { local };
    Decoder::of((0..f.layers).map(style).collect()).build(b, f)
}
