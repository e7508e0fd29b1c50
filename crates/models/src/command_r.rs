//! Command R and R+, Aya 23: attention and feed-forward layer read one LayerNorm without a bias, logits get a factor,
//! the embedding is the head. R+ has LayerNorms of every query and key head, each with its own weights. RoPE of the
//! interleaved form.

use crate::page::*;

pub(crate) fn build(b: &mut Builder<'_>, f: &Facts<'_>) -> Result<(), Error> {
    f.only(&["logit_scale"])?;
    let rope = rope(b, f, RopeStyle::Normal)?;
    let style = Style {
        qk_norms: b.has("blk.0.attn_q_norm.weight").then_some(QkNorm::Layer),
        norms: Norms::PreLayerUnbiased,
        parallel: Some(Parallel::OneNorm),
        ..Style::plain(f, rope)
    };
    let logit_scale = f.factor("logit_scale")?.unwrap_or(1.0);
    Decoder { logit_scale, ..Decoder::uniform(f, style) }.build(b, f)
}
