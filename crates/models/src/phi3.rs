//! Phi-3 and Phi-4 of dense form (arXiv:2404.14219, arXiv:2503.01743): Llama with Q, K and V in one
//! tensor, gate and up in another (gate first), and the half-split form of RoPE, in Phi-4-mini on
//! three quarters of a head; long contexts by LongRoPE.

use crate::blocks::{Ffn, Style, attention, feed_forward, logits, vocab};
use crate::rope::rope;
use crate::{Error, Hparams};
use gguf::Gguf;
use graph::{Activation, Builder, RopeStyle};

pub(crate) fn build(b: &mut Builder<'_>, h: &Hparams, gguf: &Gguf<'_>) -> Result<(), Error> {
    h.only(gguf, &["attention.sliding_window"])?;
    let rope = b.rope(rope(gguf, h, RopeStyle::Neox)?);
    let ffn = Ffn::GatedFused(Activation::Silu);
    let window = h.window;
    let style = Style { fused_qkv: true, ffn, window, ..Style::plain(h, rope) };
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
