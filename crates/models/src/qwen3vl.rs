//! Qwen3-VL, text: Qwen3. Sections of RoPE are as in Qwen2-VL, one for text; what the first layers add of images is
//! nothing.

use crate::page::*;

pub(crate) fn build(b: &mut Builder<'_>, f: &Facts<'_>) -> Result<(), Error> {
    f.only(&["rope.dimension_sections"])?;
    let rope = rope(b, f, RopeStyle::Neox)?;
    let style = Style { qk_norms: Some(QkNorm::Over(NormOver::Head)), ..Style::plain(f, rope) };
    Decoder::uniform(f, style).build(b, f)
}
