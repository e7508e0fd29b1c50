//! Qwen3, dense (Qwen3 technical report, arXiv:2505.09388): pre-norm, grouped-query attention with
//! an RMSNorm on every query and key head, SwiGLU; the head may be tied to the embedding.

use crate::blocks::{logits, swiglu, vocab, weight};
use crate::{Error, Hparams};
use gguf::Gguf;
use graph::{Attention, Builder, Rope, RopeStyle};

pub(crate) fn build(b: &mut Builder<'_>, h: &Hparams, gguf: &Gguf<'_>) -> Result<(), Error> {
    h.plain_rope(gguf)?;
    let rope = b.rope(Rope::new(RopeStyle::Neox, h.rope_dims, h.rope_theta, None));
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
            q_norm: Some(b.vector(&name("attn_q_norm"), h.head_dim)?),
            k_norm: Some(b.vector(&name("attn_k_norm"), h.head_dim)?),
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
