//! GLM-4 of 2025 (GLM-4-0414, GLM-Z1; arXiv:2406.12793 describes its predecessors): norms before and
//! after each block, gate and up in one tensor, RoPE of the interleaved form on half of a head. Some
//! sizes have biases on queries, keys and values.

use crate::blocks::{Bias, Ffn, Norms, Style, attention, feed_forward, logits, vocab};
use crate::rope::rope;
use crate::{Error, Hparams};
use gguf::Gguf;
use graph::{Activation, Builder, RopeStyle};

pub(crate) fn build(b: &mut Builder<'_>, h: &Hparams, gguf: &Gguf<'_>) -> Result<(), Error> {
    h.only(gguf, &[])?;
    let rope = b.rope(rope(gguf, h, RopeStyle::Normal)?);
    let style = Style {
        bias: if b.has("blk.0.attn_q.bias") { Bias::Qkv } else { Bias::None },
        norms: Norms::Both,
        ffn: Ffn::GatedFused(Activation::Silu),
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
