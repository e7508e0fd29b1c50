//! ModernBERT (arXiv:2412.13663): attention that looks both ways, in two of three layers within a window and with a RoPE
//! of their own; LayerNorms without biases before the blocks, behind the embedding and at the end; a gate with GELU.
//! The first layer has no norm before attention, as there is one behind the embedding.

use crate::page::*;

pub(crate) fn build(b: &mut Builder<'_>, f: &Facts<'_>) -> Result<(), Error> {
    f.only(&[CAUSAL, WINDOW, WINDOW_PATTERN])?;
    let activation = match f.metadata.opt_str(&f.key("hidden_activation"))? {
        None | Some("gelu") => Activation::GeluErf,
        Some("silu") => Activation::Silu,
        Some(other) => {
            let (key, value) = (f.key("hidden_activation"), other.to_owned());
            return Err(Error::UnsupportedFeature { key, value });
        }
    };
    let rope = rope(b, f, RopeStyle::Neox)?;
    let near = local_rope(b, f, RopeStyle::Neox, 10_000.0)?;
    let global = Style {
        sees_all: true,
        norms: Norms::PreLayerUnbiased,
        fused_qkv: true,
        ffn: Ffn::GatedFused(activation),
        ..Style::plain(f, rope)
    };
    let local = Style { rope: Some(near), window: f.window.map(|both| both / 2), ..global };
    // The first of three sees all.
    let windowed = f.windowed_but_first(3)?;
    let style = |(layer, windowed): (usize, bool)| {
        let style = if windowed && local.window.is_some() { local } else { global };
        let bare = layer == 0 && !b.has("blk.0.attn_norm.weight");
        Style { attn_norm: style.attn_norm.filter(|_| !bare), ..style }
    };
    Decoder {
        embedding_norm: Some((Norms::PreLayerUnbiased, "token_embd_norm")),
        has_head: false,
        ..Decoder::of(windowed.into_iter().enumerate().map(style).collect())
    }
    .build(b, f)
}
