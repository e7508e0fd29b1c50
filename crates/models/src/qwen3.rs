//! Qwen3, dense (Qwen3 technical report, arXiv:2505.09388): pre-norm, grouped-query attention with
//! an RMSNorm on every query and key head, SwiGLU; the head may be tied to the embedding.

use crate::blocks::{Style, attention, feed_forward, logits, vocab};
use crate::rope::rope;
use crate::{Error, Hparams};
use gguf::Gguf;
use graph::{Builder, NormOver, RopeStyle};

pub(crate) fn build(b: &mut Builder<'_>, h: &Hparams, gguf: &Gguf<'_>) -> Result<(), Error> {
    h.only(gguf, &[])?;
    let rope = b.rope(rope(gguf, h, RopeStyle::Neox)?);
    let style = Style { qk_norms: Some(NormOver::Head), ..Style::plain(h, rope) };
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
