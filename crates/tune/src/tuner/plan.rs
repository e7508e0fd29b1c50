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

    /// Finds the level of each kind of step, from few tokens to many, each at least that of the one
    /// before: upwards as long as the next level is faster, or the plain one if that is.
    pub(super) fn fill(&mut self, session: &mut Session<'_>) -> Result<(), Stop> {
        let mut at = 0;
        let (mut rows, mut estimate) = (vec![], 0.0);
        for kind in 0..session.kinds.len() {
            let mut best = session.once(&self.scheme, &self.levels[at], kind)?;
            while at + 1 < self.levels.len() {
                let next = session.once(&self.scheme, &self.levels[at + 1], kind)?;
                if next >= best {
                    break;
                }
                (at, best) = (at + 1, next);
            }
            if at < self.plain {
                let plain = session.once(&self.scheme, &self.levels[self.plain], kind)?;
                if plain < best {
                    (at, best) = (self.plain, plain);
                }
            }
            rows.push(at);
            estimate += session.kinds[kind].weight * best;
        }
        (self.rows, self.estimate) = (rows, estimate);
        Ok(())
    }

    /// Whether it is nothing but the default.
    pub(super) fn is_default(&self) -> bool {
        self.holds_default && self.rows.iter().all(|&row| row == self.plain)
    }
}
