//! Llama 4, text: RoPE of the interleaved form and norms without weights on every query and key head (but for
//! Maverick), over keys of the token's own chunk; every fourth layer sees all keys, without positions, by queries
//! that grow with their position. Experts, in all layers or in every second: sigmoid, whose weight is a factor on
//! what an expert takes, beside one for all tokens.

use crate::page::*;

/// Of so many layers the last has no positions.
const PERIOD: usize = 4;
/// Tokens of a chunk, and positions before queries grow, where files do not say.
const CHUNK: usize = 8192;
/// How many experts Maverick has, whose heads have no norms; files do not say that.
const MAVERICK: usize = 128;

pub(crate) fn build(b: &mut Builder<'_>, f: &Facts<'_>) -> Result<(), Error> {
    const STEP: &str = "interleave_moe_layer_step";
    const GROWTH: &str = "attention.temperature_scale";
    const LENGTH: &str = "attention.temperature_length";
    f.only(&[EXPERTS, WINDOW, STEP, GROWTH])?;
    if f.metadata.opt_u32(&f.key(WINDOW))? == Some(0) {
        // Llama 4's layers without chunks; which of them have positions is not stated.
        return Err(Error::UnsupportedFeature { key: f.key(WINDOW), value: "0".to_owned() });
    }
    let rope = rope(b, f, RopeStyle::Normal)?;
    let moe = f.experts(Router { gate: Gate::Sigmoid, ..Router::softmax(0, 0) })?;
    let expert = Expert { weigh_input: true, ..moe.expert };
    let moe = Moe { expert, shared: Some(moe.width), ..moe };
    let norms = (moe.router.experts != MAVERICK).then_some(QkNorm::Plain);
    let local = Style {
        qk_norms: norms,
        window: Some(f.window.unwrap_or(CHUNK)),
        chunked: true,
        ..Style::plain(f, rope)
    };
    let growth = Temperature {
        scale: f.opt_f32(GROWTH)?.unwrap_or(0.1),
        length: f.opt_size(LENGTH)?.unwrap_or(CHUNK),
        offset: 1,
    };
    let global =
        Style { rope: None, qk_norms: None, window: None, temperature: Some(growth), ..local };
    let step = f.opt_size(STEP)?.unwrap_or(1);
    let layer = |layer: usize| {
        let style = if (layer + 1).is_multiple_of(PERIOD) { global } else { local };
        let sparse = (layer + 1).is_multiple_of(step);
        Style { ffn: if sparse { Ffn::Experts(moe) } else { style.ffn }, ..style }
    };
    Decoder::of((0..f.layers).map(layer).collect()).build(b, f)
}
