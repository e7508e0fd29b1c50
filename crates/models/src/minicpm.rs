//! MiniCPM, dense (arXiv:2404.06395): Llama with factors on the embedding, on what blocks add to the
//! residual stream, and on the logits, which are divided by theirs. Old files do not state them, and
//! nobody can guess them for all sizes, so they must. Rows of Q and K are permuted for the
//! interleaved form of RoPE.

use crate::page::*;

pub(crate) fn build(b: &mut Builder<'_>, f: &Facts<'_>) -> Result<(), Error> {
    f.only(&["embedding_scale", "residual_scale", "logit_scale"])?;
    let stated = |name: &str| {
        let missing = || gguf::Error::MissingKey { key: f.key(name) };
        Ok::<_, Error>(f.factor(name)?.ok_or_else(missing)?)
    };
    let rope = rope(b, f, RopeStyle::Normal)?;
    let style = Style { residual_scale: stated("residual_scale")?, ..Style::plain(f, rope) };
    Decoder {
        embedding_scale: stated("embedding_scale")?,
        logit_scale: stated("logit_scale")?.recip(),
        ..Decoder::uniform(f, style)
    }
    .build(b, f)
}
