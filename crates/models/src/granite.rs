//! Granite 3 and 4 of dense form without Mamba layers: Llama with factors on the embedding, on what
//! blocks add to the residual stream, on attention and on the logits, which are divided by theirs
//! (maximal update parametrisation, arXiv:2203.03466). Rows of Q and K are permuted for the
//! interleaved form of RoPE; a file can say that the model was trained without RoPE. Granite 4's state
//! the number of key/value heads for each layer. With experts (`granitemoe`), softmax is over those that are
//! chosen; some have one more for all tokens.

use crate::page::*;

pub(crate) fn build(b: &mut Builder<'_>, f: &Facts<'_>) -> Result<(), Error> {
    f.only(&[EXPERTS, "embedding_scale", "residual_scale", "logit_scale", "attention.scale"])?;
    let or_one = |name| f.factor(name).map(|factor| factor.unwrap_or(1.0));
    let rotated = f.metadata.opt_bool(&f.key("rope.scaling.finetuned"))?.unwrap_or(true);
    let plain = Style::plain(f, rope(b, f, RopeStyle::Normal)?);
    let router = Router { gate: Gate::ChosenSoftmax, ..Router::softmax(0, 0) };
    let shared = f.opt_size("expert_shared_feed_forward_length")?;
    let ffn = match f.opt_size(EXPERTS)? {
        Some(_) => Ffn::Experts(Moe { shared, ..f.experts(router)? }),
        None => plain.ffn,
    };
    let style = Style {
        ffn,
        rope: plain.rope.filter(|_| rotated),
        attention_scale: f.factor("attention.scale")?.unwrap_or(plain.attention_scale),
        residual_scale: or_one("residual_scale")?,
        ..plain
    };
    Decoder {
        embedding_scale: or_one("embedding_scale")?,
        logit_scale: or_one("logit_scale")?.recip(),
        ..Decoder::uniform(f, style)
    }
    .build(b, f)
}
