//! Nemotron-H (arXiv:2504.03624) and Nemotron 3 Nano: each layer is Mamba-2, attention without RoPE, or a
//! feed-forward layer with squared ReLU and no gate, behind one norm. With experts (`nemotron_h_moe`), these
//! are the feed-forward layers: sigmoids of scores, whose order has a bias, and one for all tokens.

use crate::page::*;
use crate::recurrent::{Kind, Recurrent};

pub(crate) fn build(b: &mut Builder<'_>, f: &Facts<'_>) -> Result<(), Error> {
    f.only(&[EXPERTS, NEXTN, SHARED_EXPERTS, KV_HEADS, FFN])?;
    let plain = Style {
        ffn: Ffn::None,
        ffn_norm: "attn_norm",
        mixer: Mixer::None,
        ..Style::plain(f, None)
    };
    let recurrent = Recurrent::read(f, Kind::StateSpace, false)?;
    let ffn = match f.opt_size(EXPERTS)? {
        None => Ffn::Plain(Activation::SquaredRelu),
        Some(_) => {
            let router = Router { gate: Gate::Sigmoid, ..Router::softmax(0, 0) };
            let moe = f.experts(router)?.with_shared(f)?;
            let expert = Expert { activation: Activation::SquaredRelu, gated: false, ..moe.expert };
            Ffn::Experts(Moe { expert, ..moe })
        }
    };
    let (heads, _, dim) = plain.heads;
    let kind = |layer: usize| match (f.by_layer.kv_heads[layer], f.by_layer.ffn[layer]) {
        (0, 0) => Style { mixer: Mixer::Recurrent(recurrent), ..plain },
        (kv, 0) => Style { mixer: Mixer::Attention, heads: (heads, kv, dim), ..plain },
        (_, width) => Style { ffn, ffn_width: width, ..plain },
    };
    Decoder::of((0..f.layers).map(kind).collect()).build(b, f)
}
