//! EXAONE 4 (arXiv:2507.11407): norms after the blocks instead of before, and on every query and key head. The
//! largest model has a window in three of four layers, and RoPE, of the half-split form, only there; others have RoPE
//! in all layers. Layers that predict further tokens (EXAONE 4.5) are left alone.

use crate::page::*;

pub(crate) fn build(b: &mut Builder<'_>, f: &Facts<'_>) -> Result<(), Error> {
    f.only(&[WINDOW, WINDOW_PATTERN, NEXTN])?;
    let rope = rope(b, f, RopeStyle::Neox)?;
    let qk_norms = Some(QkNorm::Over(NormOver::Head));
    let rotated = Style { norms: Norms::Post, qk_norms, ..Style::plain(f, rope) };
    let global = Style { rope: rotated.rope.filter(|_| f.window.is_none()), ..rotated };
    let local = Style { window: f.window, ..rotated };
    Decoder::windowed(f, 4, local, global)?.build(b, f)
}
