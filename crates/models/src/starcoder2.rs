//! StarCoder2 (arXiv:2402.19173): LayerNorm, a feed-forward layer without a gate, GELU, and biases
//! everywhere. RoPE of the half-split form. Published models have a sliding window of 4096, which
//! converters do not write; a file that states it is obeyed.

use crate::page::*;

pub(crate) fn build(b: &mut Builder<'_>, f: &Facts<'_>) -> Result<(), Error> {
    f.only(&[WINDOW])?;
    let rope = rope(b, f, RopeStyle::Neox)?;
    let style = Style {
        window: f.window,
        bias: Bias::All,
        norms: Norms::PreLayer,
        ffn: Ffn::Plain(Activation::Gelu),
        ..Style::plain(f, rope)
    };
    Decoder::uniform(f, style).build(b, f)
}
