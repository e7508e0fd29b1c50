//! GPT-NeoX and Pythia (arXiv:2204.06745, arXiv:2304.01373): LayerNorm, biases everywhere, Q, K and V in one tensor,
//! GELU without a gate, RoPE of the half-split form on a part of a head. Attention and feed-forward layer read the
//! same stream, each behind a norm of its own. GELU is that of the error function; GPT-NeoX-20B, of 44 layers, was
//! trained with the approximation, which files do not state.

use crate::page::*;

/// The number of layers by which GPT-NeoX-20B is known.
const NEOX_20B: usize = 44;

pub(crate) fn build(b: &mut Builder<'_>, f: &Facts<'_>) -> Result<(), Error> {
    const PARALLEL: &str = "use_parallel_residual";
    f.only(&[PARALLEL])?;
    let rope = rope(b, f, RopeStyle::Neox)?;
    let parallel = f.metadata.opt_bool(&f.key(PARALLEL))?.unwrap_or(true);
    let gelu = if f.layers == NEOX_20B { Activation::Gelu } else { Activation::GeluErf };
    let style = Style {
        bias: Bias::All,
        norms: Norms::PreLayer,
        parallel: parallel.then_some(Parallel::TwoNorms),
        fused_qkv: true,
        ffn: Ffn::Plain(gelu),
        ..Style::plain(f, rope)
    };
    Decoder::uniform(f, style).build(b, f)
}
