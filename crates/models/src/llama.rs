//! Llama 2 and 3, dense (arXiv:2307.09288, arXiv:2407.21783), and what shares their shape: Mistral and
//! Ministral (arXiv:2310.06825), SmolLM2. Pre-norm, grouped-query attention, SwiGLU; the head may be
//! tied. Mixtral (arXiv:2401.04088) has experts in every layer, softmax over the two that are chosen. GGUF files of this architecture have the rows of Q and K permuted for the interleaved
//! ("normal") form of RoPE, and store llama-3's frequency scaling as divisors in `rope_freqs.weight`.

use crate::page::*;

pub(crate) fn build(b: &mut Builder<'_>, f: &Facts<'_>) -> Result<(), Error> {
    f.only(&[WINDOW, EXPERTS])?;
    let rope = rope(b, f, RopeStyle::Normal)?;
    let plain = Style::plain(f, rope);
    let router = Router { gate: Gate::ChosenSoftmax, ..Router::softmax(0, 0) };
    let ffn = match f.opt_size(EXPERTS)? {
        Some(_) => Ffn::Experts(f.experts(router)?),
        None => plain.ffn,
    };
    let style = Style { window: f.window, ffn, ..plain };
    Decoder::uniform(f, style).build(b, f)
}
