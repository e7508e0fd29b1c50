//! DeepSeek-V2, V3 and R1 (arXiv:2405.04434, arXiv:2412.19437), Kimi K2, GLM-4.7-Flash: latent attention with
//! RoPE of the interleaved form; the first layers are dense, the others have experts, some for all tokens. V2
//! chooses by softmax, from the groups with the best expert, V3 by sigmoid and a bias, from the groups with
//! the best two. YaRN's gain is given to the scale of attention and not to what RoPE rotates. Mistral 4 is V3 with
//! queries that grow with the logarithm of their position, a softmax, and gate and up in one tensor.

use crate::latent::Latent;
use crate::page::*;
use crate::rope::yarn_gain;

pub(crate) fn build(b: &mut Builder<'_>, f: &Facts<'_>) -> Result<(), Error> {
    const GAIN: &str = "rope.scaling.yarn_log_multiplier";
    const TEMPERATURE: &str = "attention.temperature_scale";
    f.only(&[EXPERTS, LEADING_DENSE, SHARED_EXPERTS, NEXTN, GAIN, TEMPERATURE])?;
    let latent = Latent::read(f)?;
    let yarn = Yarn { gain: 0.0, ..Yarn::default() };
    let rope = rope_by(b, f, RopeStyle::Normal, yarn)?;
    // Files have a tenth of the share.
    let share = f.opt_f32(GAIN)?.unwrap_or(0.0) / 0.1;
    let stretched = f.opt_f32("rope.scaling.factor")?.unwrap_or(1.0);
    let gain = yarn_gain(share, f64::from(stretched)) as f32;
    let temperature = match f.opt_f32(TEMPERATURE)? {
        None | Some(0.0) => None,
        Some(scale) => {
            let length = f.opt_size("attention.temperature_length")?;
            let length = length.map_or_else(|| original_context(f), Ok)?;
            Some(Temperature { scale, length, offset: 0 })
        }
    };
    let dense = Style {
        temperature,
        attention_scale: gain * gain / (latent.head() as f32).sqrt(),
        mixer: Mixer::Latent(latent),
        ..Style::plain(f, rope)
    };
    // Files of V2 and of GLM-4.7-Flash may not say how scores are made.
    let glm = matches!(f.layers + f.predicting, 47 | 48) && f.vocab == 154_880;
    let gate = if glm { Gate::Sigmoid } else { Gate::Softmax };
    let moe = f.experts(Router { gate, ..Router::softmax(0, 0) })?;
    let by = if moe.router.gate == Gate::Softmax { GroupScore::Best } else { GroupScore::TwoBest };
    let groups = moe.router.groups.map(|groups| Groups { by, ..groups });
    let first = f.opt_size(LEADING_DENSE)?.unwrap_or(0);
    let fused = b.has(&format!("blk.{first}.ffn_gate_up_exps.weight"));
    let moe = Moe { router: Router { groups, ..moe.router }, fused, ..moe };
    Decoder::sparse(f, dense, moe.with_shared(f)?)?.predicting(f).build(b, f)
}
