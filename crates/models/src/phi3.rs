//! Phi-3 and Phi-4 of dense form (arXiv:2404.14219, arXiv:2503.01743): Llama with Q, K and V in one
//! tensor, gate and up in another (gate first), and the half-split form of RoPE, in Phi-4-mini on
//! three quarters of a head; long contexts by LongRoPE.

use crate::page::*;

pub(crate) fn build(b: &mut Builder<'_>, f: &Facts<'_>) -> Result<(), Error> {
    f.only(&[WINDOW])?;
    let rope = rope(b, f, RopeStyle::Neox)?;
    let style = Style {
        window: f.window,
        fused_qkv: true,
        ffn: Ffn::GatedFused(Activation::Silu),
        ..Style::plain(f, rope)
    };
    Decoder::uniform(f, style).build(b, f)
}
