//! Granite 3 and 4 of dense form without Mamba layers: Llama with factors on the embedding, on what
//! blocks add to the residual stream, on attention and on the logits, which are divided by theirs
//! (maximal update parametrisation, arXiv:2203.03466). Rows of Q and K are permuted for the
//! interleaved form of RoPE; a file can say that the model was trained without RoPE. Granite 4's state
//! the number of key/value heads for each layer.

use crate::blocks::{Style, attention, feed_forward, logits, vocab};
use crate::rope::rope;
use crate::{Error, Hparams};
use gguf::Gguf;
use graph::{Builder, RopeStyle};

pub(crate) fn build(b: &mut Builder<'_>, h: &Hparams, gguf: &Gguf<'_>) -> Result<(), Error> {
    h.only(gguf, &["embedding_scale", "residual_scale", "logit_scale", "attention.scale"])?;
    let or_one = |name| h.factor(gguf, name).map(|f| f.unwrap_or(1.0));
    let (embedding_scale, logit_scale) = (or_one("embedding_scale")?, or_one("logit_scale")?);
    let rotated = gguf.metadata().opt_bool("granite.rope.scaling.finetuned")?.unwrap_or(true);
    let rope = b.rope(rope(gguf, h, RopeStyle::Normal)?);
    let plain = Style::plain(h, rope);
    let style = Style {
        rope: plain.rope.filter(|_| rotated),
        attention_scale: h.factor(gguf, "attention.scale")?.unwrap_or(plain.attention_scale),
        residual_scale: or_one("residual_scale")?,
        ..plain
    };
    let (embedding, head) = vocab(b, h)?;

    let mut x = b.embed(embedding, embedding_scale); // [tokens, hidden]
    for layer in 0..h.layers {
        b.layer(Some(layer));
        x = attention(b, h, &style, layer, x)?;
        x = feed_forward(b, h, &style, layer, x)?;
    }
    b.layer(None);
    logits(b, h, &style, x, head, (logit_scale.recip(), None))?;
    Ok(())
}
