//! Hunyuan, dense (0.5B to 7B): Llama with norms on every query and key head after RoPE of the half-split form.

use crate::page::*;

pub(crate) fn build(b: &mut Builder<'_>, f: &Facts<'_>) -> Result<(), Error> {
    f.only(&[])?;
    let rope = rope(b, f, RopeStyle::Neox)?;
    let style = Style {
        qk_norms: Some(QkNorm::Over(NormOver::Head)),
        norms_after_rope: true,
        ..Style::plain(f, rope)
    };
    Decoder::uniform(f, style).build(b, f)
}
