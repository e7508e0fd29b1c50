//! StarCoder2 (arXiv:2402.19173): LayerNorm, a feed-forward layer without a gate, GELU, and biases
//! everywhere. RoPE of the half-split form. Published models have a sliding window of 4096, which
//! converters do not write; a file that states it is obeyed.

use crate::blocks::{Bias, Ffn, Norms, Style, attention, feed_forward, logits, vocab};
use crate::rope::rope;
use crate::{Error, Hparams};
use gguf::Gguf;
use graph::{Activation, Builder, RopeStyle};

pub(crate) fn build(b: &mut Builder<'_>, h: &Hparams, gguf: &Gguf<'_>) -> Result<(), Error> {
    h.only(gguf, &["attention.sliding_window"])?;
    let rope = b.rope(rope(gguf, h, RopeStyle::Neox)?);
    let style = Style {
        window: h.window,
        bias: Bias::All,
        norms: Norms::PreLayer,
        ffn: Ffn::Plain(Activation::Gelu),
        ..Style::plain(h, rope)
    };
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
