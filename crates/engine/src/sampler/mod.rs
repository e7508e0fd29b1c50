//! Sampling: from a row of logits to a token.
//!
//! Order: penalties, temperature, top-k, top-p, min-p, draw. (Temperature comes before the cuts, as
//! in HF transformers and vLLM; llama.cpp applies it last.) The same seed, parameters and logits
//! give the same tokens.

mod likely;
#[cfg(test)]
mod tests;

use crate::error::Error;
use kernels::{Curve, Kernels};
use likely::{Candidate, Room, draw, greatest};
use std::collections::{HashMap, HashSet, VecDeque};

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
    /// Takes the repetition penalty to be on so many last tokens of prompt and answer together; `None`: on all.
    pub repetition_window: Option<usize>,
    /// Subtracted from the logit of every token that the answer contains.
    pub presence_penalty: f32,
    /// Subtracted once per occurrence in the answer.
    pub frequency_penalty: f32,
    /// Seed of the random numbers.
    pub seed: u64,
    /// Added to the logits of these tokens, after the penalties; of two for a token the later counts.
    pub logit_bias: Vec<(u32, f32)>,
}

impl Default for SamplerParams {
    fn default() -> SamplerParams {
        SamplerParams {
            temperature: 0.8,
            top_k: 40,
            top_p: 0.95,
            min_p: 0.05,
            repetition_penalty: 1.0,
            repetition_window: None,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            seed: 0,
            logit_bias: Vec::new(),
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
        // Minus infinity bars a token.
        let bias = |&(_, bias): &(u32, f32)| !bias.is_finite() && bias != f32::NEG_INFINITY;
        if let Some(&(_, value)) = self.logit_bias.iter().find(|b| bias(b)) {
            return Err(Error::BadSampler { name: "logit_bias", value, need: "finite, or -inf" });
        }
        match rules.into_iter().find(|(_, value, fine, _)| !(*fine && value.is_finite())) {
            Some((name, value, _, need)) => Err(Error::BadSampler { name, value, need }),
            None => Ok(()),
        }
    }
}

/// How likely a token was in the model's own distribution, before anything that the sampler does.
#[derive(Clone, Debug, PartialEq)]
pub struct Logprobs {
    /// The token.
    pub token: u32,
    /// Natural logarithm of its probability.
    pub chosen: f32,
    /// The likeliest tokens and theirs, in descending order.
    pub top: Vec<(u32, f32)>,
}

#[derive(Copy, Clone, Debug, Default)]
struct Seen {
    prompt: bool,
    answer: u32,
}

impl Logprobs {
    /// Of `token` by these logits, `[vocab]`, and of the `top` likeliest.
    pub(crate) fn of(kernels: &Kernels, logits: &[f32], token: u32, top: usize) -> Logprobs {
        Room::with(|room| {
            let max = greatest(logits);
            let sum = room.weigh(kernels, logits, Curve { max, scale: 1.0 });
            let total = f64::from(max) + sum.ln();
            let log = |logit: f32| (f64::from(logit) - total) as f32;
            let best: &[Candidate] = if top > 0 { room.best(logits, top) } else { &[] };
            let top = best.iter().map(|&(logit, token)| (token, log(logit))).collect();
            let chosen = logits.get(token as usize).map_or(f32::NAN, |&l| log(l));
            Logprobs { token, chosen, top }
        })
    }
}

/// Parameters, random numbers and the tokens seen so far.
#[derive(Clone, Debug)]
pub struct Sampler {
    params: SamplerParams,
    rng: fastrand::Rng,
    seen: HashMap<u32, Seen>,
    /// The last tokens, where only these are penalised.
    recent: VecDeque<u32>,
    bias: HashMap<u32, f32>,
    kernels: &'static Kernels,
}

impl Sampler {
    /// # Errors
    /// When a parameter is outside of its range, or the kernels that were asked for do not exist here.
    pub fn new(params: SamplerParams) -> Result<Sampler, Error> {
        params.check()?;
        let rng = fastrand::Rng::with_seed(params.seed);
        let bias = params.logit_bias.iter().copied().collect();
        let (seen, recent) = (HashMap::new(), VecDeque::new());
        Ok(Sampler { params, rng, seen, recent, bias, kernels: Kernels::detect()? })
    }

    /// Notes tokens of the prompt, for the repetition penalty.
    pub fn observe_prompt(&mut self, tokens: &[u32]) {
        for &t in tokens {
            self.seen.entry(t).or_default().prompt = true;
            self.note(t);
        }
    }

    /// Keeps a token among the last ones, if those are wanted.
    fn note(&mut self, token: u32) {
        let Some(window) = self.params.repetition_window else { return };
        self.recent.push_back(token);
        if self.recent.len() > window {
            self.recent.pop_front();
        }
    }

    /// Picks a token and notes it. `logits` is `[vocab]`, at least one element; NaN never wins.
    pub fn sample(&mut self, logits: &[f32]) -> u32 {
        self.sample_among(logits, None).unwrap_or(0)
    }

    /// Picks one of the tokens in `mask` (token `t` is bit `t % 32` of word `t / 32`) and notes it;
    /// `None` if there is none.
    pub fn sample_among(&mut self, logits: &[f32], mask: Option<&[u32]>) -> Option<u32> {
        let token = Room::with(|room| {
            if mask.is_none() && self.is_plain() {
                return self.pick(room, logits);
            }
            let mut row = std::mem::take(&mut room.row);
            row.clear();
            row.extend_from_slice(logits);
            self.adjust(&mut row, mask);
            let token = self.pick(room, &row);
            room.row = row;
            token
        });
        // Whatever the logits are, something allowed is better than nothing.
        let token = token.or_else(|| (0..logits.len() as u32).find(|&t| is_in(mask, t)))?;
        self.seen.entry(token).or_default().answer += 1;
        self.note(token);
        Some(token)
    }

    /// How likely `token` was by these logits, `[vocab]`, and the `top` likeliest.
    pub(crate) fn logprobs(&self, logits: &[f32], token: u32, top: usize) -> Logprobs {
        Logprobs::of(self.kernels, logits, token, top)
    }

    /// Whether logits count as they are.
    fn is_plain(&self) -> bool {
        let p = &self.params;
        let penalties = (p.repetition_penalty, p.presence_penalty, p.frequency_penalty);
        penalties == (1.0, 0.0, 0.0) && self.bias.is_empty()
    }

    /// Applies penalties, bias and mask.
    fn adjust(&self, row: &mut [f32], mask: Option<&[u32]>) {
        let p = &self.params;
        let recent: Option<HashSet<u32>> =
            p.repetition_window.map(|_| self.recent.iter().copied().collect());
        for (&token, seen) in &self.seen {
            let Some(logit) = row.get_mut(token as usize) else { continue };
            if recent.as_ref().is_none_or(|recent| recent.contains(&token)) {
                *logit = match *logit > 0.0 {
                    true => *logit / p.repetition_penalty,
                    false => *logit * p.repetition_penalty,
                };
            }
            if seen.answer > 0 {
                *logit -= p.presence_penalty + p.frequency_penalty * seen.answer as f32;
            }
        }
        for (&token, bias) in &self.bias {
            row.get_mut(token as usize).into_iter().for_each(|logit| *logit += bias);
        }
        for (word, row) in mask.unwrap_or_default().iter().zip(row.chunks_mut(32)) {
            match *word {
                u32::MAX => {}
                0 => row.fill(f32::NAN),
                word => {
                    let barred = row.iter_mut().enumerate().filter(|(bit, _)| word >> bit & 1 == 0);
                    barred.for_each(|(_, logit)| *logit = f32::NAN);
                }
            }
        }
    }

    /// Picks a token; `None` if all logits are NaN or minus infinity.
    fn pick(&mut self, room: &mut Room, logits: &[f32]) -> Option<u32> {
        let max = greatest(logits);
        if max == f32::NEG_INFINITY {
            return None;
        }
        let scale = self.params.temperature.recip();
        // An infinite logit is certain.
        if scale.is_infinite() || max == f32::INFINITY {
            return logits.iter().position(|l| *l == max).map(|token| token as u32);
        }
        let &SamplerParams { top_k, top_p, min_p, .. } = &self.params;
        let weigh = |kept: &mut Vec<Candidate>| {
            kept.iter_mut().for_each(|c| c.0 = (c.0 - max) * scale);
            let weight = |c: &mut Candidate| c.0 = if c.0 == 0.0 { 1.0 } else { c.0.exp() };
            kept.iter_mut().for_each(weight);
        };
        let kept = if top_k > 0 && top_k < logits.len() {
            let kept = room.best(logits, top_k);
            weigh(kept);
            cut(kept, top_p);
            kept
        } else if top_p >= 1.0 && min_p > 0.0 {
            let kept = room.above(logits, max + min_p.ln() / scale);
            weigh(kept);
            kept
        } else {
            let curve = Curve { max, scale };
            if top_p >= 1.0 {
                let sum = room.weigh(self.kernels, logits, curve);
                return room.draw(self.rng.f64() * sum);
            }
            let sum = room.nucleus(self.kernels, logits, curve, top_p, min_p);
            return room.draw_kept(logits, self.rng.f64() * sum);
        };
        // Weights are relative to the likeliest, which is exactly what `min_p` compares with.
        kept.retain(|c| c.0 >= min_p);
        let sum: f64 = kept.iter().map(|c| f64::from(c.0)).sum();
        draw(kept.iter().copied(), self.rng.f64() * sum)
    }
}

/// Keeps so many of the first that their weights reach `share` of the sum.
fn cut(kept: &mut Vec<Candidate>, share: f32) {
    if share >= 1.0 {
        return;
    }
    let limit = kept.iter().map(|c| f64::from(c.0)).sum::<f64>() * f64::from(share);
    let mut sum = 0.0;
    let reached = kept.iter().position(|c| {
        sum += f64::from(c.0);
        sum >= limit
    });
    kept.truncate(reached.map_or(kept.len(), |at| at + 1));
}

/// Whether a token is in a mask; all are if there is none.
fn is_in(mask: Option<&[u32]>, token: u32) -> bool {
    let word = |mask: &[u32]| mask.get(token as usize / 32).copied().unwrap_or(0);
    mask.is_none_or(|mask| word(mask) >> (token % 32) & 1 == 1)
}
