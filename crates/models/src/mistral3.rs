//! Ministral 3 and Mistral Small 3 as files name them apart from Llama: Llama with long contexts by
//! YaRN, beyond which queries grow with the logarithm of their position ("temperature", as in
//! Llama 4). Rows of Q and K are permuted for the interleaved form of RoPE.

use crate::page::*;

pub(crate) fn build(b: &mut Builder<'_>, f: &Facts<'_>) -> Result<(), Error> {
    const TEMPERATURE: &str = "attention.temperature_scale";
    const GAIN: &str = "rope.scaling.yarn_log_multiplier";
    f.only(&[TEMPERATURE, GAIN])?;
    let yarn = Yarn { without: f.opt_f32(GAIN)?.unwrap_or(0.0), ..Yarn::default() };
    let rope = rope_by(b, f, RopeStyle::Normal, yarn)?;
    let temperature = match f.opt_f32(TEMPERATURE)? {
        None | Some(0.0) => None,
        Some(scale) => Some(Temperature { scale, length: original_context(f)?, offset: 0 }),
    };
    let style = Style { temperature, ..Style::plain(f, rope) };
    Decoder::uniform(f, style).build(b, f)
}
