//! EmbeddingGemma (arXiv:2509.20354): Gemma 3 whose tokens see those behind them too, in five of six layers within half a
//! window on either side. It has no head.

use crate::gemma2::{SCALE, attention_scale};
use crate::page::*;

pub(crate) fn build(b: &mut Builder<'_>, f: &Facts<'_>) -> Result<(), Error> {
    f.only(&[CAUSAL, WINDOW, WINDOW_PATTERN, SCALE])?;
    let rope = rope(b, f, RopeStyle::Neox)?;
    let near = local_rope(b, f, RopeStyle::Neox, 10_000.0)?;
    let global = Style {
        attention_scale: attention_scale(f, usize::MAX)?,
        sees_all: true,
        qk_norms: Some(QkNorm::Over(NormOver::Head)),
        norms: Norms::Both,
        ffn: Ffn::Gated(Activation::Gelu),
        ..Style::plain(f, rope)
    };
    let local = Style { rope: Some(near), window: f.window.map(|both| both / 2), ..global };
    Decoder {
        embedding_scale: (f.hidden as f32).sqrt(),
        has_head: false,
        ..Decoder::windowed(f, 6, local, global)?
    }
    .build(b, f)
}
