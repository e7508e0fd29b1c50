//! Gemma (arXiv:2403.08295): Llama with GELU and an embedding that is scaled and serves as the head. RoPE of the
//! half-split form. Files' norm weights have the one that is added to them.

use crate::page::*;

pub(crate) fn build(b: &mut Builder<'_>, f: &Facts<'_>) -> Result<(), Error> {
    f.only(&[])?;
    let rope = rope(b, f, RopeStyle::Neox)?;
    let style = Style { ffn: Ffn::Gated(Activation::Gelu), ..Style::plain(f, rope) };
    Decoder { embedding_scale: (f.hidden as f32).sqrt(), ..Decoder::uniform(f, style) }.build(b, f)
}
