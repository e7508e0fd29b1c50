//! LFM2 (arXiv:2511.23404): short gated convolutions, and attention with norms on heads in the layers that
//! state key/value heads. With experts (`lfm2moe`), the first layers are dense; sigmoids of scores, whose
//! order has a bias, are divided by their sum. Files call the last norm after the embedding.

use crate::page::*;

pub(crate) fn build(b: &mut Builder<'_>, f: &Facts<'_>) -> Result<(), Error> {
    f.only(&[EXPERTS, LEADING_DENSE, KV_HEADS])?;
    let rope = rope(b, f, RopeStyle::Neox)?;
    let taps = f.metadata.u32(&f.key("shortconv.l_cache"))? as usize;
    if taps < 2 {
        let (key, value) = (f.key("shortconv.l_cache"), taps.to_string());
        return Err(Error::Implausible { key, value, why: "a convolution has two taps or more" });
    }
    let attends = Style { qk_norms: Some(QkNorm::Over(NormOver::Head)), ..Style::plain(f, rope) };
    let convolves = Style { mixer: Mixer::Convolution(taps), ..attends };
    let moe = match f.opt_size(EXPERTS)? {
        Some(_) => {
            let router = Router { gate: Gate::Sigmoid, normalised: true, ..Router::softmax(0, 0) };
            Some(f.experts(router)?)
        }
        None => None,
    };
    let leading = f.opt_size(LEADING_DENSE)?.unwrap_or(0);
    let style = |layer: usize| {
        let (heads, kv, dim) = attends.heads;
        let style = match f.by_layer.kv_heads[layer] {
            0 => convolves,
            own => Style { heads: (heads, own.min(kv), dim), ..attends },
        };
        match moe {
            Some(moe) if layer >= leading => Style { ffn: Ffn::Experts(moe), ..style },
            _ => style,
        }
    };
    let last_norm = Some("token_embd_norm");
    Decoder { last_norm, ..Decoder::of((0..f.layers).map(style).collect()) }.build(b, f)
}
