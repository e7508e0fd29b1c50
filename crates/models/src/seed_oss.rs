//! Seed-OSS: Llama with biases of Q, K and V and the half-split form of RoPE.

use crate::page::*;

pub(crate) fn build(b: &mut Builder<'_>, f: &Facts<'_>) -> Result<(), Error> {
    f.only(&[])?;
    let rope = rope(b, f, RopeStyle::Neox)?;
    let style = Style {
        bias: if b.has("blk.0.attn_q.bias") { Bias::Qkv } else { Bias::None },
        ffn_norm: "post_attention_norm",
        ..Style::plain(f, rope)
    };
    Decoder::uniform(f, style).build(b, f)
}
