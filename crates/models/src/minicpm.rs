//! MiniCPM, dense (arXiv:2404.06395): Llama with factors on the embedding, on what blocks add to the
//! residual stream, and on the logits, which are divided by theirs. Old files do not state them, and
//! nobody can guess them for all sizes, so they must. Rows of Q and K are permuted for the
//! interleaved form of RoPE.

use crate::blocks::{Style, attention, feed_forward, logits, vocab};
use crate::rope::rope;
use crate::{Error, Hparams};
use gguf::Gguf;
use graph::{Builder, RopeStyle};

pub(crate) fn build(b: &mut Builder<'_>, h: &Hparams, gguf: &Gguf<'_>) -> Result<(), Error> {
    h.only(gguf, &["embedding_scale", "residual_scale", "logit_scale"])?;
    let stated = |name: &str| {
        let missing = || gguf::Error::MissingKey { key: format!("minicpm.{name}") };
        Ok::<_, Error>(h.factor(gguf, name)?.ok_or_else(missing)?)
    };
    let rope = b.rope(rope(gguf, h, RopeStyle::Normal)?);
    let style = Style { residual_scale: stated("residual_scale")?, ..Style::plain(h, rope) };
    let (embedding_scale, logit_scale) = (stated("embedding_scale")?, stated("logit_scale")?);
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
