//! Rotary embeddings as GGUF metadata describe them: plain, and stretched to longer contexts.
//!
//! A file names the way in `rope.scaling.type`: `linear` divides all angles (position interpolation,
//! arXiv:2306.15595), `yarn` those of slow pairs, and raises attention (arXiv:2309.00071), `longrope`
//! divides each pair by a factor of its own, with two sets for short and for long contexts
//! (arXiv:2402.13753). Llama 3's way comes without a type, as divisors in `rope_freqs.weight`. So
//! does LongRoPE in files of Phi-3.

use crate::Error;
use crate::facts::Facts;
use graph::{Builder, Rope, RopeId, RopeStyle};

/// Divisors of the angles, one per pair.
pub(crate) const FREQS: &str = "rope_freqs.weight";
/// Those of LongRoPE for contexts that the model was first trained for, and for longer ones.
const SHORT: &str = "rope_factors_short.weight";
const LONG: &str = "rope_factors_long.weight";

const TYPE: &str = "rope.scaling.type";
const FACTOR: &str = "rope.scaling.factor";

/// The rotary embedding of a file.
///
/// # Errors
/// When it is stretched in a way that is not known, or the numbers of a way are missing or wrong.
pub(crate) fn rope(b: &mut Builder<'_>, f: &Facts<'_>, style: RopeStyle) -> Result<RopeId, Error> {
    rope_by(b, f, style, Yarn::default())
}

/// Axes that pairs follow where places have time, height and width (M-RoPE, arXiv:2409.12191): in sections one after the
/// other, or in turns as far as the sections go. None where a file states no sections.
///
/// # Errors
/// When the sections are not those of all pairs.
pub(crate) fn axes(f: &Facts<'_>, in_turns: bool) -> Result<Vec<u8>, Error> {
    const SECTIONS: &str = "rope.dimension_sections";
    let (key, pairs) = (f.key(SECTIONS), f.rope_dims / 2);
    let Some(sections) = f.metadata.opt_u32s(&key)? else { return Ok(Vec::new()) };
    let sections: Vec<usize> = sections.into_iter().map(|n| n as usize).collect();
    let three = sections.len() >= 3 && sections[3..].iter().all(|&n| n == 0);
    if !three || sections.iter().sum::<usize>() != pairs {
        let (value, why) = (format!("{sections:?}"), "three sections must have all pairs of RoPE");
        return Err(Error::Implausible { key, value, why });
    }
    let axis = |pair: usize| match (in_turns, pair % 3) {
        (true, turn) if turn > 0 && pair < 3 * sections[turn] => turn,
        (true, _) => 0,
        (false, _) if pair < sections[0] => 0,
        (false, _) if pair < sections[0] + sections[1] => 1,
        (false, _) => 2,
    };
    Ok((0..pairs).map(|pair| axis(pair) as u8).collect())
}

/// What families vary in YaRN.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Yarn {
    /// The share of the paper's gain that attention gets.
    pub gain: f32,
    /// The share of it that is taken back, or given elsewhere.
    pub without: f32,
    /// Whether the ramp begins and ends with whole pairs.
    pub whole_pairs: bool,
}

impl Default for Yarn {
    fn default() -> Yarn {
        Yarn { gain: 1.0, without: 0.0, whole_pairs: true }
    }
}

/// The same, where YaRN is as `how` says.
///
/// # Errors
/// As [`rope`].
pub(crate) fn rope_by(
    b: &mut Builder<'_>,
    f: &Facts<'_>,
    style: RopeStyle,
    how: Yarn,
) -> Result<RopeId, Error> {
    let (pairs, theta) = (f.rope_dims / 2, f64::from(f.rope_theta));
    let freqs = b.values(FREQS, pairs)?.unwrap_or_else(|| vec![1.0; pairs]);
    let angle = |(i, by)| theta.powf(-2.0 * i as f64 / f.rope_dims as f64) / f64::from(by);
    let plain: Vec<f64> = freqs.into_iter().enumerate().map(angle).collect();
    let divided = |by: &[f32]| {
        plain.iter().zip(by).map(|(angle, by)| (angle / f64::from(*by)) as f32).collect()
    };

    let ty = f.metadata.opt_str(&f.key(TYPE))?;
    let gain = f.opt_f32("rope.scaling.attn_factor")?;
    let factor = match f.opt_f32(FACTOR)? {
        None => f.opt_f32("rope.scale_linear")?, // the key's name in old files
        some => some,
    };
    let rope = match (ty, b.has(LONG) || b.has(SHORT)) {
        (None | Some("longrope"), true) => {
            let original = original_context(f)?;
            let stretch = f.context as f64 / original as f64;
            let amplitude = match gain {
                Some(gain) => gain,
                None if stretch <= 1.0 => 1.0,
                None => (1.0 + stretch.ln() / (original as f64).ln()).sqrt() as f32,
            };
            let mut divisors = |name: &str| {
                let missing = || graph::Error::MissingTensor(name.to_owned());
                b.values(name, pairs)?.ok_or_else(missing)
            };
            let (short, long) = (divisors(SHORT)?, divisors(LONG)?);
            let rope = Rope::new(style, divided(&short));
            Rope { amplitude, long: Some((original, divided(&long))), ..rope }
        }
        (Some("longrope"), false) => {
            return Err(graph::Error::MissingTensor(LONG.to_owned()).into());
        }
        (None | Some("none" | "linear"), false) => {
            let factor = factor.filter(|_| ty != Some("none")).unwrap_or(1.0);
            let factor = stretch(f, factor)?;
            let rope = Rope::new(style, divided(&vec![factor; pairs]));
            Rope { amplitude: gain.unwrap_or(1.0), ..rope }
        }
        (Some("yarn"), false) => {
            let factor = stretch(f, f.metadata.f32(&f.key(FACTOR))?)?;
            let rope = yarn(f, f64::from(factor), &plain, (style, how))?;
            Rope { amplitude: rope.amplitude * gain.unwrap_or(1.0), ..rope }
        }
        (Some(other), _) => {
            let (key, value) = (f.key(TYPE), other.to_owned());
            return Err(Error::UnsupportedFeature { key, value });
        }
    };
    Ok(b.rope(rope))
}

/// The rotary embedding of layers with a sliding window, in families where they have their own: never
/// stretched, with a base of their own in the file, or else `theta`.
///
/// # Errors
/// When the base is no number.
pub(crate) fn local_rope(
    b: &mut Builder<'_>,
    f: &Facts<'_>,
    style: RopeStyle,
    theta: f32,
) -> Result<RopeId, Error> {
    let theta = f64::from(f.opt_f32("rope.freq_base_swa")?.unwrap_or(theta));
    let dims = f.opt_size("rope.dimension_count_swa")?.unwrap_or(f.rope_dims);
    let angle = |i| theta.powf(-2.0 * i as f64 / dims as f64) as f32;
    Ok(b.rope(Rope::new(style, (0..dims / 2).map(angle).collect())))
}

/// YaRN: pairs that turn often within the original context keep their angles, those that turn
/// seldom have them divided, with a ramp between.
fn yarn(
    f: &Facts<'_>,
    factor: f64,
    plain: &[f64],
    (style, how): (RopeStyle, Yarn),
) -> Result<Rope, Error> {
    const EXT: &str = "rope.scaling.yarn_ext_factor";
    let number = |name: &str| f.opt_f32(&format!("rope.scaling.yarn_{name}"));
    if let Some(value) = f.opt_f32(EXT)?.filter(|&ext| ext != 1.0) {
        return Err(Error::UnsupportedFeature { key: f.key(EXT), value: value.to_string() });
    }
    let (dims, theta) = (f.rope_dims as f64, f64::from(f.rope_theta));
    let original = original_context(f)? as f64;
    // The (fractional) pair that turns so many times within the original context.
    let pair = |turns: f32| {
        let radians = f64::from(turns) * std::f64::consts::TAU;
        dims * (original / radians).ln() / (2.0 * theta.ln())
    };
    let (fast, slow) = (number("beta_fast")?.unwrap_or(32.0), number("beta_slow")?.unwrap_or(1.0));
    let (first, last) = match how.whole_pairs {
        true => (pair(fast).floor(), pair(slow).ceil()),
        false => (pair(fast), pair(slow)),
    };
    let (first, last) = (first.max(0.0), last.min(dims - 1.0));
    let inv_freq = plain.iter().enumerate().map(|(i, freq)| {
        let slow = ((i as f64 - first) / (last - first).max(0.001)).clamp(0.0, 1.0);
        (freq * (1.0 - slow) + freq / factor * slow) as f32
    });
    let gain = yarn_gain(how.gain, factor) / yarn_gain(how.without, factor);
    let amplitude = number("attn_factor")?.unwrap_or(gain as f32);
    Ok(Rope { amplitude, ..Rope::new(style, inv_freq.collect()) })
}

/// The paper's gain for contexts stretched by `factor`, or a share of it.
pub(crate) fn yarn_gain(share: f32, factor: f64) -> f64 {
    if factor <= 1.0 { 1.0 } else { 1.0 + 0.1 * f64::from(share) * factor.ln() }
}

/// The context that the model was trained for before it was stretched.
pub(crate) fn original_context(f: &Facts<'_>) -> Result<usize, Error> {
    let key = f.key("rope.scaling.original_context_length");
    match f.metadata.opt_u32(&key)? {
        Some(tokens) if tokens < 2 => {
            let why = "angles are stretched from a context of at least two tokens";
            Err(Error::Implausible { key, value: tokens.to_string(), why })
        }
        tokens => Ok(tokens.map_or(f.context, |t| t as usize)),
    }
}

/// A factor by which a context is stretched.
fn stretch(f: &Facts<'_>, factor: f32) -> Result<f32, Error> {
    if factor.is_finite() && factor > 0.0 {
        return Ok(factor);
    }
    let (key, value) = (f.key(FACTOR), factor.to_string());
    Err(Error::Implausible { key, value, why: "it must be above zero" })
}
