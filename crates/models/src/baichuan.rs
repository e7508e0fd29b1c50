//! Baichuan 1 and 2 (arXiv:2309.10305): Llama; the larger model, of 40 layers, has ALiBi (arXiv:2108.12409) instead of
//! RoPE, which usual files do not state. Rows of Q and K are permuted for the interleaved form of RoPE, of both models.

use crate::page::*;

/// The number of layers by which files of the larger model are known.
const LARGER: usize = 40;

pub(crate) fn build(b: &mut Builder<'_>, f: &Facts<'_>) -> Result<(), Error> {
    f.only(&[ALIBI])?;
    let style = match f.cap(ALIBI, (f.layers == LARGER).then_some(8.0))? {
        None => Style::plain(f, rope(b, f, RopeStyle::Normal)?),
        alibi => Style { alibi, ..Style::plain(f, None) },
    };
    Decoder::uniform(f, style).build(b, f)
}
