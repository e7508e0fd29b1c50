//! BitNet b1.58 (arXiv:2402.17764, arXiv:2504.12285): Llama whose matrices are of -1, 0 and 1, with a norm over what all
//! heads give and one over what the down projection reads, and the half-split form of RoPE. The embedding is the head.
//! BitNet b1.58 2B4T, which has fewer key/value heads than others, has squared ReLU where these have SiLU; files do not
//! state that, but for those that are called `bitnet-b1.58`.

use crate::page::*;

pub(crate) fn build(b: &mut Builder<'_>, f: &Facts<'_>) -> Result<(), Error> {
    f.only(&[])?;
    let rope = rope(b, f, RopeStyle::Neox)?;
    let squared = f.arch == "bitnet-b1.58" || f.kv_heads < f.heads;
    let function = if squared { Activation::SquaredRelu } else { Activation::Silu };
    let style = Style { sub_norms: true, ffn: Ffn::Gated(function), ..Style::plain(f, rope) };
    Decoder::uniform(f, style).build(b, f)
}
