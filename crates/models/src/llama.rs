//! Llama 2, 3, 3.1 and 3.2, dense (arXiv:2307.09288, arXiv:2407.21783): pre-norm, grouped-query
//! attention, SwiGLU; the head may be tied. GGUF files of this architecture have the rows of Q and
//! K permuted for the interleaved ("normal") form of RoPE, and store llama-3's frequency scaling
//! as divisors in `rope_freqs.weight`.

use crate::blocks::{logits, swiglu, vocab, weight};
use crate::{Error, Hparams, ROPE_FREQS};
use gguf::Gguf;
use graph::{Attention, Builder, Rope, RopeStyle};

pub(crate) fn build(b: &mut Builder<'_>, h: &Hparams, gguf: &Gguf<'_>) -> Result<(), Error> {
    h.plain_rope(gguf)?;
    h.dense(gguf)?;
    let factors = rope_factors(gguf, h.rope_dims / 2)?;
    let rope = Rope::new(RopeStyle::Normal, h.rope_dims, h.rope_theta, factors.as_deref());
    let rope = b.rope(rope);
    let (embedding, head) = vocab(b, h)?;

    let mut x = b.embed(embedding); // [tokens, hidden]
    for layer in 0..h.layers {
        b.layer(Some(layer));
        let name = |tensor| weight(layer, tensor);
        let [q, k, v, o] = ["attn_q", "attn_k", "attn_v", "attn_output"].map(name);
        let heads = b.heads(h.heads, h.kv_heads, h.head_dim, &o)?;
        let norm = b.vector(&name("attn_norm"), h.hidden)?;
        let qkv = b.qkv([&q, &k, &v], h.hidden, &heads)?;
        let output = b.attn_output(&o, h.hidden, &heads)?;
        let attention = Attention {
            q_norm: None,
            k_norm: None,
            norm_eps: h.norm_eps,
            rope,
            scale: (h.head_dim as f32).sqrt().recip(),
            heads,
            cache: layer,
        };
        let a = b.rms_norm(x, norm, h.norm_eps);
        let a = b.linear(a, qkv); // [tokens, (heads + 2 kv_heads) * head_dim]
        let a = b.attention(a, attention); // [tokens, heads * head_dim]
        let a = b.linear(a, output); // [tokens, hidden], partial
        x = b.residual(x, a);
        x = swiglu(b, h, layer, x)?;
    }
    b.layer(None);
    logits(b, h, x, head)?;
    Ok(())
}

/// Divisors of the frequencies, `[pairs]`, when the file has them.
fn rope_factors(gguf: &Gguf<'_>, pairs: usize) -> Result<Option<Vec<f32>>, Error> {
    let Some(t) = gguf.tensor(ROPE_FREQS) else { return Ok(None) };
    if t.elements() != pairs {
        return Err(Error::Implausible {
            key: ROPE_FREQS.to_owned(),
            value: t.elements().to_string(),
            why: "it must have one element per rotated pair",
        });
    }
    let mut factors = vec![0.0; pairs];
    t.ty.dequantize(t.data, &mut factors)?;
    Ok(Some(factors))
}
