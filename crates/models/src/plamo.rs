//! PLaMo 13B: Llama whose attention and feed-forward layer read one norm; RoPE of the half-split form.

use crate::page::*;

pub(crate) fn build(b: &mut Builder<'_>, f: &Facts<'_>) -> Result<(), Error> {
    f.only(&[])?;
    let rope = rope(b, f, RopeStyle::Neox)?;
    let style = Style { parallel: Some(Parallel::OneNorm), ..Style::plain(f, rope) };
    Decoder::uniform(f, style).build(b, f)
}
