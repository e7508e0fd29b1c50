//! Granite 3 and 4 of dense form without Mamba layers: Llama with factors on the embedding, on what
//! blocks add to the residual stream, on attention and on the logits, which are divided by theirs
//! (maximal update parametrisation, arXiv:2203.03466). Rows of Q and K are permuted for the
//! interleaved form of RoPE; a file can say that the model was trained without RoPE. Granite 4's state
//! the number of key/value heads for each layer. With experts (`granitemoe`), softmax is over those that are
//! chosen; some have one more for all tokens. In hybrid models (`granitehybrid`) layers without key/value heads
//! have Mamba-2 instead of attention.

use crate::page::*;
use crate::recurrent::{Kind, Recurrent};

pub(crate) fn build(b: &mut Builder<'_>, f: &Facts<'_>) -> Result<(), Error> {
    let hybrid = f.arch == "granitehybrid";
    let kv_heads = if hybrid { KV_HEADS } else { "" };
    f.only(&[
        EXPERTS,
        kv_heads,
        "embedding_scale",
        "residual_scale",
        "logit_scale",
        "attention.scale",
    ])?;
    let or_one = |name| f.factor(name).map(|factor| factor.unwrap_or(1.0));
    let rotated = f.metadata.opt_bool(&f.key("rope.scaling.finetuned"))?.unwrap_or(true);
    let rope = rotated.then(|| rope(b, f, RopeStyle::Normal)).transpose()?;
    let plain = Style::plain(f, rope);
    let router = Router { gate: Gate::ChosenSoftmax, ..Router::softmax(0, 0) };
    let shared = f.opt_size("expert_shared_feed_forward_length")?;
    let ffn = match f.opt_size(EXPERTS)? {
        Some(_) => Ffn::Experts(Moe { shared, ..f.experts(router)? }),
        None => plain.ffn,
    };
    let style = Style {
        ffn,
        attention_scale: f.factor("attention.scale")?.unwrap_or(plain.attention_scale),
        residual_scale: or_one("residual_scale")?,
        ..plain
    };
    let recurs = match hybrid {
        true => Some(Recurrent::read(f, Kind::StateSpace, false)?),
        false => None,
    };
    let layer = |kv_heads: &usize| match recurs {
        Some(recurs) if *kv_heads == 0 => Style { mixer: Mixer::Recurrent(recurs), ..style },
        _ => style,
    };
    let layers = f.by_layer.kv_heads.iter().map(layer).collect();
    Decoder {
        embedding_scale: or_one("embedding_scale")?,
        logit_scale: or_one("logit_scale")?.recip(),
        ..Decoder::of(layers)
    }
    .build(b, f)
}
