//! ERNIE 4.5 with experts: Llama's attention with RoPE of the interleaved form; the first layers are dense,
//! the others have experts, softmax over all with a bias for the choice alone, the weights of the chosen
//! divided by their sum, beside experts for all tokens.

use crate::page::*;

pub(crate) fn build(b: &mut Builder<'_>, f: &Facts<'_>) -> Result<(), Error> {
    f.only(&[EXPERTS, LEADING_DENSE, SHARED_EXPERTS])?;
    let rope = rope(b, f, RopeStyle::Normal)?;
    let style = Style::plain(f, rope);
    let moe = f.experts(Router { normalised: true, ..Router::softmax(0, 0) })?;
    Decoder::sparse(f, style, moe.with_shared(f)?)?.build(b, f)
}
