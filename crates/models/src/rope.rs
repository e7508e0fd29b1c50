//! Rotary embeddings as GGUF metadata describe them: plain, and stretched to longer contexts.
//!
//! A file names the way in `rope.scaling.type`: `linear` divides all angles (position interpolation,
//! arXiv:2306.15595), `yarn` those of slow pairs, and raises attention (arXiv:2309.00071), `longrope`
//! divides each pair by a factor of its own, with two sets for short and for long contexts
//! (arXiv:2402.13753). Llama 3's way comes without a type, as divisors in `rope_freqs.weight`. So
//! does LongRoPE in files of Phi-3.

use crate::{Error, Hparams};
use gguf::Gguf;
use graph::{Rope, RopeStyle};

/// Divisors of the angles, one per pair.
const FREQS: &str = "rope_freqs.weight";
/// Those of LongRoPE for contexts that the model was first trained for, and for longer ones.
const SHORT: &str = "rope_factors_short.weight";
const LONG: &str = "rope_factors_long.weight";

/// Tensors that are read while the graph is built.
pub(crate) const TENSORS: [&str; 3] = [FREQS, SHORT, LONG];

/// The rotary embedding of a file.
///
/// # Errors
/// When it is stretched in a way that is not known, or the numbers of a way are missing or wrong.
pub(crate) fn rope(gguf: &Gguf<'_>, h: &Hparams, style: RopeStyle) -> Result<Rope, Error> {
    let m = gguf.metadata();
    let key = |k: &str| format!("{}.rope.{k}", h.arch);
    let (pairs, theta) = (h.rope_dims / 2, f64::from(h.rope_theta));
    let freqs = match gguf.tensor(FREQS) {
        Some(_) => divisors(gguf, FREQS, pairs)?,
        None => vec![1.0; pairs],
    };
    let angle = |(i, by)| theta.powf(-2.0 * i as f64 / h.rope_dims as f64) / by;
    let plain: Vec<f64> = freqs.into_iter().enumerate().map(angle).collect();
    let divided = |by: &[f64]| plain.iter().zip(by).map(|(f, by)| (f / by) as f32).collect();

    let ty = m.opt_str(&key("scaling.type"))?;
    let gain = m.opt_f32(&key("scaling.attn_factor"))?;
    let factor = match m.opt_f32(&key("scaling.factor"))? {
        None => m.opt_f32(&key("scale_linear"))?, // the key's name in old files
        some => some,
    };
    match (ty, gguf.tensor(LONG).or_else(|| gguf.tensor(SHORT))) {
        (None | Some("longrope"), Some(_)) => {
            let original = original_context(gguf, h)?;
            let stretch = h.context as f64 / original as f64;
            let amplitude = match gain {
                Some(gain) => gain,
                None if stretch <= 1.0 => 1.0,
                None => (1.0 + stretch.ln() / (original as f64).ln()).sqrt() as f32,
            };
            let [short, long] = [SHORT, LONG].map(|name| divisors(gguf, name, pairs));
            let rope = Rope::new(style, divided(&short?));
            Ok(Rope { amplitude, long: Some((original, divided(&long?))), ..rope })
        }
        (Some("longrope"), None) => Err(graph::Error::MissingTensor(LONG.to_owned()).into()),
        (None | Some("none" | "linear"), None) => {
            let factor = factor.filter(|_| ty != Some("none")).unwrap_or(1.0);
            let factor = stretch(&key("scaling.factor"), factor)?;
            let rope = Rope::new(style, divided(&vec![factor; pairs]));
            Ok(Rope { amplitude: gain.unwrap_or(1.0), ..rope })
        }
        (Some("yarn"), None) => {
            let factor = stretch(&key("scaling.factor"), m.f32(&key("scaling.factor"))?)?;
            let rope = yarn(gguf, h, factor, &plain, style)?;
            Ok(Rope { amplitude: rope.amplitude * gain.unwrap_or(1.0), ..rope })
        }
        (Some(other), _) => {
            Err(Error::UnsupportedFeature { key: key("scaling.type"), value: other.to_owned() })
        }
    }
}

/// The rotary embedding of layers with a sliding window, in families where they have their own: never
/// stretched, with a base of their own in the file, or else `theta`.
///
/// # Errors
/// When the base is no number.
pub(crate) fn local_rope(
    gguf: &Gguf<'_>,
    h: &Hparams,
    style: RopeStyle,
    theta: f32,
) -> Result<Rope, Error> {
    let key = format!("{}.rope.freq_base_swa", h.arch);
    let theta = f64::from(gguf.metadata().opt_f32(&key)?.unwrap_or(theta));
    let angle = |i| theta.powf(-2.0 * i as f64 / h.rope_dims as f64) as f32;
    Ok(Rope::new(style, (0..h.rope_dims / 2).map(angle).collect()))
}

/// YaRN: pairs that turn often within the original context keep their angles, those that turn
/// seldom have them divided, with a ramp between.
fn yarn(
    gguf: &Gguf<'_>,
    h: &Hparams,
    factor: f64,
    plain: &[f64],
    style: RopeStyle,
) -> Result<Rope, Error> {
    let m = gguf.metadata();
    let key = |k: &str| format!("{}.rope.scaling.{k}", h.arch);
    let refused = |name, value: f32| {
        Err(Error::UnsupportedFeature { key: key(name), value: value.to_string() })
    };
    match m.opt_f32(&key("yarn_ext_factor"))? {
        None | Some(1.0) => {}
        Some(value) => return refused("yarn_ext_factor", value),
    }
    let divisor = match m.opt_f32(&key("yarn_log_multiplier"))? {
        None | Some(0.0) => 0.0,
        Some(value) if h.arch == "mistral3" => f64::from(value),
        // Others mean other things by it.
        Some(value) => return refused("yarn_log_multiplier", value),
    };
    let (dims, theta) = (h.rope_dims as f64, f64::from(h.rope_theta));
    let original = original_context(gguf, h)? as f64;
    // The (fractional) pair that turns so many times within the original context.
    let pair = |turns: f32| {
        let radians = f64::from(turns) * std::f64::consts::TAU;
        dims * (original / radians).ln() / (2.0 * theta.ln())
    };
    let fast = m.opt_f32(&key("yarn_beta_fast"))?.unwrap_or(32.0);
    let slow = m.opt_f32(&key("yarn_beta_slow"))?.unwrap_or(1.0);
    let (first, last) = (pair(fast).floor().max(0.0), pair(slow).ceil().min(dims - 1.0));
    let inv_freq = plain.iter().enumerate().map(|(i, freq)| {
        let slow = ((i as f64 - first) / (last - first).max(0.001)).clamp(0.0, 1.0);
        (freq * (1.0 - slow) + freq / factor * slow) as f32
    });
    // The gain of the paper, some of which the model may have been trained without.
    let gain = |of: f64| if factor <= 1.0 { 1.0 } else { 1.0 + 0.1 * of * factor.ln() };
    let paper = gain(1.0) / gain(divisor);
    let amplitude = m.opt_f32(&key("yarn_attn_factor"))?.unwrap_or(paper as f32);
    Ok(Rope { amplitude, ..Rope::new(style, inv_freq.collect()) })
}

/// The context that the model was trained for before it was stretched.
pub(crate) fn original_context(gguf: &Gguf<'_>, h: &Hparams) -> Result<usize, Error> {
    let key = format!("{}.rope.scaling.original_context_length", h.arch);
    match gguf.metadata().opt_u32(&key)? {
        Some(tokens) if tokens < 2 => {
            let why = "angles are stretched from a context of at least two tokens";
            Err(Error::Implausible { key, value: tokens.to_string(), why })
        }
        tokens => Ok(tokens.map_or(h.context, |t| t as usize)),
    }
}

/// A factor by which a context is stretched.
fn stretch(key: &str, factor: f32) -> Result<f64, Error> {
    if factor.is_finite() && factor > 0.0 {
        return Ok(f64::from(factor));
    }
    let (key, value) = (key.to_owned(), factor.to_string());
    Err(Error::Implausible { key, value, why: "it must be above zero" })
}

/// Divisors of the angles in the tensor `name`, `[pairs]`.
fn divisors(gguf: &Gguf<'_>, name: &str, pairs: usize) -> Result<Vec<f64>, Error> {
    let missing = || graph::Error::MissingTensor(name.to_owned());
    let t = gguf.tensor(name).ok_or_else(missing)?;
    if t.elements() != pairs {
        return Err(Error::Implausible {
            key: name.to_owned(),
            value: t.elements().to_string(),
            why: "it must have one element per rotated pair",
        });
    }
    let mut divisors = vec![0.0; pairs];
    t.ty.dequantize(t.data, &mut divisors)?;
    Ok(divisors.into_iter().map(f64::from).collect())
}
