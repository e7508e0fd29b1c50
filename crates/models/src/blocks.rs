//! Blocks that most families share: weights by their usual names, operators in their usual order.

use crate::{Error, Hparams};
use graph::{Attention, Builder, Bundle, MatrixId, RopeId, Tensors};

/// The name of a layer's weight.
pub(crate) fn weight(layer: usize, tensor: &str) -> String {
    format!("blk.{layer}.{tensor}.weight")
}

/// What families vary in a decoder layer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Style {
    /// Rotary embedding; `None` where positions do not count.
    pub rope: Option<RopeId>,
    /// Factor on `q·k`.
    pub attention_scale: f32,
    /// Keys that a token sees; `None`: all before it.
    pub window: Option<usize>,
    /// Cap on attention scores.
    pub soft_cap: Option<f32>,
    /// Factor on what a block adds to the residual stream.
    pub residual_scale: f32,
    /// Whether queries, keys and values have biases.
    pub qkv_bias: bool,
    /// Whether every query and key head goes through an RMSNorm.
    pub head_norms: bool,
    /// Whether Q, K and V are one tensor, and gate and up are.
    pub fused: bool,
}

impl Style {
    /// The plainest layer: Llama's.
    pub(crate) fn plain(h: &Hparams, rope: RopeId) -> Style {
        Style {
            rope: Some(rope),
            attention_scale: (h.head_dim as f32).sqrt().recip(),
            window: None,
            soft_cap: None,
            residual_scale: 1.0,
            qkv_bias: false,
            head_norms: false,
            fused: false,
        }
    }
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

/// `x + o(attention(qkv(norm(x))))` with grouped-query attention (Ainslie et al., 2023).
pub(crate) fn attention(
    b: &mut Builder<'_>,
    h: &Hparams,
    style: &Style,
    layer: usize,
    x: Bundle,
) -> Result<Bundle, Error> {
    let [q, k, v, o] = ["attn_q", "attn_k", "attn_v", "attn_output"].map(|t| weight(layer, t));
    let heads = b.heads(h.heads, h.kv_heads, h.head_dim, &o)?;
    let norm = b.vector(&weight(layer, "attn_norm"), h.hidden)?;
    let qkv = match style.fused {
        true => b.qkv(Tensors::Fused(&weight(layer, "attn_qkv")), h.hidden, &heads)?,
        false => b.qkv([&*q, &k, &v], h.hidden, &heads)?,
    };
    if style.qkv_bias {
        let names = ["attn_q", "attn_k", "attn_v"].map(|t| format!("blk.{layer}.{t}.bias"));
        b.bias(qkv, &names.each_ref().map(String::as_str))?;
    }
    let output = b.attn_output(&o, h.hidden, &heads)?;
    let mut head_norm = |tensor| match style.head_norms {
        true => b.vector(&weight(layer, tensor), h.head_dim).map(Some),
        false => Ok(None),
    };
    let attention = Attention {
        q_norm: head_norm("attn_q_norm")?,
        k_norm: head_norm("attn_k_norm")?,
        norm_eps: h.norm_eps,
        rope: style.rope,
        scale: style.attention_scale,
        window: style.window,
        soft_cap: style.soft_cap,
        heads,
        cache: layer,
    };
    let a = b.rms_norm(x, norm, h.norm_eps);
    let a = b.linear(a, qkv); // [tokens, (heads + 2 kv_heads) * head_dim]
    let a = b.attention(a, attention); // [tokens, heads * head_dim]
    let a = b.linear(a, output); // [tokens, hidden], partial
    Ok(b.residual(x, a, style.residual_scale))
}

/// `x + down(silu(gate(norm(x))) * up(norm(x)))` (Shazeer, 2020).
pub(crate) fn swiglu(
    b: &mut Builder<'_>,
    h: &Hparams,
    style: &Style,
    layer: usize,
    x: Bundle,
) -> Result<Bundle, Error> {
    let [gate, up, down] = ["ffn_gate", "ffn_up", "ffn_down"].map(|t| weight(layer, t));
    let norm = b.vector(&weight(layer, "ffn_norm"), h.hidden)?;
    let pair = if style.fused { Tensors::Fused(&up) } else { Tensors::Apart([&*gate, &up]) };
    let (pair, down) = b.feed_forward(pair, &down, h.hidden, h.ffn)?;
    let f = b.rms_norm(x, norm, h.norm_eps);
    let f = b.gated(f, pair); // [tokens, ffn]
    let f = b.linear(f, down); // [tokens, hidden], partial
    Ok(b.residual(x, f, style.residual_scale))
}

/// The last norm and the head, for the rows whose logits are asked for: `[outputs, vocab]`, times
/// `scale`.
pub(crate) fn logits(
    b: &mut Builder<'_>,
    h: &Hparams,
    x: Bundle,
    head: MatrixId,
    scale: f32,
) -> Result<Bundle, Error> {
    let norm = b.vector("output_norm.weight", h.hidden)?;
    let x = b.select(x);
    let x = b.rms_norm(x, norm, h.norm_eps);
    Ok(b.logits(x, head, scale))
}
