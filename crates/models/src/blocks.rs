//! Blocks that most families share: weights by their usual names, operators in their usual order.

use crate::Hparams;
use graph::{Builder, Bundle, Error, MatrixId};

/// The name of a layer's weight.
pub(crate) fn weight(layer: usize, tensor: &str) -> String {
    format!("blk.{layer}.{tensor}.weight")
}

/// The vocabulary matrices, `(embedding, head)`: one and the same when the file has no head.
pub(crate) fn vocab(b: &mut Builder<'_>, h: &Hparams) -> Result<(MatrixId, MatrixId), Error> {
    let embedding = b.vocab("token_embd.weight", h.vocab, h.hidden)?;
    let head = match b.has("output.weight") {
        true => b.vocab("output.weight", h.vocab, h.hidden)?,
        false => embedding,
    };
    Ok((embedding, head))
}

/// `x + down(silu(gate(norm(x))) * up(norm(x)))` (Shazeer, 2020).
pub(crate) fn swiglu(
    b: &mut Builder<'_>,
    h: &Hparams,
    layer: usize,
    x: Bundle,
) -> Result<Bundle, Error> {
    let [gate, up, down] = ["ffn_gate", "ffn_up", "ffn_down"].map(|t| weight(layer, t));
    let norm = b.vector(&weight(layer, "ffn_norm"), h.hidden)?;
    let (pair, down) = b.feed_forward([&gate, &up], &down, h.hidden, h.ffn)?;
    let f = b.rms_norm(x, norm, h.norm_eps);
    let f = b.gated(f, pair); // [tokens, ffn]
    let f = b.linear(f, down); // [tokens, hidden], partial
    Ok(b.residual(x, f))
}

/// The last norm and the head, for the rows whose logits are asked for: `[outputs, vocab]`.
pub(crate) fn logits(
    b: &mut Builder<'_>,
    h: &Hparams,
    x: Bundle,
    head: MatrixId,
) -> Result<Bundle, Error> {
    let norm = b.vector("output_norm.weight", h.hidden)?;
    let x = b.select(x);
    let x = b.rms_norm(x, norm, h.norm_eps);
    Ok(b.logits(x, head))
}
