//! Gemma 3, text (arXiv:2503.19786): as Gemma 2, with a norm on every query and key head instead of a
//! cap on scores, and five layers with a sliding window to each without. Those have angles of their
//! own; only the others are stretched to long contexts.

use crate::gemma2::{SCALE, attention_scale};
use crate::page::*;

pub(crate) fn build(b: &mut Builder<'_>, f: &Facts<'_>) -> Result<(), Error> {
    const LOGITS: &str = "final_logit_softcapping";
    f.only(&[LOGITS, WINDOW, WINDOW_PATTERN, SCALE])?;
    let rope = rope(b, f, RopeStyle::Neox)?;
    let local = local_rope(b, f, RopeStyle::Neox, 10_000.0)?;
    let global = Style {
        attention_scale: attention_scale(f, 62)?,
        qk_norms: Some(QkNorm::Over(NormOver::Head)),
        norms: Norms::Both,
        ffn: Ffn::Gated(Activation::Gelu),
        ..Style::plain(f, rope)
    };
    let local = Style { rope: Some(local), window: f.window, ..global };
    Decoder {
        embedding_scale: (f.hidden as f32).sqrt(),
        logit_cap: f.cap(LOGITS, None)?,
        ..Decoder::windowed(f, 6, local, global)?
    }
    .build(b, f)
}
