//! Command R7B, Command A, Aya Expanse (arXiv:2504.00698): Command R with a window in three of four layers, and RoPE
//! only there.

use crate::page::*;

pub(crate) fn build(b: &mut Builder<'_>, f: &Facts<'_>) -> Result<(), Error> {
    f.only(&["logit_scale", WINDOW, WINDOW_PATTERN])?;
    let rope = rope(b, f, RopeStyle::Normal)?;
    let local = Style {
        window: f.window,
        norms: Norms::PreLayerUnbiased,
        parallel: Some(Parallel::OneNorm),
        ..Style::plain(f, rope)
    };
    let global = Style { rope: None, window: None, ..local };
    let logit_scale = f.factor("logit_scale")?.unwrap_or(1.0);
    Decoder { logit_scale, ..Decoder::windowed(f, 4, local, global)? }.build(b, f)
}
