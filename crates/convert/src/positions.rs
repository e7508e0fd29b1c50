//! What files say of rotary positions, from what configurations say of them: one place for all families.
//!
//! Files have a base, the number of elements that are turned, and a way to stretch: linear, YaRN, LongRoPE with its
//! divisors as tensors. Llama 3's way is a tensor of divisors. A stretch that files cannot express is refused.

use crate::array::Array;
use crate::config;
use crate::draft::Draft;
use crate::error::Error;
use crate::families::Extra;
use crate::rope::yarn_gain;

/// The base that readers of files take where none is stated.
const USUAL_BASE: f64 = 10000.0;
/// Divisors of Llama 3's way.
const DIVISORS: &str = "rope_freqs.weight";
const LONG: &str = "rope_factors_long.weight";
const SHORT: &str = "rope_factors_short.weight";

impl Draft<'_> {
    /// Base and stretch of RoPE.
    pub(crate) fn positions(&mut self) -> Result<(), Error> {
        let rope = self.rope.clone();
        let kind = rope.kind().to_owned();
        match &*kind {
            "linear" => {
                self.set("rope.scaling.type", "linear");
                self.set_number("rope.scaling.factor", rope.number("factor")?);
            }
            "yarn" => self.yarn()?,
            "su" | "longrope" => self.longrope()?,
            // Said otherwise: by a tensor, or by the family.
            "default" | "dynamic" | "proportional" | "xdrope" | "mrope" => {}
            other if other.eq_ignore_ascii_case("llama3") => {}
            other => {
                let what = format!("rope_type is {other:?}, which is not converted");
                return Err(Error::config(what));
            }
        }
        if let Some(sections) = rope.numbers("mrope_section")? {
            let mut sections: Vec<i32> = sections.iter().map(|&n| n as i32).collect();
            sections.resize(4, 0);
            self.set("rope.dimension_sections", sections);
        }
        if let Some(theta) = rope.theta()? {
            self.set_number("rope.freq_base", theta);
        } else if let Some(theta) = self.config.meant_number("rope_theta")?
            && theta != USUAL_BASE
        {
            self.set_number("rope.freq_base", theta);
        }
        if let Some(theta) = rope.local_theta()? {
            self.set_number("rope.freq_base_swa", theta);
        }
        Ok(())
    }

    /// The length that the model was trained for before it was stretched.
    fn original(&self) -> Result<usize, Error> {
        match self.rope.original()? {
            Some(original) => Ok(original),
            None => self.config.size(&["max_position_embeddings"]),
        }
    }

    fn yarn(&mut self) -> Result<(), Error> {
        let rope = self.rope.clone();
        let original = self.original()?;
        let factor = match rope.opt("factor")? {
            Some(factor) => factor,
            None => self.config.size(&["max_position_embeddings"])? as f64 / original as f64,
        };
        self.set("rope.scaling.type", "yarn");
        self.set_number("rope.scaling.factor", factor);
        self.set_size("rope.scaling.original_context_length", original);
        for (key, from) in [
            ("yarn_ext_factor", "extrapolation_factor"),
            ("yarn_attn_factor", "attn_factor"),
            ("yarn_attn_factor", "attention_factor"),
            ("yarn_beta_fast", "beta_fast"),
            ("yarn_beta_slow", "beta_slow"),
        ] {
            if let Some(number) = rope.opt(from)? {
                self.set_number(&format!("rope.scaling.{key}"), number);
            }
        }
        // What readers derive from the factor, by architecture.
        let share = rope.opt("mscale_all_dim")?.unwrap_or(0.0);
        let derived = match self.arch {
            "deepseek2" | "mistral4" => 1.0,
            "mistral3" => yarn_gain(1.0, factor) / yarn_gain(share, factor),
            _ => yarn_gain(1.0, factor),
        };
        let amplitude = rope.yarn_amplitude(factor)?;
        if (amplitude - derived).abs() > 1e-6 * derived {
            self.set_number("rope.scaling.yarn_attn_factor", amplitude);
        }
        // Ramps of GPT-OSS alone may begin and end between pairs, in files too.
        let truncates = rope.flag("truncate").unwrap_or(true);
        if truncates == (self.arch == "gpt-oss") {
            let what =
                format!("truncate of YaRN is {truncates}, which no file of {} can say", self.arch);
            return Err(Error::config(what));
        }
        Ok(())
    }

    fn longrope(&mut self) -> Result<(), Error> {
        self.set("rope.scaling.type", "longrope");
        let context = self.config.size(&["max_position_embeddings"])?;
        let original = self.original()?;
        if original != context {
            self.set_size("rope.scaling.original_context_length", original);
        }
        let derived = long_amplitude(context as f64 / original as f64, original);
        let stated = match self.rope.opt("factor")? {
            Some(factor) => long_amplitude(factor, original),
            None => derived,
        };
        let amplitude = self.rope.opt("attention_factor")?.unwrap_or(stated);
        if (amplitude - derived).abs() > 1e-6 * derived {
            self.set_number("rope.scaling.attn_factor", amplitude);
        }
        Ok(())
    }

    /// The elements of a head that are turned: those that are stated, or all.
    fn turned_dims(&self) -> Result<usize, Error> {
        let stated = ["rope.dimension_count", "attention.key_length"];
        match stated.iter().find_map(|key| self.size(key)) {
            Some(dims) => Ok(dims),
            None => self.config.head_dim(),
        }
    }

    /// Tensors by which angles are divided, where the configuration states such.
    pub(crate) fn divisors(&self) -> Result<Extra, Error> {
        match self.rope.kind() {
            "su" | "longrope" => self.long_and_short(),
            kind if kind.eq_ignore_ascii_case("llama3") => {
                let original = self.original()?;
                let divisors = self.rope.llama3_divisors(self.turned_dims()?, original)?;
                Ok(vec![(DIVISORS, Array::of_values(divisors))])
            }
            _ => Ok(Vec::new()),
        }
    }

    /// LongRoPE's divisors.
    fn long_and_short(&self) -> Result<Extra, Error> {
        let dim = self.turned_dims()?;
        let of = |key: &str| self.rope.numbers(key)?.ok_or_else(|| config::missing(&[key]));
        let (long, short) = (of("long_factor")?, of("short_factor")?);
        if long.len() != short.len() || long.len() != dim / 2 {
            return Err(Error::config(format!(
                "long_factor and short_factor should have {} numbers, and have {} and {}",
                dim / 2,
                long.len(),
                short.len()
            )));
        }
        let array = |list: Vec<f64>| Array::of_values(list.into_iter().map(|x| x as f32).collect());
        Ok(vec![(LONG, array(long)), (SHORT, array(short))])
    }
}

/// What LongRoPE raises rotated queries and keys by, for contexts that are stretched by a factor.
pub(crate) fn long_amplitude(factor: f64, original: usize) -> f64 {
    if factor <= 1.0 { 1.0 } else { (1.0 + factor.ln() / (original as f64).ln()).sqrt() }
}
