//! SmolLM3: Llama without positions in every fourth layer (NoPE, arXiv:2501.18795). That it is every
//! fourth is part of the architecture; files do not state it. Rows of Q and K are permuted for the
//! interleaved form of RoPE, in all layers. SmolLM2 is a Llama.

use crate::page::*;

/// The last of so many layers goes without RoPE.
const PERIOD: usize = 4;

pub(crate) fn build(b: &mut Builder<'_>, f: &Facts<'_>) -> Result<(), Error> {
    f.only(&[])?;
    let rotated = Style::plain(f, rope(b, f, RopeStyle::Normal)?);
    let unrotated = Style { rope: None, ..rotated };
    let style = |layer| if (layer + 1) % PERIOD == 0 { unrotated } else { rotated };
    Decoder::of((0..f.layers).map(style).collect()).build(b, f)
}
