//! Ministral 3 and Mistral Small 3 as files name them apart from Llama: Llama with long contexts by
//! YaRN, beyond which queries grow with the logarithm of their position ("temperature", as in
//! Llama 4). Rows of Q and K are permuted for the interleaved form of RoPE.

use crate::blocks::{Style, attention, feed_forward, logits, vocab};
use crate::rope::{original_context, rope};
use crate::{Error, Hparams};
use gguf::Gguf;
use graph::{Builder, RopeStyle, Temperature};

pub(crate) fn build(b: &mut Builder<'_>, h: &Hparams, gguf: &Gguf<'_>) -> Result<(), Error> {
    const TEMPERATURE: &str = "attention.temperature_scale";
    h.only(gguf, &[TEMPERATURE])?;
    let rope = b.rope(rope(gguf, h, RopeStyle::Normal)?);
    let temperature = match gguf.metadata().opt_f32(&format!("mistral3.{TEMPERATURE}"))? {
        None | Some(0.0) => None,
        Some(scale) => Some(Temperature { scale, length: original_context(gguf, h)? }),
    };
    let style = Style { temperature, ..Style::plain(h, rope) };
    let (embedding, head) = vocab(b, h)?;

    let mut x = b.embed(embedding, 1.0); // [tokens, hidden]
    for layer in 0..h.layers {
        b.layer(Some(layer));
        x = attention(b, h, &style, layer, x)?;
        x = feed_forward(b, h, &style, layer, x)?;
    }
    b.layer(None);
    logits(b, h, &style, x, head, (1.0, None))?;
    Ok(())
}
