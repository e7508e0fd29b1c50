//! Operators with a state of fixed size: convolutions along a sequence, and linear recurrences.

use crate::op::Heads;
use crate::placement::Cut;
use crate::weight::{Turns, VectorId};
use kernels::{Activation, SLICE, TILE_ROWS};
use std::ops::Range;

/// Channels of a convolution whose state lies together, and which a thread works on.
pub(crate) const CHANNELS: usize = 64;

/// A causal convolution of each channel along its sequence.
#[derive(Clone, Debug)]
pub struct Convolution {
    /// What each node has of the channels, in order.
    pub runs: Vec<Vec<ChannelRun>>,
    /// Channels in all.
    pub channels: usize,
    /// Taps of a channel.
    pub taps: usize,
    /// Their factors, `[taps, channels]`.
    pub weight: VectorId,
    /// Added to the sum, `[channels]`.
    pub bias: Option<VectorId>,
    /// Whether SiLU is taken of it.
    pub silu: bool,
    /// Columns of the input with factors on channels, where each node's begin; before the convolution and
    /// after it (LFM2).
    pub gates: Option<[Vec<usize>; 2]>,
    /// The state that holds the inputs before.
    pub state: usize,
}

/// Channels that lie beside each other on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelRun {
    /// The first column of the input.
    pub from: usize,
    /// The first column of the result.
    pub to: usize,
    /// Which channels of the model.
    pub channels: Range<usize>,
}

impl Convolution {
    /// Channels of a node.
    pub fn len(&self, node: usize) -> usize {
        self.runs[node].iter().map(|run| run.channels.len()).sum()
    }

    /// Pieces of a node's state.
    pub(crate) fn pieces(runs: &[ChannelRun]) -> usize {
        runs.iter().map(|run| run.channels.len().div_ceil(CHANNELS)).sum()
    }
}

/// Heads of a recurrence: several heads of values may share a head of keys and queries.
#[derive(Clone, Debug)]
pub struct RecurrentHeads {
    /// Values: those of queries are the recurrence's values, those of keys its keys and queries.
    pub values: Heads,
    /// Elements of a key.
    pub key_dim: usize,
    /// Heads of keys that take turns: the first head of values of each, the second of each, and so on. 1 where
    /// the heads of values of a head of keys follow each other.
    pub together: usize,
    /// How files have heads of values, if in another order.
    pub turns: Option<Turns>,
}

impl RecurrentHeads {
    /// Heads of values of a node.
    pub fn len(&self, node: usize) -> usize {
        self.values.q_len(node)
    }

    /// Heads of keys of a node.
    pub fn key_range(&self, node: usize) -> Range<usize> {
        let Range { start, end } = self.values.q_cut.range(node);
        match self.together {
            1 => self.values.kv_range(node),
            // Who has some heads has all of those that take turns.
            together => start / self.unit() * together..end / self.unit() * together,
        }
    }

    /// Heads of values of the heads of keys that take turns.
    fn unit(&self) -> usize {
        self.values.group() * self.together
    }

    /// Which of a node's heads of keys serves one of its heads of values.
    pub fn key_of(&self, node: usize, head: usize) -> usize {
        let head = self.values.q_cut.range(node).start + head;
        let key = head / self.unit() * self.together + head % self.together;
        key - self.key_range(node).start
    }

    /// Rows of all heads of keys, and how nodes have them.
    pub(crate) fn key_rows(&self) -> (usize, Cut) {
        let ranges = (0..self.values.q_cut.nodes()).map(|node| self.key_range(node)).collect();
        (self.values.kv * self.key_dim, Cut::replicated(ranges).scaled(self.key_dim))
    }

    /// Slices of a head's state, each of which a thread works on.
    pub fn slices(&self) -> usize {
        self.values.dim.div_ceil(SLICE)
    }
}

/// What a token does to the state of a head.
#[derive(Copy, Clone, Debug, PartialEq)]
pub enum Rule {
    /// The gated delta rule (Yang, Kautz and Hatamizadeh, 2024): keys and queries are divided by their
    /// lengths, whose squares grow by `eps`, queries also by the root of the keys' dimension.
    Delta {
        /// See there.
        eps: f32,
    },
    /// The scan of Mamba-2 (Dao and Gu, 2024).
    StateSpace {
        /// Factors on values that go past the state, `[heads]`.
        skip: VectorId,
    },
}

/// A linear recurrence over heads.
#[derive(Clone, Debug)]
pub struct Recurrence {
    /// Heads and their split.
    pub heads: RecurrentHeads,
    /// What a token does.
    pub rule: Rule,
    /// Rates of decay, negative, `[heads]`.
    pub decay: VectorId,
    /// Added to the time step before its softplus, `[heads]`.
    pub step_bias: VectorId,
    /// Where everything is, by node.
    pub columns: Vec<RecurrentColumns>,
    /// Whether results are multiplied by SiLU of `gate`.
    pub gated: bool,
    /// Whether every node is told the sums of squares of all slices of results.
    pub squares: bool,
    /// The state that holds the heads' matrices.
    pub state: usize,
}

impl Recurrence {
    /// Multiply-accumulates of a token and a head, but for norms.
    pub(crate) fn multiplies(&self) -> usize {
        let passes = match self.rule {
            Rule::Delta { .. } => 3,
            Rule::StateSpace { .. } => 2,
        };
        passes * self.heads.key_dim * self.heads.values.dim
    }

    /// Slices of all heads, of whose results there are sums of squares.
    pub(crate) fn all_slices(&self) -> usize {
        self.heads.values.q * self.heads.slices()
    }
}

/// Where a node's heads are in rows.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct RecurrentColumns {
    /// Queries, keys and values, behind the convolution.
    pub q: usize,
    /// See there.
    pub k: usize,
    /// See there.
    pub v: usize,
    /// Time steps (delta rule: what they are made of), one for each head, before it.
    pub step: usize,
    /// What the delta rule's gains are made of, one for each head, before it.
    pub gain: usize,
    /// Gates, before it.
    pub gate: usize,
}

/// What heads go through before the output projection.
#[derive(Clone, Debug)]
pub struct Modulation {
    /// A norm.
    pub norm: Option<HeadNorm>,
    /// Then a factor, the function of a gate, whose columns begin there on each node.
    pub gate: Option<(Activation, Vec<usize>)>,
    /// Of the gate, only what is above so much is let through.
    pub above: Option<Above>,
    /// Where the input's columns begin on each node.
    pub from: Vec<usize>,
}

/// Values count as far as they are above their mean and so many standard deviations; others are zero. Sums and sums
/// of squares are those of the product that gave them, tile by tile.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Above {
    /// Standard deviations.
    pub deviations: f32,
    /// Values of all nodes.
    pub width: usize,
}

impl Above {
    /// Numbers that tell of all values.
    pub(crate) fn numbers(&self) -> usize {
        self.width / TILE_ROWS * crate::op::TileSums::Moments.numbers()
    }

    /// Where values begin to count, by the sums and the sums of squares of tiles. Tiles are added in their order
    /// and in f64, so the variance loses nothing to the mean.
    pub(crate) fn least(&self, moments: &[f32]) -> f32 {
        let (mut sum, mut squares) = (0.0, 0.0);
        for tile in moments.chunks_exact(2) {
            sum += f64::from(tile[0]);
            squares += f64::from(tile[1]);
        }
        let count = self.width as f64;
        let mean = sum / count;
        let variance = (squares / count - mean * mean).max(0.0);
        (mean + variance.sqrt() * f64::from(self.deviations)) as f32
    }
}

/// RMSNorms of heads.
#[derive(Clone, Debug)]
pub enum HeadNorm {
    /// Of each head, all with the same weights.
    Each {
        /// `[dim]`
        weight: VectorId,
        /// Added to the mean square.
        eps: f32,
    },
    /// Of groups of heads, which may lie on several nodes. The sums of squares are those of the recurrence.
    Groups {
        /// The recurrence's heads.
        heads: RecurrentHeads,
        /// Heads of a group.
        each: usize,
        /// `[heads * dim]`
        weight: VectorId,
        /// Added to the mean square.
        eps: f32,
    },
    /// Of all elements of all nodes. Sums of squares of 16 are told to every node before it.
    All {
        /// `[width]`
        weight: VectorId,
        /// Added to the mean square.
        eps: f32,
        /// Elements of all nodes, whole tiles.
        width: usize,
        /// Where each node's begin, at whole tiles.
        starts: Vec<usize>,
    },
}

/// Columns of rows in which parts begin at whole tiles.
pub(crate) fn columns(lens: impl Iterator<Item = usize>) -> Vec<usize> {
    let mut at = 0;
    let begin = |len: usize| {
        let begin = at;
        at += len.next_multiple_of(TILE_ROWS);
        begin
    };
    lens.map(begin).collect()
}
