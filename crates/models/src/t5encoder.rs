//! The encoder of T5 (arXiv:1910.10683), as sentence-T5 (arXiv:2108.08877) and GTR (arXiv:2112.07899) have it: tokens see
//! all others, scores are not scaled and get a bias by the distance of their key, RMSNorm before both blocks, no other
//! bias. T5 has ReLU, T5 1.1 and what followed a gate with GELU (arXiv:2002.05202).
//!
//! Layers have the biases of the first one, but for UMT5's, which have their own (arXiv:2304.09151).

use crate::page::*;
use graph::{Added, Attention, Bundle, Keep, Norm, VectorId};

pub(crate) fn build(b: &mut Builder<'_>, f: &Facts<'_>) -> Result<(), Error> {
    f.only(&[CAUSAL])?;
    let embedding = b.vocab("token_embd.weight", f.vocab, f.hidden)?;
    let mut x = b.embed_and(embedding, 1.0, Added::default()); // [tokens, hidden]
    let mut first = None;
    for layer in 0..f.layers {
        b.layer(Some(layer));
        let own = name(layer, "attn_rel_b");
        let biases = match first {
            Some(first) if !b.has(&own) => first,
            _ => b.biases(&own, f.size("attention.relative_buckets_count")?, f.heads)?,
        };
        first = first.or(Some(biases));
        x = attention(b, f, (layer, biases), x)?;
        x = feed_forward(b, f, layer, x)?;
    }
    b.layer(None);
    let norm = rms(b, f, "enc.output_norm.weight")?;
    let x = b.select(x); // [outputs, hidden]
    let x = b.norm(x, norm);
    b.hidden(x);
    Ok(())
}

fn name(layer: usize, tensor: &str) -> String {
    format!("enc.blk.{layer}.{tensor}.weight")
}

fn rms(b: &mut Builder<'_>, f: &Facts<'_>, weight: &str) -> Result<Norm, Error> {
    Ok(Norm::Rms { weight: b.vector(weight, f.hidden)?, eps: f.norm_eps })
}

/// `x + attention(norm(x))`.
fn attention(
    b: &mut Builder<'_>,
    f: &Facts<'_>,
    (layer, biases): (usize, VectorId),
    x: Bundle,
) -> Result<Bundle, Error> {
    let [q, k, v, o] = ["attn_q", "attn_k", "attn_v", "attn_o"].map(|t| name(layer, t));
    let heads = b.heads(f.heads, f.heads, f.head_dim, (&o, f.hidden))?;
    let qkv = b.qkv([&*q, &k, &v], f.hidden, &heads)?;
    let output = b.attn_output(&o, f.hidden, &heads)?;
    let spec = Attention {
        heads,
        q_norm: None,
        k_norm: None,
        v_norm: None,
        borrows: None,
        norm_over: NormOver::Head,
        norm_last: false,
        norm_centres: false,
        norm_eps: f.norm_eps,
        rope: None,
        latent_norm: None,
        sinks: None,
        scale: 1.0,
        temperature: None,
        soft_cap: None,
        slopes: Vec::new(),
        biases: Some(biases),
        keep: Keep::Text { near: None },
        cache: layer,
    };
    let norm = rms(b, f, &name(layer, "attn_norm"))?;
    let a = b.norm(x, norm);
    let a = b.linear(a, qkv); // [tokens, 3 * heads * head_dim]
    let a = b.attention(a, spec); // [tokens, heads * head_dim]
    let a = b.linear(a, output); // [tokens, hidden], partial
    Ok(b.residual(x, a, None, (1.0, None)))
}

/// `x + feed_forward(norm(x))`.
fn feed_forward(
    b: &mut Builder<'_>,
    f: &Facts<'_>,
    layer: usize,
    x: Bundle,
) -> Result<Bundle, Error> {
    let [gate, up, down] = ["ffn_gate", "ffn_up", "ffn_down"].map(|t| name(layer, t));
    let norm = rms(b, f, &name(layer, "ffn_norm"))?;
    let y = b.norm(x, norm);
    let (y, down) = match b.has(&gate) {
        true => {
            let (up, down) = b.feed_forward([&*gate, &up], &down, f.hidden, f.ffn)?;
            (b.gated(y, up, Activation::Gelu), down)
        }
        false => {
            let (up, down) = b.feed_forward([&*up], &down, f.hidden, f.ffn)?;
            (b.activated(y, up, Activation::Relu), down)
        }
    }; // [tokens, ffn]
    let y = b.linear(y, down); // [tokens, hidden], partial
    Ok(b.residual(x, y, None, (1.0, None)))
}
