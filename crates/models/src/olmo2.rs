//! OLMo 2, dense (arXiv:2501.00656): a block reads the residual stream as it is, and what it gives goes
//! through a norm before it is added; queries and keys have norms over all of their heads together.
//! RoPE of the half-split form.

use crate::blocks::{Norms, Style, attention, feed_forward, logits, vocab};
use crate::rope::rope;
use crate::{Error, Hparams};
use gguf::Gguf;
use graph::{Builder, NormOver, RopeStyle};

pub(crate) fn build(b: &mut Builder<'_>, h: &Hparams, gguf: &Gguf<'_>) -> Result<(), Error> {
    h.only(gguf, &[])?;
    let rope = b.rope(rope(gguf, h, RopeStyle::Neox)?);
    let qk_norms = Some(NormOver::Row);
    let style = Style { norms: Norms::Post, qk_norms, ..Style::plain(h, rope) };
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
