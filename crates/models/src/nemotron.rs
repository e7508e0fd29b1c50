//! Nemotron 4 and Minitron (arXiv:2402.16819): LayerNorm, squared ReLU without a gate, RoPE of the half-split form on
//! a part of a head; biases in some. Files' norm weights have the one that is added to them.

use crate::page::*;

pub(crate) fn build(b: &mut Builder<'_>, f: &Facts<'_>) -> Result<(), Error> {
    f.only(&[])?;
    let rope = rope(b, f, RopeStyle::Neox)?;
    let style = Style {
        bias: match (b.has("blk.0.attn_q.bias"), b.has("blk.0.ffn_up.bias")) {
            (false, _) => Bias::None,
            (true, false) => Bias::Attention,
            (true, true) => Bias::All,
        },
        norms: Norms::PreLayer,
        ffn: Ffn::Plain(Activation::SquaredRelu),
        ..Style::plain(f, rope)
    };
    Decoder::uniform(f, style).build(b, f)
}
