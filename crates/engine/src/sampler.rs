//! Sampling: from a row of logits to a token.
//!
//! Order: penalties, temperature, top-k, top-p, min-p, draw. (Temperature comes before the cuts, as
//! in HF transformers and vLLM; llama.cpp applies it last.) The same seed, parameters and logits
//! give the same tokens.

use crate::error::Error;
use std::collections::HashMap;

/// What the sampler does.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplerParams {
    /// Divides the logits; 0 always takes the likeliest token.
    pub temperature: f32,
    /// Keeps this many likeliest tokens; 0 keeps all.
    pub top_k: usize,
    /// Keeps the likeliest tokens up to this total probability (Holtzman et al., 2020); 1 keeps all.
    pub top_p: f32,
    /// Keeps tokens of at least this share of the likeliest one's probability; 0 keeps all.
    pub min_p: f32,
    /// Divides positive and multiplies negative logits of tokens seen in prompt or answer (Keskar
    /// et al., 2019); 1 does nothing.
    pub repetition_penalty: f32,
    /// Subtracted from the logit of every token that the answer contains.
    pub presence_penalty: f32,
    /// Subtracted once per occurrence in the answer.
    pub frequency_penalty: f32,
    /// Seed of the random numbers.
    pub seed: u64,
}

impl Default for SamplerParams {
    fn default() -> SamplerParams {
        SamplerParams {
            temperature: 0.8,
            top_k: 40,
            top_p: 0.95,
            min_p: 0.05,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            seed: 0,
        }
    }
}

impl SamplerParams {
    /// Always the likeliest token.
    pub fn greedy() -> SamplerParams {
        SamplerParams { temperature: 0.0, ..SamplerParams::default() }
    }

    /// # Errors
    /// When a parameter is outside of its range.
    pub fn check(&self) -> Result<(), Error> {
        let rules = [
            ("temperature", self.temperature, self.temperature >= 0.0, "zero or more"),
            ("top_p", self.top_p, self.top_p > 0.0 && self.top_p <= 1.0, "above 0 and at most 1"),
            ("min_p", self.min_p, (0.0..=1.0).contains(&self.min_p), "from 0 to 1"),
            (
                "repetition_penalty",
                self.repetition_penalty,
                self.repetition_penalty > 0.0,
                "above zero",
            ),
            ("presence_penalty", self.presence_penalty, true, "a finite number"),
            ("frequency_penalty", self.frequency_penalty, true, "a finite number"),
        ];
        match rules.into_iter().find(|(_, value, fine, _)| !(*fine && value.is_finite())) {
            Some((name, value, _, need)) => Err(Error::BadSampler { name, value, need }),
            None => Ok(()),
        }
    }
}

#[derive(Copy, Clone, Debug, Default)]
struct Seen {
    prompt: bool,
    answer: u32,
}

/// Parameters, random numbers and the tokens seen so far.
#[derive(Clone, Debug)]
pub struct Sampler {
    params: SamplerParams,
    rng: fastrand::Rng,
    seen: HashMap<u32, Seen>,
    kept: Vec<(f32, u32)>, // candidates: (logit, then weight; token)
}

impl Sampler {
    /// # Errors
    /// When a parameter is outside of its range.
    pub fn new(params: SamplerParams) -> Result<Sampler, Error> {
        params.check()?;
        let rng = fastrand::Rng::with_seed(params.seed);
        Ok(Sampler { params, rng, seen: HashMap::new(), kept: Vec::new() })
    }

    /// Notes tokens of the prompt, for the repetition penalty.
    pub fn observe_prompt(&mut self, tokens: &[u32]) {
        for &t in tokens {
            self.seen.entry(t).or_default().prompt = true;
        }
    }

    /// Picks a token and notes it. `logits` is `[vocab]`, at least one element; NaN never wins.
    pub fn sample(&mut self, logits: &[f32]) -> u32 {
        let token = match self.params.temperature {
            0.0 => self.likeliest(logits),
            _ => self.draw(logits),
        };
        self.seen.entry(token).or_default().answer += 1;
        token
    }

    fn penalized(&self, token: u32, logit: f32) -> f32 {
        let Some(seen) = self.seen.get(&token) else { return logit };
        let p = &self.params;
        let repeated =
            if logit > 0.0 { logit / p.repetition_penalty } else { logit * p.repetition_penalty };
        match seen.answer {
            0 => repeated,
            n => repeated - p.presence_penalty - p.frequency_penalty * n as f32,
        }
    }

    fn has_penalties(&self) -> bool {
        let p = &self.params;
        (p.repetition_penalty, p.presence_penalty, p.frequency_penalty) != (1.0, 0.0, 0.0)
    }

    fn likeliest(&self, logits: &[f32]) -> u32 {
        let mut best = (0, f32::NEG_INFINITY);
        let penalties = self.has_penalties();
        for (token, &logit) in logits.iter().enumerate() {
            let logit = if penalties { self.penalized(token as u32, logit) } else { logit };
            if logit > best.1 {
                best = (token, logit);
            }
        }
        best.0 as u32
    }

    fn draw(&mut self, logits: &[f32]) -> u32 {
        let mut kept = std::mem::take(&mut self.kept);
        kept.clear();
        let scale = self.params.temperature.recip();
        let candidates = logits.iter().enumerate().filter(|(_, l)| !l.is_nan());
        if self.has_penalties() {
            kept.extend(candidates.map(|(t, &l)| (self.penalized(t as u32, l) * scale, t as u32)));
        } else {
            kept.extend(candidates.map(|(t, &l)| (l * scale, t as u32)));
        }
        let token = self.draw_from(&mut kept);
        self.kept = kept;
        token
    }

    fn draw_from(&mut self, kept: &mut Vec<(f32, u32)>) -> u32 {
        // Descending logits; equal ones in the order of ids, so that a cut is well defined.
        let order = |a: &(f32, u32), b: &(f32, u32)| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1));
        let p = &self.params;
        if p.top_k > 0 && p.top_k < kept.len() {
            kept.select_nth_unstable_by(p.top_k - 1, order);
            kept.truncate(p.top_k);
        }
        let Some(max) = kept.iter().map(|c| c.0).max_by(f32::total_cmp) else { return 0 };
        // `min_p` needs no order, and leaves little to sort.
        let floor =
            if p.min_p > 0.0 && p.top_p >= 1.0 { max + p.min_p.ln() } else { f32::NEG_INFINITY };
        kept.retain(|c| c.0 >= floor);
        kept.sort_unstable_by(order);
        let mut total = 0.0f64;
        for c in kept.iter_mut() {
            c.0 = if c.0 == max { 1.0 } else { (c.0 - max).exp() };
            total += f64::from(c.0);
        }
        let mut len = kept.len();
        if p.top_p < 1.0 {
            let limit = total * f64::from(p.top_p);
            let mut sum = 0.0;
            len = kept
                .iter()
                .position(|c| {
                    sum += f64::from(c.0);
                    sum >= limit
                })
                .map_or(len, |at| at + 1);
        }
        // Weights are relative to the likeliest, which is exactly what `min_p` compares with.
        len = kept[..len].iter().position(|c| c.0 < p.min_p).unwrap_or(len).max(1);
        let kept = &kept[..len];
        let sum: f64 = kept.iter().map(|c| f64::from(c.0)).sum();
        let mut at = self.rng.f64() * sum;
        let chosen = kept.iter().find(|c| {
            at -= f64::from(c.0);
            at < 0.0
        });
        chosen.unwrap_or(&kept[kept.len() - 1]).1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOGITS: [f32; 6] = [1.0, 3.0, 2.0, f32::NAN, 0.0, -1.0];

    fn params() -> SamplerParams {
        SamplerParams {
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            ..SamplerParams::default()
        }
    }

    fn histogram(params: SamplerParams, draws: u32) -> Vec<f64> {
        let mut sampler = Sampler::new(params).unwrap();
        let mut counts = vec![0.0; LOGITS.len()];
        for _ in 0..draws {
            counts[sampler.sample(&LOGITS) as usize] += 1.0 / f64::from(draws);
        }
        counts
    }

    #[test]
    fn greedy_takes_the_likeliest_and_lowest_id() {
        let mut s = Sampler::new(SamplerParams::greedy()).unwrap();
        assert_eq!(s.sample(&LOGITS), 1);
        assert_eq!(s.sample(&[5.0, 5.0]), 0);
        assert_eq!(s.sample(&[f32::NAN, f32::NEG_INFINITY]), 0);
    }

    #[test]
    fn draws_follow_the_softmax() {
        // Probabilities of e^1, e^3, e^2, e^0, e^-1 over their sum.
        let want = [0.0861, 0.6364, 0.2341, 0.0, 0.0317, 0.0117];
        for (got, want) in histogram(params(), 100_000).iter().zip(want) {
            // Five standard deviations of a proportion over 100,000 draws are at most 0.008.
            assert!((got - want).abs() < 0.008, "{got} against {want}");
        }
    }

    #[test]
    fn temperature_sharpens_before_the_cuts() {
        // At 0.5 the likeliest has 0.8647 of the total: top_p of 0.86 keeps it alone.
        let cold = SamplerParams { temperature: 0.5, top_p: 0.86, ..params() };
        assert_eq!(histogram(cold, 1000)[2], 0.0);
        let warm = SamplerParams { top_p: 0.86, ..params() };
        assert!(histogram(warm, 1000)[2] > 0.0);
    }

    #[test]
    fn each_cut_keeps_what_it_should() {
        let support = |p| histogram(p, 3000).iter().map(|&c| c > 0.0).collect::<Vec<_>>();
        assert_eq!(
            support(SamplerParams { top_k: 2, ..params() }),
            [false, true, true, false, false, false]
        );
        // 0.6364 is below 0.7, so the second is needed.
        assert_eq!(
            support(SamplerParams { top_p: 0.7, ..params() }),
            [false, true, true, false, false, false]
        );
        // e^-2 = 0.135 of the likeliest is kept, e^-3 is not.
        assert_eq!(
            support(SamplerParams { min_p: 0.13, ..params() }),
            [true, true, true, false, false, false]
        );
        assert_eq!(
            support(SamplerParams { min_p: 0.13, top_p: 0.99, ..params() }),
            [true, true, true, false, false, false]
        );
    }

    #[test]
    fn penalties_count_prompt_and_answer_as_documented() {
        let mut s = Sampler::new(SamplerParams {
            repetition_penalty: 2.0,
            presence_penalty: 0.25,
            frequency_penalty: 0.5,
            ..SamplerParams::greedy()
        })
        .unwrap();
        s.observe_prompt(&[1]);
        // 3 / 2 = 1.5 against 2: the token of the prompt loses.
        assert_eq!(s.sample(&[0.0, 3.0, 2.0]), 2);
        // 2 / 2 - 0.25 - 0.5 = 0.25 against 1.5.
        assert_eq!(s.sample(&[0.0, 3.0, 2.0]), 1);
        // Negative logits are multiplied: -1 * 2 - 0.75 against -2.
        assert_eq!(s.sample(&[-2.0, -1.0, -9.0]), 0);
    }

    #[test]
    fn seeds_repeat_and_differ() {
        let run = |seed| {
            let mut s = Sampler::new(SamplerParams { seed, ..params() }).unwrap();
            (0..50).map(|_| s.sample(&LOGITS)).collect::<Vec<_>>()
        };
        assert_eq!(run(7), run(7));
        assert_ne!(run(7), run(8));
    }

    #[test]
    fn bad_parameters_are_named() {
        for (params, name) in [
            (SamplerParams { temperature: -1.0, ..params() }, "temperature"),
            (SamplerParams { top_p: 0.0, ..params() }, "top_p"),
            (SamplerParams { min_p: 1.5, ..params() }, "min_p"),
            (SamplerParams { repetition_penalty: f32::NAN, ..params() }, "repetition_penalty"),
        ] {
            assert!(Sampler::new(params).unwrap_err().to_string().contains(name));
        }
    }
}
