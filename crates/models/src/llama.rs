//! Llama 2 and 3, dense (arXiv:2307.09288, arXiv:2407.21783), and what shares their shape: Mistral and
//! Ministral (arXiv:2310.06825), SmolLM2. Pre-norm, grouped-query attention, SwiGLU; the head may be
//! tied. GGUF files of this architecture have the rows of Q and K permuted for the interleaved
//! ("normal") form of RoPE, and store llama-3's frequency scaling as divisors in `rope_freqs.weight`.

use crate::blocks::{Style, attention, feed_forward, logits, vocab};
use crate::rope::rope;
use crate::{Error, Hparams};
use gguf::Gguf;
use graph::{Builder, RopeStyle};

pub(crate) fn build(b: &mut Builder<'_>, h: &Hparams, gguf: &Gguf<'_>) -> Result<(), Error> {
    h.only(gguf, &["attention.sliding_window"])?;
    let rope = b.rope(rope(gguf, h, RopeStyle::Normal)?);
    let style = Style { window: h.window, ..Style::plain(h, rope) };
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
