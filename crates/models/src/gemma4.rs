//! Gemma 4, text: as Gemma 3, with heads of another length in layers with a window, norms without weights on
//! values, and no scale of scores. Layers without a window may have keys that are values too; the last layers may share
//! keys and values with the last one of their kind before them. RoPE turns the first quarter of the pairs of a
//! head. The small ones have inputs for every layer, the sparse one has experts beside a dense layer.

use crate::page::*;
use graph::Given;

pub(crate) fn build(b: &mut Builder<'_>, f: &Facts<'_>) -> Result<(), Error> {
    const LOGITS: &str = "final_logit_softcapping";
    f.only(&[LOGITS, WINDOW, WINDOW_PATTERN, KV_HEADS, FFN, EXPERTS, SHARED_KV, PER_LAYER])?;
    let rope = rope(b, f, RopeStyle::Neox)?;
    let local = local_rope(b, f, RopeStyle::Neox, 10_000.0)?;
    let short = f.opt_size("attention.key_length_swa")?.unwrap_or(f.head_dim);
    let plain = Style {
        attention_scale: 1.0,
        qk_norms: Some(QkNorm::Over(NormOver::Head)),
        value_norms: true,
        norms: Norms::Both,
        ffn: Ffn::Gated(Activation::Gelu),
        ..Style::plain(f, rope)
    };
    let plain = match f.opt_size(EXPERTS)? {
        None => plain,
        Some(_) => {
            let moe = f.experts(Router { normalised: true, ..Router::softmax(0, 0) })?;
            let expert = Expert { activation: Activation::Gelu, ..moe.expert };
            Style { ffn: Ffn::Beside(Activation::Gelu, Moe { expert, ..moe }), ..plain }
        }
    };
    let windowed = f.windowed(6)?;
    let borrowed = f.borrowed(&windowed)?;
    let mut layers = Vec::with_capacity(f.layers);
    for (layer, &windowed_here) in windowed.iter().enumerate() {
        let (kv_heads, ffn_width) = (f.by_layer.kv_heads[layer], f.by_layer.ffn[layer]);
        let borrows = borrowed[layer];
        let given = match borrows {
            Some(_) => Given::Nothing,
            None if b.has(&format!("blk.{layer}.attn_v.weight")) => Given::KeysAndValues,
            None => Given::Keys,
        };
        let style = Style { ffn_width, given, borrows, ..plain };
        layers.push(match windowed_here {
            true => Style {
                rope: Some(local),
                window: f.window,
                heads: (f.heads, kv_heads, short),
                ..style
            },
            false => Style { heads: (f.heads, kv_heads, f.head_dim), ..style },
        });
    }
    Decoder {
        embedding_scale: (f.hidden as f32).sqrt(),
        logit_cap: f.cap(LOGITS, None)?,
        per_layer: f.opt_size(PER_LAYER)?,
        layer_factors: true,
        ..Decoder::of(layers)
    }
    .build(b, f)
}
