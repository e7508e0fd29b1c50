//! What a configuration says of positions, in whichever of its forms.

use crate::config::{self, Config};
use crate::error::Error;
use serde_json::{Map, Value};

/// RoPE of all layers, or of those that see everything, with what layers with a window have otherwise.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rope {
    values: Map<String, Value>,
    /// Of layers with a window.
    local: Option<Map<String, Value>>,
}

impl Rope {
    pub(crate) fn of(config: &Config) -> Rope {
        let object = |value: &Value| value.as_object().cloned();
        let stated = config.first(&["rope_parameters", "rope_scaling"]);
        let mut values = stated.and_then(|(_, value)| object(value)).unwrap_or_default();
        if let Some(full) = values.get("full_attention").and_then(object) {
            let local = values.get("sliding_attention").and_then(object);
            let mut rope = Rope { values: full, local };
            rope.name_type();
            return rope;
        }
        let mut or = |key: &str, keys: &[&str]| {
            if !values.contains_key(key)
                && let Some((_, value)) = config.first(keys)
            {
                values.insert(key.to_owned(), value.clone());
            }
        };
        or(
            "rope_theta",
            &[
                "global_rope_theta",
                "rope_global_theta",
                "rope_theta_global",
                "rope_theta",
                "rotary_emb_base",
            ],
        );
        or("partial_rotary_factor", &["partial_rotary_factor", "rope_pct", "rope_percent"]);
        or("original_max_position_embeddings", &["original_max_position_embeddings"]);
        let theta = config.first(&[
            "local_rope_theta",
            "rope_local_theta",
            "rope_theta_local",
            "swa_rope_theta",
            "rope_local_base_freq",
        ]);
        let local =
            theta.map(|(_, theta)| Map::from_iter([("rope_theta".to_owned(), theta.clone())]));
        let mut rope = Rope { values, local };
        rope.name_type();
        rope
    }

    fn name_type(&mut self) {
        if !self.values.contains_key("rope_type")
            && let Some(ty) = self.values.get("type").cloned()
        {
            self.values.insert("rope_type".to_owned(), ty);
        }
    }

    fn get(&self, key: &str) -> Option<&Value> {
        self.values.get(key).filter(|value| !value.is_null())
    }

    /// How contexts are stretched: `default` where nothing is said.
    pub(crate) fn kind(&self) -> &str {
        self.get("rope_type").and_then(Value::as_str).unwrap_or("default")
    }

    pub(crate) fn opt(&self, key: &str) -> Result<Option<f64>, Error> {
        self.get(key).map(|value| config::number(key, value)).transpose()
    }

    pub(crate) fn number(&self, key: &str) -> Result<f64, Error> {
        self.opt(key)?.ok_or_else(|| config::missing(&[key]))
    }

    pub(crate) fn size(&self, key: &str) -> Result<usize, Error> {
        let value = self.get(key).ok_or_else(|| config::missing(&[key]))?;
        config::size(key, value)
    }

    /// Base of the frequencies.
    pub(crate) fn theta(&self) -> Result<Option<f64>, Error> {
        self.opt("rope_theta")
    }

    /// The same of layers with a window, where it differs.
    pub(crate) fn local_theta(&self) -> Result<Option<f64>, Error> {
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

    /// What Llama 3.1 divides its frequencies by, if it stretches so: slow ones by the factor, fast ones by
    /// one, those between by something between.
    pub(crate) fn llama3_divisors(&self, dim: usize) -> Result<Option<Vec<f32>>, Error> {
        if !self.kind().eq_ignore_ascii_case("llama3") {
            return Ok(None);
        }
        let base = self.theta()?.unwrap_or(10000.0);
        let factor = self.opt("factor")?.unwrap_or(8.0);
        let low = self.opt("low_freq_factor")?.unwrap_or(1.0);
        let high = self.opt("high_freq_factor")?.unwrap_or(4.0);
        let context = self.opt("original_max_position_embeddings")?.unwrap_or(8192.0);
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
        Ok(Some((0..dim / 2).map(divisor).collect()))
    }
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
        let divisors = rope.llama3_divisors(128).unwrap().unwrap();
        assert_eq!((divisors.len(), divisors[0], divisors[63]), (64, 1.0, 8.0));
        assert!(divisors.is_sorted() && divisors.iter().any(|d| *d > 1.0 && *d < 8.0));
    }
}
