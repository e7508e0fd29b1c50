//! Qwen2 and Qwen1.5 with experts (arXiv:2407.10671): Qwen2's attention with biases; softmax over all
//! experts, whose weights stay as they are, and one more expert for all tokens, times a sigmoid of its own.

use crate::page::*;

pub(crate) fn build(b: &mut Builder<'_>, f: &Facts<'_>) -> Result<(), Error> {
    f.only(&[EXPERTS])?;
    let rope = rope(b, f, RopeStyle::Neox)?;
    let shared = f.opt_size("expert_shared_feed_forward_length")?;
    let moe = Moe { shared, ..f.experts(Router::softmax(0, 0))? };
    let style = Style { bias: Bias::Qkv, ffn: Ffn::Experts(moe), ..Style::plain(f, rope) };
    Decoder::uniform(f, style).build(b, f)
}
