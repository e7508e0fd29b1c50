//! A scheme with levels and the level of each kind of step: what a search ends in, made of nested teams.

use super::descend::Tried;
use super::scheme::{Level, Scheme, Teams, scheme};
use super::session::{Session, Stop};

/// Most levels between the smallest and the largest that are tried for the kinds of steps between.
const BETWEEN: usize = 3;

#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) scheme: Scheme,
    /// Each within the next.
    pub(super) levels: Vec<Level>,
    /// For each kind of step an index of `levels`.
    pub(super) rows: Vec<usize>,
    /// The level to go back to where another is not surely better: the default's, if it is among them,
    /// otherwise that of prompts.
    pub(super) plain: usize,
    /// Whether `plain` is the default.
    pub(super) holds_default: bool,
    /// Seconds of the trace by the first time of each step.
    pub(super) estimate: f64,
}

/// The teams that a plan is made of.
pub(super) struct Ends<'a> {
    /// What the smallest steps use.
    pub(super) least: &'a Teams,
    /// What prompts use; `least` is within it.
    pub(super) prompt: &'a Teams,
    /// What is used without tuning.
    pub(super) default: &'a Teams,
}

impl Plan {
    /// A plan that has every step on one level so far: from the smallest teams over some that were
    /// tried to those of prompts, and the default's where it fits in.
    pub(super) fn new(ends: &Ends<'_>, tried: &[Tried]) -> Plan {
        let default = ends.default.clone().aligned(ends.prompt);
        let mut chain = vec![ends.least.clone()];
        if ends.least != ends.prompt {
            chain.push(ends.prompt.clone());
        }
        // The default first, then those that were fastest.
        let most = chain.len() + BETWEEN + usize::from(default.is_some());
        for teams in default.iter().chain(tried.iter().map(|t| &t.teams)) {
            let at = chain.partition_point(|other| other.threads() < teams.threads());
            let fits = at > 0 && at < chain.len();
            let fits = fits && chain[at - 1].within(teams) && teams.within(&chain[at]);
            if fits && chain[at] != *teams && chain.len() < most {
                chain.insert(at, teams.clone());
            }
        }
        let prompt = chain.len() - 1;
        // A default that is more than prompts want.
        if ends.prompt.within(ends.default) && ends.prompt != ends.default {
            chain.push(ends.default.clone());
        }
        let default = default.unwrap_or_else(|| ends.default.clone());
        let plain = chain.iter().position(|teams| *teams == default);
        let (scheme, levels) = scheme(&chain);
        Plan {
            scheme,
            levels,
            rows: vec![],
            plain: plain.unwrap_or(prompt),
            holds_default: plain.is_some(),
            estimate: f64::INFINITY,
        }
    }

    /// Finds the level of each kind of step. From the best of the kind before it goes down, or else up, as
    /// long as that is faster, and looks at the plain level; of all that was timed then those are taken
    /// that are fastest for the trace and ascend with the tokens. So one disturbed time, which may lead
    /// astray at one kind of step, does not at the next.
    pub(super) fn fill(&mut self, session: &mut Session<'_>) -> Result<(), Stop> {
        let mut times = vec![vec![f64::INFINITY; self.levels.len()]; session.kinds.len()];
        let mut at = 0;
        for (kind, times) in times.iter_mut().enumerate() {
            let mut time = |row: usize| session.once(&self.scheme, &self.levels[row], kind);
            times[self.plain] = time(self.plain)?;
            times[at] = time(at)?;
            let start = at;
            for step in [-1, 1] {
                while let Some(next) = at.checked_add_signed(step).filter(|&n| n < times.len()) {
                    times[next] = time(next)?;
                    if times[next] >= times[at] {
                        break;
                    }
                    at = next;
                }
                if at != start {
                    break;
                }
            }
            if times[self.plain] < times[at] {
                at = self.plain;
            }
        }
        let weights: Vec<f64> = session.kinds.iter().map(|kind| kind.weight).collect();
        (self.rows, self.estimate) = ascending(&weights, &times);
        Ok(())
    }

    /// Whether it is nothing but the default.
    pub(super) fn is_default(&self) -> bool {
        self.holds_default && self.rows.iter().all(|&row| row == self.plain)
    }
}

/// For each kind of step a row, none smaller than that of the kind before, with the least sum of weight ×
/// time, and this sum. `times` has a time for each kind and row; at least one row.
fn ascending(weights: &[f64], times: &[Vec<f64>]) -> (Vec<usize>, f64) {
    let rows = times.first().map_or(0, Vec::len);
    // The least sum so far that ends in each row, and for each kind and row the best one before.
    let mut sums = vec![0.0; rows];
    let mut before: Vec<Vec<usize>> = vec![];
    for (weight, times) in weights.iter().zip(times) {
        let mut best = 0;
        let mut from = vec![];
        let mut next = vec![];
        for row in 0..rows {
            if sums[row] < sums[best] {
                best = row;
            }
            from.push(best);
            next.push(sums[best] + weight * times[row]);
        }
        before.push(from);
        sums = next;
    }
    let mut row = (0..rows).min_by(|&a, &b| sums[a].total_cmp(&sums[b])).unwrap_or(0);
    let least = sums.get(row).copied().unwrap_or(0.0);
    let mut chosen = vec![];
    for from in before.iter().rev() {
        chosen.push(row);
        row = from[row];
    }
    chosen.reverse();
    (chosen, least)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_ascend_and_none_that_do_are_faster() {
        let inf = f64::INFINITY;
        let times = [vec![3.0, 1.0, 5.0], vec![1.0, 4.0, inf], vec![9.0, 2.0, 2.5]];
        // Each for itself: 1, 0, 1. In order: 0, 0, 1 with weights of one, 1, 1, 1 when the first
        // counts most.
        assert_eq!(ascending(&[1.0; 3], &times), (vec![0, 0, 1], 6.0));
        assert_eq!(ascending(&[5.0, 1.0, 1.0], &times), (vec![1, 1, 1], 11.0));
        for weights in [[1.0, 1.0, 1.0], [5.0, 1.0, 1.0], [1.0, 9.0, 0.5], [0.1, 0.1, 7.0]] {
            let mut least = inf;
            for (a, b, c) in (0..27).map(|n| (n / 9, n / 3 % 3, n % 3)) {
                if a <= b && b <= c {
                    let sum = weights[0] * times[0][a] + weights[1] * times[1][b];
                    least = least.min(sum + weights[2] * times[2][c]);
                }
            }
            let (rows, sum) = ascending(&weights, &times);
            assert!(rows.is_sorted() && sum == least, "{weights:?}: {rows:?} {sum} {least}");
        }
    }
}
