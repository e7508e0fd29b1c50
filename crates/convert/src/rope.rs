//! What a configuration says of positions, in whichever of its forms.
//!
//! `transformers` 5 writes `rope_parameters`, flat or with a part for each kind of layer. Older folders have `rope_scaling`
//! and keys beside it (`rope_theta`, `rotary_pct`, …). A key inside counts as read only when it is asked for.

use crate::config::{self, Config, Read};
use crate::error::Error;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// RoPE of all layers, or of those that see everything, with what layers with a window have otherwise.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rope {
    values: Map<String, Value>,
    /// Of layers with a window.
    local: Option<Map<String, Value>>,
    /// The name of what `values` are from, for messages.
    stated: &'static str,
    /// Keys of the configuration that some of the values are from.
    beside: BTreeMap<&'static str, Vec<&'static str>>,
    of_config: Read,
    read: Read,
}

/// Keys beside `rope_parameters` by what they are inside of it.
const BESIDE: [(&str, &[&str]); 2] = [
    (
        "rope_theta",
        &[
            "global_rope_theta",
            "rope_global_theta",
            "rope_theta_global",
            "rope_theta",
            "rotary_emb_base",
        ],
    ),
    ("partial_rotary_factor", &["partial_rotary_factor", "rope_pct", "rope_percent", "rotary_pct"]),
];

/// The base of layers with a window.
const LOCAL: [&str; 5] = [
    "local_rope_theta",
    "rope_local_theta",
    "rope_theta_local",
    "swa_rope_theta",
    "rope_local_base_freq",
];

/// The length that a model was trained for before it was stretched, which has precedence where it stands beside.
const ORIGINAL: &str = "original_max_position_embeddings";

/// Keys inside that are obeyed by each way to stretch; others mean nothing to it.
const KEYS: [(&str, &[&str]); 7] = [
    ("linear", &["factor"]),
    ("dynamic", &["alpha"]),
    ("xdrope", &["alpha"]),
    (
        "yarn",
        &[
            "factor",
            "attention_factor",
            "beta_fast",
            "beta_slow",
            "mscale",
            "mscale_all_dim",
            "truncate",
            ORIGINAL,
        ],
    ),
    ("longrope", &["factor", "attention_factor", "short_factor", "long_factor", ORIGINAL]),
    ("llama3", &["factor", "low_freq_factor", "high_freq_factor", ORIGINAL]),
    ("proportional", &["factor"]),
];

/// Keys inside that every way obeys.
const ALWAYS: [&str; 5] =
    ["rope_theta", "partial_rotary_factor", "mrope_section", "llama_4_scaling_beta", "rope_type"];

impl Rope {
    pub(crate) fn of(config: &Config) -> Rope {
        let object = |value: &Value| value.as_object().cloned().filter(|map| !map.is_empty());
        let part = |key: &'static str| Some((key, object(config.peek(key)?)?));
        // The older key is obeyed where both are there.
        let found = part("rope_scaling").or_else(|| part("rope_parameters"));
        let (stated, mut values) = found.unwrap_or_default();
        let mut local = None;
        if values.contains_key("full_attention") || values.contains_key("sliding_attention") {
            local = values.get("sliding_attention").and_then(object);
            values = values.get("full_attention").and_then(object).unwrap_or_default();
        }
        let mut beside = BTreeMap::new();
        for (key, keys) in BESIDE.into_iter().chain([(ORIGINAL, &[ORIGINAL][..])]) {
            let there: Vec<&str> =
                keys.iter().copied().filter(|k| config.peek(k).is_some()).collect();
            let first = there.first().and_then(|first| config.peek(first));
            if let Some(first) = first
                && (key == ORIGINAL || !values.contains_key(key))
            {
                values.insert(key.to_owned(), first.clone());
            }
            beside.insert(key, there);
        }
        let of_local = config.first(&LOCAL).map(|(_, theta)| theta.clone());
        if let Some(theta) = of_local {
            let local = local.get_or_insert_default();
            local.entry("rope_theta").or_insert(theta);
        }
        let of_config = config.reads().clone();
        let mut rope = Rope { values, local, stated, beside, of_config, read: Read::default() };
        if !rope.values.contains_key("rope_type")
            && let Some(ty) = rope.values.remove("type")
        {
            rope.values.insert("rope_type".to_owned(), ty);
        }
        for key in ["rope_scaling", "rope_parameters"] {
            if stated == key || config.peek(key) == config.peek(stated) {
                rope.of_config.note(key);
            }
        }
        rope
    }

    /// Keys that the way to stretch obeys and that nobody asked for, with their values.
    pub(crate) fn unread(&self) -> Vec<(String, &Value)> {
        let kind = match self.kind() {
            "su" => "longrope",
            kind => kind,
        };
        let own = KEYS.iter().find(|(known, _)| known.eq_ignore_ascii_case(kind));
        let obeyed =
            |key: &str| ALWAYS.contains(&key) || own.is_some_and(|(_, keys)| keys.contains(&key));
        let unread = self.values.iter().filter(|(key, value)| {
            !value.is_null() && obeyed(key) && !self.read.has(key) && !self.is_beside(key)
        });
        let of_local = self.local.iter().flatten();
        // Layers with a window have a base alone in files.
        let of_local = of_local.filter(|(key, value)| match key.as_str() {
            "rope_type" | "type" => *value != "default",
            "rope_theta" => !self.read.has("local"),
            "partial_rotary_factor" => value.as_f64() != Some(1.0),
            _ => false,
        });
        let named = |part: &str, (key, value)| (format!("{part}{key}"), value);
        let (stated, local) = (format!("{}.", self.stated), "layers with a window: ");
        unread
            .map(|pair| named(&stated, pair))
            .chain(of_local.map(|pair| named(local, pair)))
            .collect()
    }

    fn is_beside(&self, key: &str) -> bool {
        self.beside.get(key).is_some_and(|keys| !keys.is_empty())
    }

    fn get(&self, key: &str) -> Option<&Value> {
        self.read.note(key);
        for key in self.beside.get(key).into_iter().flatten() {
            self.of_config.note(key);
        }
        self.values.get(key).filter(|value| !value.is_null())
    }

    /// How contexts are stretched: `default` where nothing is said.
    pub(crate) fn kind(&self) -> &str {
        self.get("rope_type").and_then(Value::as_str).unwrap_or("default")
    }

    /// Another name for how contexts are stretched.
    pub(crate) fn set_kind(&mut self, kind: &str) {
        self.values.insert("rope_type".to_owned(), kind.into());
    }

    pub(crate) fn opt(&self, key: &str) -> Result<Option<f64>, Error> {
        self.get(key).map(|value| config::number(key, value)).transpose()
    }

    /// A switch, if it is there.
    pub(crate) fn flag(&self, key: &str) -> Option<bool> {
        self.get(key)?.as_bool()
    }

    pub(crate) fn number(&self, key: &str) -> Result<f64, Error> {
        self.opt(key)?.ok_or_else(|| config::missing(&[key]))
    }

    /// The length that the model was trained for before it was stretched, if it is stated.
    pub(crate) fn original(&self) -> Result<Option<usize>, Error> {
        self.get(ORIGINAL).map(|value| config::size(ORIGINAL, value)).transpose()
    }

    /// Base of the frequencies.
    pub(crate) fn theta(&self) -> Result<Option<f64>, Error> {
        self.opt("rope_theta")
    }

    /// The same of layers with a window, where it differs.
    pub(crate) fn local_theta(&self) -> Result<Option<f64>, Error> {
        self.read.note("local");
        let theta = self.local.as_ref().and_then(|local| local.get("rope_theta"));
        theta.map(|value| config::number("rope_theta", value)).transpose()
    }

    /// The part of a head that is turned.
    pub(crate) fn part(&self, default: f64) -> Result<f64, Error> {
        Ok(self.opt("partial_rotary_factor")?.unwrap_or(default))
    }

    pub(crate) fn numbers(&self, key: &str) -> Result<Option<Vec<f64>>, Error> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let list =
            value.as_array().ok_or_else(|| Error::config(format!("{key} should be a list")))?;
        list.iter().map(|value| config::number(key, value)).collect::<Result<_, _>>().map(Some)
    }

    /// What YaRN raises rotated queries and keys by, as `transformers` derives it.
    pub(crate) fn yarn_amplitude(&self, factor: f64) -> Result<f64, Error> {
        let stated = |key: &str| Ok::<_, Error>(self.opt(key)?.filter(|&gain| gain != 0.0));
        let (gain, all) = (stated("mscale")?, stated("mscale_all_dim")?);
        if let Some(amplitude) = self.opt("attention_factor")?.or(self.opt("attn_factor")?) {
            return Ok(amplitude);
        }
        Ok(match (gain, all) {
            (Some(gain), Some(all)) => yarn_gain(gain, factor) / yarn_gain(all, factor),
            _ => yarn_gain(1.0, factor),
        })
    }

    /// What Llama 3.1 divides its frequencies by: slow ones by the factor, fast ones by one, those between by
    /// something between.
    pub(crate) fn llama3_divisors(&self, dim: usize, original: usize) -> Result<Vec<f32>, Error> {
        let base = self.theta()?.unwrap_or(10000.0);
        let factor = self.opt("factor")?.unwrap_or(8.0);
        let low = self.opt("low_freq_factor")?.unwrap_or(1.0);
        let high = self.opt("high_freq_factor")?.unwrap_or(4.0);
        let context = original as f64;
        let divisor = |pair: usize| {
            // In single precision, as it is computed where models are made.
            let exponent = (2 * pair) as f32 / dim as f32;
            let frequency = 1.0 / (base.powf(f64::from(exponent)) as f32);
            // A number over one is its product with the other's reciprocal there.
            let wave = (1.0 / frequency) * std::f64::consts::TAU as f32;
            if f64::from(wave) < context / high {
                1.0
            } else if f64::from(wave) > context / low {
                factor as f32
            } else {
                let smooth = ((1.0 / wave) * context as f32 - low as f32) / (high - low) as f32;
                1.0 / ((1.0 - smooth) / factor as f32 + smooth)
            }
        };
        Ok((0..dim / 2).map(divisor).collect())
    }
}

/// The share of YaRN's gain for contexts that are stretched by a factor.
pub(crate) fn yarn_gain(share: f64, factor: f64) -> f64 {
    if factor <= 1.0 { 1.0 } else { 1.0 + 0.1 * share * factor.ln() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn rope(value: Value) -> Rope {
        Rope::of(&Config::new(value).unwrap())
    }

    #[test]
    fn old_and_new_forms_say_the_same() {
        for value in [
            json!({"rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 4.0}}),
            json!({"rope_parameters": {"rope_theta": 5e5, "rope_type": "linear", "factor": 4.0}}),
            json!({"rope_parameters": {"full_attention": {"rope_theta": 5e5, "rope_type": "linear", "factor": 4}}}),
        ] {
            let rope = rope(value);
            assert_eq!((rope.kind(), rope.theta().unwrap()), ("linear", Some(5e5)));
            assert_eq!(rope.number("factor").unwrap(), 4.0);
        }
        let gemma =
            rope(json!({"rope_theta": 1e6, "rope_local_base_freq": 1e4, "rope_scaling": null}));
        assert_eq!((gemma.kind(), gemma.local_theta().unwrap()), ("default", Some(1e4)));
        assert!(rope(json!({"rope_theta": "x"})).theta().is_err());
    }

    #[test]
    fn llama3_keeps_fast_pairs_and_stretches_slow_ones() {
        let rope = rope(
            json!({"rope_theta": 5e5, "rope_scaling": {"rope_type": "llama3", "factor": 8.0,
            "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}}),
        );
        let divisors = rope.llama3_divisors(128, 8192).unwrap();
        assert_eq!((divisors.len(), divisors[0], divisors[63]), (64, 1.0, 8.0));
        assert!(divisors.is_sorted() && divisors.iter().any(|d| *d > 1.0 && *d < 8.0));
    }
}
