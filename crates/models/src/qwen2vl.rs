//! Qwen2-VL and Qwen2.5-VL (arXiv:2409.12191): Qwen2. Pairs of RoPE are dealt to sections for time, height and
//! width; a token of text has the same number in all of them, one of an image that of its row and its column.

use crate::page::*;

pub(crate) fn build(b: &mut Builder<'_>, f: &Facts<'_>) -> Result<(), Error> {
    f.only(&["rope.dimension_sections"])?;
    let rope = rope(b, f, RopeStyle::Neox)?;
    let axes = axes(f, false)?;
    b.follow(rope, axes);
    let style = Style { bias: Bias::Qkv, ..Style::plain(f, rope) };
    Decoder::uniform(f, style).build(b, f)
}
