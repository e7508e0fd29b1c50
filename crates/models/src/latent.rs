//! Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434), as files describe it.

use crate::blocks::{after, before, weight};
use crate::decoder::Style;
use crate::facts::Facts;
use crate::{Error, Hparams};
use graph::{Attention, Builder, Bundle, LatentSizes, MatrixId, Norm, UpProjection, VectorId};

/// What a file says of latent attention.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Latent {
    /// Sizes of its parts.
    pub sizes: LatentSizes,
    /// Elements that queries are made of, where they are not made of the residual stream.
    pub query_rank: Option<usize>,
}

impl Latent {
    /// As the metadata say. Files with keys' and values' matrices in one state the length of heads without
    /// latents, others that of latents and beside it those of heads.
    ///
    /// # Errors
    /// When something is missing or means nothing.
    pub(crate) fn read(f: &Facts<'_>) -> Result<Latent, Error> {
        let size = |name: &str| {
            let value = f.metadata.u32(&f.key(name))? as usize;
            let why = "it must be at least one";
            let zero = || Error::Implausible { key: f.key(name), value: "0".to_owned(), why };
            if value == 0 { Err(zero()) } else { Ok(value) }
        };
        let of_head = |name: &str| match f.opt_size(&format!("{name}_mla"))? {
            Some(own) => Ok(own),
            None => size(name),
        };
        let rank = size("attention.kv_lora_rank")?;
        let key = of_head("attention.key_length")?;
        // Files of MiniCPM3 do not say.
        let value = match f.metadata.get(&f.key("attention.value_length")) {
            None if f.opt_size("attention.value_length_mla")?.is_none() => f.hidden / f.heads,
            _ => of_head("attention.value_length")?,
        };
        let rope = f.rope_dims;
        if key <= rope {
            return Err(Error::Implausible {
                key: f.key("attention.key_length"),
                value: key.to_string(),
                why: "a head has elements with RoPE and others",
            });
        }
        let sizes = LatentSizes { heads: f.heads, rank, rope, nope: key - rope, value };
        Ok(Latent { sizes, query_rank: f.opt_size("attention.q_lora_rank")? })
    }

    /// Elements of a head's query and key, as if there were no latents.
    pub(crate) fn head(&self) -> usize {
        self.sizes.nope + self.sizes.rope
    }
}

/// `x + o(attention(queries, latents))` with norms.
pub(crate) fn attention(
    b: &mut Builder<'_>,
    h: &Hparams,
    (style, latent): (&Style, &Latent),
    layer: usize,
    x: Bundle,
) -> Result<Bundle, Error> {
    let of = &latent.sizes;
    let name = |tensor: &str| weight(layer, tensor);
    let output = name("attn_output");
    let heads = b.latent_heads(of, (&output, h.hidden))?;
    let queries = Queries::declare(b, h, latent, layer, &heads)?;
    let latents = b.latents(&name("attn_kv_a_mqa"), of, h.hidden)?;
    let norm = b.vector(&name("attn_kv_a_norm"), of.rank)?;
    let (keys, values, both) = (name("attn_k_b"), name("attn_v_b"), name("attn_kv_b"));
    let from = match b.has(&both) {
        true => UpProjection::Fused(&both),
        false => UpProjection::Apart { keys: &keys, values: &values },
    };
    let (keys, values) = b.absorbed(from, of, &heads)?;
    let output = b.latent_output(&output, of, h.hidden, &heads)?;
    let plain = style.attention(h, heads, layer);
    let attention = Attention { latent_norm: Some(norm), ..plain };
    let a = before(b, h, style, &format!("blk.{layer}.attn_norm"), x)?;
    let q = queries.down(b, a); // [tokens, query rank]
    let l = b.linear_everywhere(a, latents); // [tokens, rope + rank]
    let q = queries.up(b, h, q); // [tokens, heads * (nope + rope)]
    let q = b.linear(q, keys); // [tokens, heads * (rope + rank)]
    let a = b.latent_attention(q, l, attention); // [tokens, heads * (rope + rank)]
    let a = b.linear(a, values); // [tokens, heads * value]
    let a = b.linear(a, output); // [tokens, hidden], partial
    after(b, h, style, &format!("blk.{layer}.post_attention_norm"), (x, a), None)
}

/// The matrices that queries are made with.
struct Queries {
    /// To fewer elements, and the norm of these.
    down: Option<(MatrixId, VectorId)>,
    /// To heads.
    up: MatrixId,
}

impl Queries {
    fn declare(
        b: &mut Builder<'_>,
        h: &Hparams,
        latent: &Latent,
        layer: usize,
        heads: &graph::Heads,
    ) -> Result<Queries, Error> {
        let of = &latent.sizes;
        let Some(rank) = latent.query_rank else {
            let up = b.latent_queries(&weight(layer, "attn_q"), of, h.hidden, heads)?;
            return Ok(Queries { down: None, up });
        };
        let down =
            b.on_every_node("query_latents", &weight(layer, "attn_q_a"), (rank, h.hidden))?;
        let norm = b.vector(&weight(layer, "attn_q_a_norm"), rank)?;
        let up = b.latent_queries(&weight(layer, "attn_q_b"), of, rank, heads)?;
        Ok(Queries { down: Some((down, norm)), up })
    }

    fn down(&self, b: &mut Builder<'_>, x: Bundle) -> Bundle {
        self.down.map_or(x, |(down, _)| b.linear_everywhere(x, down))
    }

    fn up(&self, b: &mut Builder<'_>, h: &Hparams, x: Bundle) -> Bundle {
        let norm = self.down.map(|(_, weight)| Norm::Rms { weight, eps: h.norm_eps });
        let x = norm.map_or(x, |norm| b.norm(x, norm));
        b.linear(x, self.up)
    }
}
