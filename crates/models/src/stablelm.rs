//! StableLM (arXiv:2402.17834): Llama with LayerNorm and RoPE of the half-split form on a part of a head; biases of Q,
//! K and V in some. In StableLM 2 12B attention and feed-forward layer read one norm, and every query and key head has
//! a LayerNorm with its own weights.

use crate::page::*;

pub(crate) fn build(b: &mut Builder<'_>, f: &Facts<'_>) -> Result<(), Error> {
    const PARALLEL: &str = "use_parallel_residual";
    f.only(&[PARALLEL])?;
    let rope = rope(b, f, RopeStyle::Neox)?;
    // Files may say so of models that have a second norm; these are not.
    let stated = f.metadata.opt_bool(&f.key(PARALLEL))?.unwrap_or(true);
    let parallel = stated && !b.has("blk.0.ffn_norm.weight");
    let style = Style {
        bias: if b.has("blk.0.attn_q.bias") { Bias::Qkv } else { Bias::None },
        qk_norms: b.has("blk.0.attn_q_norm.weight").then_some(QkNorm::Layer),
        norms: Norms::PreLayer,
        parallel: parallel.then_some(Parallel::OneNorm),
        ..Style::plain(f, rope)
    };
    Decoder::uniform(f, style).build(b, f)
}
