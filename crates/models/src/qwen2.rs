//! Qwen2 and Qwen2.5, dense (arXiv:2407.10671, arXiv:2412.15115): as Llama, with biases on queries,
//! keys and values and the half-split form of RoPE; long contexts by YaRN.

use crate::page::*;

pub(crate) fn build(b: &mut Builder<'_>, f: &Facts<'_>) -> Result<(), Error> {
    f.only(&[])?;
    let rope = rope(b, f, RopeStyle::Neox)?;
    let style = Style { bias: Bias::Qkv, ..Style::plain(f, rope) };
    Decoder::uniform(f, style).build(b, f)
}
