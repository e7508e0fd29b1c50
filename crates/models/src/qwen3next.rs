//! Qwen3-Next: gated delta nets (arXiv:2412.06464), and in every fourth layer attention with norms on heads,
//! RoPE on a part of them, and gates behind them. Every layer has experts, softmax over all of them, the
//! weights of the chosen divided by their sum, and one for all tokens with a gate of its own.

use crate::page::*;
use crate::recurrent::{Kind, Recurrent};

pub(crate) fn build(b: &mut Builder<'_>, f: &Facts<'_>) -> Result<(), Error> {
    f.only(&[EXPERTS, NEXTN, SHARED_EXPERTS])?;
    let rope = rope(b, f, RopeStyle::Neox)?;
    let router = Router { normalised: true, ..Router::softmax(0, 0) };
    let moe = f.experts(router)?.with_shared(f)?;
    let recurrent = Recurrent::read(f, Kind::Delta { fused: true }, false)?;
    let attends = Style {
        qk_norms: Some(QkNorm::Over(NormOver::Head)),
        gated: true,
        ffn: Ffn::Experts(moe),
        ffn_norm: "post_attention_norm",
        ..Style::plain(f, rope)
    };
    Decoder::of(f.with_recurrence(attends, recurrent)?).predicting(f).build(b, f)
}
