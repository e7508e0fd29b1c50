//! InternLM2 and 2.5 (arXiv:2403.17297): a Llama whose Q, K and V are one tensor in the models' own files, and apart
//! in converted ones. Rows of Q and K are permuted for the interleaved form of RoPE.

use crate::page::*;

pub(crate) fn build(b: &mut Builder<'_>, f: &Facts<'_>) -> Result<(), Error> {
    f.only(&[])?;
    let rope = rope(b, f, RopeStyle::Normal)?;
    Decoder::uniform(f, Style::plain(f, rope)).build(b, f)
}
