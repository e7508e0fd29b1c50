//! OLMoE (arXiv:2409.02060): as Llama, with norms over all queries and all keys, and experts; softmax over
//! all of them, whose weights stay as they are.

use crate::page::*;

pub(crate) fn build(b: &mut Builder<'_>, f: &Facts<'_>) -> Result<(), Error> {
    f.only(&[EXPERTS])?;
    let rope = rope(b, f, RopeStyle::Neox)?;
    let style = Style {
        qk_norms: Some(QkNorm::Over(NormOver::Row)),
        ffn: Ffn::Experts(f.experts(Router::softmax(0, 0))?),
        ..Style::plain(f, rope)
    };
    Decoder::uniform(f, style).build(b, f)
}
