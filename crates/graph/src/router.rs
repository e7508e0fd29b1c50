//! Routing: which experts a token goes to, and how much of each.
//!
//! A router gives every expert a score. Families differ in what a score becomes, in what is added for the
//! choice alone, and in what the chosen ones' weights are divided by. [`Router`] states that, and
//! [`Router::choose`] is all of it, for one token. Every node computes the choice for itself from the same
//! scores, so nothing is sent.
//!
//! Sources: Shazeer et al. 2017 (top-k gating); Mixtral (arXiv:2401.04088), softmax over the chosen;
//! DeepSeek-V2 (arXiv:2405.04434), groups; DeepSeek-V3 (arXiv:2412.19437), sigmoid and a bias for the
//! choice.

use crate::error::Error;
use crate::weight::VectorId;

/// How tokens choose experts.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Router {
    /// Experts.
    pub experts: usize,
    /// Experts that a token goes to.
    pub chosen: usize,
    /// What scores become.
    pub gate: Gate,
    /// Added to what scores become, `[experts]`, for the choice alone.
    pub bias: Option<VectorId>,
    /// Only experts of some groups may be chosen.
    pub groups: Option<Groups>,
    /// Weights are divided by their sum.
    pub normalised: bool,
    /// Factor on weights.
    pub scale: f32,
}

/// What a router's score becomes.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Gate {
    /// Softmax over all experts.
    Softmax,
    /// Softmax over those that are chosen, by their scores.
    ChosenSoftmax,
    /// `1 / (1 + e^-s)`.
    Sigmoid,
    /// `sqrt(ln(1 + e^s))`.
    SqrtSoftplus,
    /// Experts are chosen one after the other, each with its share of a softmax over those that are left and
    /// as good, but for two hundredths (SparseMixer, arXiv:2409.12136).
    SparseMixer,
}

/// How far below the best, relative to the larger of both, an expert's score counts for [`Gate::SparseMixer`].
const MIXED: f32 = 0.02;

/// Experts in groups of equal size, numbered one after the other.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Groups {
    /// Groups.
    pub count: usize,
    /// Groups whose experts may be chosen.
    pub used: usize,
    /// What groups are ranked by.
    pub by: GroupScore,
}

/// The score of a group.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum GroupScore {
    /// That of its best expert (DeepSeek-V2).
    Best,
    /// The sum of its two best (DeepSeek-V3).
    TwoBest,
}

/// Most experts that a token goes to.
pub const MOST_CHOSEN: usize = 32;

impl Router {
    /// Softmax over all experts, whose weights stay as they are.
    pub fn softmax(experts: usize, chosen: usize) -> Router {
        let (bias, groups) = (None, None);
        let gate = Gate::Softmax;
        Router { experts, chosen, gate, bias, groups, normalised: false, scale: 1.0 }
    }

    /// Whether its numbers fit together.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let bad = |what, value, need| Err(Error::BadDimension { what, value, need });
        if self.experts == 0 {
            return bad("expert_count", 0, "at least 1");
        }
        if self.chosen == 0 || self.chosen > self.experts.min(MOST_CHOSEN) {
            return bad("expert_used_count", self.chosen, "from 1 to expert_count, and at most 32");
        }
        let Some(Groups { count, used, .. }) = self.groups else { return Ok(()) };
        if count == 0 || !self.experts.is_multiple_of(count) || count > self.experts / 2 {
            return bad(
                "expert_group_count",
                count,
                "a divisor of expert_count, for groups of two or more",
            );
        }
        if used == 0 || used > count.min(MOST_CHOSEN) || used * (self.experts / count) < self.chosen
        {
            let need = "at most expert_group_count, with enough experts for expert_used_count";
            return bad("expert_group_used_count", used, need);
        }
        Ok(())
    }

    /// The experts of a token, ascending, and their weights. `scores` are overwritten.
    ///
    /// Of equal experts the first is chosen.
    ///
    /// # Panics
    /// When lengths are not those of the router, or more than [`MOST_CHOSEN`] experts are chosen.
    pub fn choose(&self, scores: &mut [f32], bias: Option<&[f32]>, chosen: &mut [(u32, f32)]) {
        assert_eq!((scores.len(), chosen.len()), (self.experts, self.chosen), "a router's lengths");
        match self.gate {
            Gate::Softmax => softmax(scores),
            Gate::ChosenSoftmax | Gate::SparseMixer => {}
            Gate::Sigmoid => scores.iter_mut().for_each(|s| *s = 1.0 / (1.0 + (-*s).exp())),
            // ln(1 + e^s) without overflow.
            Gate::SqrtSoftplus => scores.iter_mut().for_each(|s| {
                *s = (s.max(0.0) + (-s.abs()).exp().ln_1p()).sqrt();
            }),
        }
        let rank = |e: usize| bias.map_or(scores[e], |bias| scores[e] + bias[e]);
        let mut best = [(f32::NEG_INFINITY, 0); MOST_CHOSEN];
        let best = &mut best[..self.chosen];
        match self.groups {
            None => top(0..self.experts, rank, best),
            Some(groups) => {
                let size = self.experts / groups.count;
                let of_group = |group: usize| {
                    let mut two = [(f32::NEG_INFINITY, 0); 2];
                    top(group * size..(group + 1) * size, rank, &mut two);
                    match groups.by {
                        GroupScore::Best => two[0].0,
                        GroupScore::TwoBest => two[0].0 + two[1].0,
                    }
                };
                let mut used = [(f32::NEG_INFINITY, 0); MOST_CHOSEN];
                let used = &mut used[..groups.used];
                top(0..groups.count, of_group, used);
                let all = used.iter().flat_map(|(_, group)| group * size..(group + 1) * size);
                top(all, rank, best);
            }
        }
        for (at, (to, (_, expert))) in chosen.iter_mut().zip(&*best).enumerate() {
            let weight = match self.gate {
                Gate::SparseMixer => share_of_next(scores, &best[..at], *expert),
                _ => scores[*expert],
            };
            *to = (*expert as u32, weight);
        }
        chosen.sort_unstable_by_key(|(expert, _)| *expert);
        let mut weights = [0.0; MOST_CHOSEN];
        let weights = &mut weights[..self.chosen];
        for (weight, (_, own)) in weights.iter_mut().zip(&*chosen) {
            *weight = *own;
        }
        if self.gate == Gate::ChosenSoftmax {
            softmax(weights);
        }
        let sum: f32 = weights.iter().sum();
        for ((_, own), weight) in chosen.iter_mut().zip(weights) {
            *own = self.scale * if self.normalised { *weight / sum } else { *weight };
        }
    }
}

/// The largest of `all` by `rank`, descending; the first of equal ones.
fn top(all: impl Iterator<Item = usize>, rank: impl Fn(usize) -> f32, best: &mut [(f32, usize)]) {
    let mut known = 0;
    for at in all {
        let new = rank(at);
        let before = |own: &(f32, usize)| own.0 > new || own.0 == new && own.1 < at;
        let place = best[..known].iter().rposition(before).map_or(0, |last| last + 1);
        if place < best.len() {
            known = (known + 1).min(best.len());
            best[place..known].rotate_right(1);
            best[place] = (new, at);
        }
    }
}

/// The share of `next`, the best but for `gone`, in a softmax over those that are as good or nearly.
fn share_of_next(scores: &[f32], gone: &[(f32, usize)], next: usize) -> f32 {
    let most = scores[next];
    let counts = |(e, s): &(usize, &f32)| {
        gone.iter().all(|(_, other)| other != e) && (most - **s) / s.abs().max(most) <= MIXED
    };
    let sum: f32 = scores.iter().enumerate().filter(counts).map(|(_, s)| (*s - most).exp()).sum();
    1.0 / sum
}

/// `e^x / Σ e^x`.
fn softmax(x: &mut [f32]) {
    let most = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    x.iter_mut().for_each(|x| *x = (*x - most).exp());
    let sum: f32 = x.iter().sum();
    x.iter_mut().for_each(|x| *x /= sum);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn router(gate: Gate) -> Router {
        Router { gate, ..Router::softmax(8, 2) }
    }

    const SCORES: [f32; 8] = [0.5, -1.0, 2.0, 0.0, 1.0, -3.0, 1.5, 0.25];

    fn choose(router: &Router, bias: Option<&[f32]>) -> (Vec<u32>, Vec<f32>) {
        let mut chosen = vec![(0, 0.0); router.chosen];
        router.choose(&mut SCORES.clone(), bias, &mut chosen);
        chosen.into_iter().unzip()
    }

    fn near(got: &[f32], want: &[f64]) {
        let close = |(a, b): (&f32, &f64)| (f64::from(*a) - b).abs() < 1e-6;
        assert!(
            got.len() == want.len() && got.iter().zip(want).all(close),
            "{got:?}, not {want:?}"
        );
    }

    #[test]
    fn softmax_is_over_all_or_over_the_chosen() {
        let all: f64 = SCORES.iter().map(|&s| f64::from(s).exp()).sum();
        let (two, one_and_a_half) = (2f64.exp(), 1.5f64.exp());
        let (experts, weights) = choose(&router(Gate::Softmax), None);
        assert_eq!(experts, [2, 6]);
        near(&weights, &[two / all, one_and_a_half / all]);
        let chosen = [two / (two + one_and_a_half), one_and_a_half / (two + one_and_a_half)];
        near(&choose(&router(Gate::ChosenSoftmax), None).1, &chosen);
        // Divided by their sum, it is the same.
        let normalised = Router { normalised: true, ..router(Gate::Softmax) };
        near(&choose(&normalised, None).1, &chosen);
    }

    #[test]
    fn a_bias_changes_the_choice_and_not_the_weights() {
        let mut bias = [0.0; 8];
        bias[5] = 1.0;
        let (experts, weights) = choose(&router(Gate::Sigmoid), Some(&bias));
        assert_eq!(experts, [2, 5]);
        let sigmoid = |s: f64| 1.0 / (1.0 + (-s).exp());
        near(&weights, &[sigmoid(2.0), sigmoid(-3.0)]);
        let scaled = Router { normalised: true, scale: 2.5, ..router(Gate::Sigmoid) };
        let sum = sigmoid(2.0) + sigmoid(-3.0);
        let want = [2.5 * sigmoid(2.0) / sum, 2.5 * sigmoid(-3.0) / sum];
        near(&choose(&scaled, Some(&bias)).1, &want);
        let softplus = |s: f64| s.exp().ln_1p().sqrt();
        near(&choose(&router(Gate::SqrtSoftplus), None).1, &[softplus(2.0), softplus(1.5)]);
    }

    #[test]
    fn nearly_equal_experts_share_with_the_next() {
        let router = router(Gate::SparseMixer);
        let mut chosen = vec![(0, 0.0); 2];
        // 1.99 is within two hundredths of 2, 1.9 is not.
        router.choose(&mut [0.5, 1.99, 2.0, 1.9, 0.0, -2.0, 1.0, 0.1], None, &mut chosen);
        let share = 1.0 / (1.0 + (-0.01f64).exp());
        assert_eq!((chosen[0].0, chosen[1].0), (1, 2));
        near(&[chosen[0].1, chosen[1].1], &[1.0, share]);
    }

    #[test]
    fn groups_limit_the_choice() {
        let of = |by, used| Router {
            groups: Some(Groups { count: 4, used, by }),
            ..router(Gate::ChosenSoftmax)
        };
        // Groups: (0.5, -1), (2, 0), (1, -3), (1.5, 0.25).
        assert_eq!(choose(&of(GroupScore::Best, 1), None).0, [2, 3]);
        assert_eq!(choose(&of(GroupScore::Best, 2), None).0, [2, 6]);
        assert_eq!(choose(&of(GroupScore::TwoBest, 2), None).0, [2, 6]);
        let mut bias = [0.0; 8];
        (bias[0], bias[1]) = (1.0, 3.0); // 1.5 and 2
        assert_eq!(choose(&of(GroupScore::TwoBest, 1), Some(&bias)).0, [0, 1]);
        assert_eq!(choose(&of(GroupScore::Best, 1), Some(&bias)).0, [0, 1]);
        bias[0] = -9.0;
        assert_eq!(choose(&of(GroupScore::TwoBest, 1), Some(&bias)).0, [2, 3]);
    }

    #[test]
    fn the_first_of_equal_experts_is_chosen() {
        let router = Router { chosen: 3, ..router(Gate::ChosenSoftmax) };
        let mut chosen = vec![(0, 0.0); 3];
        router.choose(&mut [1.0, 2.0, 1.0, 2.0, 1.0, 1.0, 0.0, 1.0], None, &mut chosen);
        assert_eq!(chosen.iter().map(|c| c.0).collect::<Vec<_>>(), [0, 1, 3]);
    }
}
