//! One step as traffic and waits: what the model of time is asked about.

use crate::error::Error;
use crate::machine::Matrix;
use crate::waits::Barrier;

/// New tokens of some sequences.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Work {
    /// New tokens of each: 1 when decoding, a chunk of the prompt when not.
    pub tokens: usize,
    /// Tokens that stand before them.
    pub context: usize,
    /// How many sequences.
    pub sequences: usize,
}

impl Work {
    /// The token after `context` others.
    pub fn decode(context: usize) -> Work {
        Work { tokens: 1, context, sequences: 1 }
    }
}

/// Over which memory nodes some bytes are spread: a share per node, in sum 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Pages(Vec<f64>);

impl Pages {
    /// Shares as given.
    ///
    /// # Errors
    /// When a share is outside 0..=1 or they do not add up to 1 (within 1e-6).
    pub fn new(shares: Vec<f64>) -> Result<Pages, Error> {
        let sum: f64 = shares.iter().sum();
        if shares.iter().all(|s| (0.0..=1.0).contains(s)) && (sum - 1.0).abs() < 1e-6 {
            Ok(Pages(shares))
        } else {
            Err(Error::BadShares { shares })
        }
    }

    /// Page by page over all `nodes`: interleaved by policy, or by chance.
    ///
    /// # Errors
    /// When there are no nodes.
    pub fn interleaved(nodes: usize) -> Result<Pages, Error> {
        Pages::new(vec![1.0 / nodes as f64; nodes])
    }

    /// First touch: `share` on `home`, where the thread ran that touched most, the rest evenly on
    /// the other nodes.
    ///
    /// # Errors
    /// When `share` is outside 0..=1, `home` is not below `nodes`, or a single node has not all.
    pub fn first_touch(home: usize, share: f64, nodes: usize) -> Result<Pages, Error> {
        let others = nodes.saturating_sub(1).max(1) as f64;
        let mut shares = vec![(1.0 - share) / others; nodes];
        *shares.get_mut(home).ok_or(Error::NoSuchNode { node: home, nodes })? = share;
        Pages::new(shares)
    }

    /// Share of each memory node.
    pub fn shares(&self) -> &[f64] {
        &self.0
    }
}

/// Waits after one repetition of a stage.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Waits {
    /// Among the threads of a node.
    pub local: usize,
    /// Among all threads.
    pub global: usize,
    /// How the global ones meet.
    pub barrier: Barrier,
}

impl Waits {
    /// No wait at all.
    pub const NONE: Waits = Waits { local: 0, global: 0, barrier: Barrier::Flat };
}

/// Work that threads do without waiting for each other, and the waits that follow it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Stage {
    /// What it is, for the breakdown.
    pub(crate) name: String,
    /// How often it happens.
    pub(crate) times: usize,
    /// Bytes that each node's threads read from each node's memory or write there, once:
    /// `[cpu node][memory node]`.
    pub(crate) reads: Matrix,
    /// Multiply-accumulates of each node's threads, once: `[node][kind]`, as `ActKind` counts kinds.
    pub(crate) macs: Vec<[f64; 3]>,
    /// Elements that some thread passes over before the others can go on: Amdahl's serial part.
    pub(crate) alone: f64,
    /// Waits after each time.
    pub(crate) waits: Waits,
}

impl Stage {
    /// A stage of `nodes` nodes that reads nothing and waits for nobody yet.
    pub(crate) fn new(name: impl Into<String>, times: usize, nodes: usize) -> Stage {
        Stage {
            name: name.into(),
            times,
            reads: vec![vec![0.0; nodes]; nodes],
            macs: vec![[0.0; 3]; nodes],
            alone: 0.0,
            waits: Waits::NONE,
        }
    }
}

/// A step: one token when decoding, a chunk of a prompt when not.
#[derive(Clone, Debug, PartialEq)]
pub struct StepModel {
    /// New tokens.
    pub(crate) tokens: usize,
    /// Threads on each node; 0 leaves a node's cores out.
    pub(crate) threads: Vec<usize>,
    /// Rounds, which follow each other. In each go on, beside each other, the stages of one program, or of
    /// one for each place of a pipeline that has something to do.
    pub(crate) rounds: Vec<Vec<Vec<Stage>>>,
    /// Waits of the step besides those of its stages.
    pub(crate) meetings: Waits,
    /// Elements that the busiest thread passes over after the step and before the next one: the search for the
    /// greatest logit of its sequences. Other samplers take a multiple of it.
    pub(crate) sampling: f64,
}

impl StepModel {
    /// All its stages.
    pub(crate) fn stages(&self) -> impl Iterator<Item = &Stage> {
        self.rounds.iter().flatten().flatten()
    }

    /// Bytes that each node's threads read in the step, or write: `[cpu node][memory node]`.
    pub fn reads(&self) -> Matrix {
        let nodes = self.threads.len();
        let cell = |cpu: usize, memory: usize| {
            self.stages().map(|s| s.times as f64 * s.reads[cpu][memory]).sum()
        };
        (0..nodes).map(|cpu| (0..nodes).map(|memory| cell(cpu, memory)).collect()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_a_distribution() {
        assert_eq!(Pages::interleaved(4).unwrap().shares(), [0.25; 4]);
        assert_eq!(Pages::first_touch(1, 0.5, 3).unwrap().shares(), [0.25, 0.5, 0.25]);
        assert_eq!(Pages::first_touch(0, 1.0, 1).unwrap().shares(), [1.0]);
        for bad in [
            Pages::interleaved(0),
            Pages::first_touch(0, 1.5, 4),
            Pages::first_touch(0, f64::NAN, 4),
            Pages::first_touch(0, 0.9, 1),
            Pages::new(vec![0.5, 0.4]),
        ] {
            assert!(matches!(bad, Err(Error::BadShares { .. })), "{bad:?}");
        }
        let nowhere = Pages::first_touch(2, 0.5, 2);
        assert_eq!(nowhere, Err(Error::NoSuchNode { node: 2, nodes: 2 }));
    }
}
