//! EXAONE 3 and 3.5 (arXiv:2408.03541): Llama with the half-split form of RoPE.

use crate::page::*;

pub(crate) fn build(b: &mut Builder<'_>, f: &Facts<'_>) -> Result<(), Error> {
    f.only(&[])?;
    let rope = rope(b, f, RopeStyle::Neox)?;
    Decoder::uniform(f, Style::plain(f, rope)).build(b, f)
}
