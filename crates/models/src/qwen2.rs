//! Qwen2 and Qwen2.5, dense (arXiv:2407.10671, arXiv:2412.15115): as Llama, with biases on queries,
//! keys and values and the half-split form of RoPE; long contexts by YaRN.

use crate::blocks::{Bias, Style, attention, feed_forward, logits, vocab};
use crate::rope::rope;
use crate::{Error, Hparams};
use gguf::Gguf;
use graph::{Builder, RopeStyle};

pub(crate) fn build(b: &mut Builder<'_>, h: &Hparams, gguf: &Gguf<'_>) -> Result<(), Error> {
    h.only(gguf, &[])?;
    let rope = b.rope(rope(gguf, h, RopeStyle::Neox)?);
    let style = Style { bias: Bias::Qkv, ..Style::plain(h, rope) };
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
