//! The layer that predicts further tokens (multi-token prediction; DeepSeek-V3, arXiv:2412.19437, section 2.2), which
//! files call `nextn`: a layer like the model's last, whose input is made of a token's embedding and of the
//! hidden state of the token before it, each with a norm. Embedding and head are the model's unless it has its
//! own. Of several such layers the first is used, for each further token again.

use crate::blocks::{feed_forward, mix, norm};
use crate::decoder::{Decoder, Norms, Style};
use crate::{Error, Hparams};
use graph::{Builder, MatrixId, Norm};

/// What the layer shares with the model.
pub(crate) struct Shared {
    pub(crate) embedding: MatrixId,
    pub(crate) head: MatrixId,
    pub(crate) last_norm: Norm,
}

/// Appends the layer, in a list of its own.
pub(crate) fn append(
    b: &mut Builder<'_>,
    h: &Hparams,
    (decoder, style): (&Decoder, &Style),
    shared: Shared,
) -> Result<(), Error> {
    let layer = h.layers;
    let name = |tensor: &str| format!("blk.{layer}.nextn.{tensor}");
    let of_its_own = |b: &mut Builder<'_>, tensor, shared| match name(tensor) {
        name if b.has(&name) => b.vocab(&name, h.vocab, h.hidden),
        _ => Ok(shared),
    };
    b.begin_predicting();
    b.layer(Some(layer));
    let embedding = of_its_own(b, "embed_tokens.weight", shared.embedding)?;
    let head = of_its_own(b, "shared_head_head.weight", shared.head)?;
    let of_two = b.of_two(&name("eh_proj.weight"), h.hidden)?;
    let of_embedding = norm(b, h, Norms::Pre, &name("enorm"))?;
    let of_hidden = norm(b, h, Norms::Pre, &name("hnorm"))?;
    let last = name("shared_head_norm");
    let last_norm = match b.has(&format!("{last}.weight")) {
        true => norm(b, h, Norms::Pre, &last)?,
        false => shared.last_norm,
    };

    let embedded = b.embed(embedding, decoder.embedding_scale); // [tokens, hidden]
    let hidden = b.recall(h.hidden); // [tokens, hidden]
    let x = b.combine([(embedded, of_embedding), (hidden, of_hidden)], of_two);
    let x = b.sum(x, None); // [tokens, hidden]
    let x = mix(b, h, style, layer, x)?;
    let x = feed_forward(b, h, style, (layer, None), x)?;
    b.layer(None);
    let x = b.norm(x, last_norm);
    b.remember(x);
    let x = b.select(x); // [outputs, hidden]
    b.logits(x, head, decoder.logit_scale, decoder.logit_cap); // [outputs, vocab]
    Ok(())
}
