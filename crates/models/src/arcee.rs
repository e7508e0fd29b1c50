//! Arcee's AFM: Llama with squared ReLU (arXiv:2109.08668) and no gate. Rows of Q and K are permuted for the
//! interleaved form of RoPE.

use crate::page::*;

pub(crate) fn build(b: &mut Builder<'_>, f: &Facts<'_>) -> Result<(), Error> {
    f.only(&[])?;
    let rope = rope(b, f, RopeStyle::Normal)?;
    let style = Style { ffn: Ffn::Plain(Activation::SquaredRelu), ..Style::plain(f, rope) };
    Decoder::uniform(f, style).build(b, f)
}
