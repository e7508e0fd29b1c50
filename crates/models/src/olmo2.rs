//! OLMo 2 and 3, dense (arXiv:2501.00656): a block reads the residual stream as it is, and what it gives
//! goes through a norm before it is added; queries and keys have norms over all of their heads
//! together. RoPE of the half-split form. OLMo 3, of the same architecture in files, has a sliding
//! window in three of four layers, and stretches only the others to long contexts.

use crate::page::*;

pub(crate) fn build(b: &mut Builder<'_>, f: &Facts<'_>) -> Result<(), Error> {
    f.only(&[WINDOW, WINDOW_PATTERN])?;
    let rope = rope(b, f, RopeStyle::Neox)?;
    let local = local_rope(b, f, RopeStyle::Neox, f.rope_theta)?;
    let qk_norms = Some(QkNorm::Over(NormOver::Row));
    let global = Style { norms: Norms::Post, qk_norms, ..Style::plain(f, rope) };
    let local = Style { rope: Some(local), window: f.window, ..global };
    Decoder::windowed(f, 4, local, global)?.build(b, f)
}
