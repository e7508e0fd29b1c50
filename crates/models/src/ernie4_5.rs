//! ERNIE 4.5, dense: Llama with the interleaved form of RoPE, as its own code has it.

use crate::page::*;

pub(crate) fn build(b: &mut Builder<'_>, f: &Facts<'_>) -> Result<(), Error> {
    f.only(&[])?;
    let rope = rope(b, f, RopeStyle::Normal)?;
    Decoder::uniform(f, Style::plain(f, rope)).build(b, f)
}
