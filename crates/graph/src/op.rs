//! Parameters of operators, as a model's definition states them.

use crate::keep::Keep;
use crate::placement::Cut;
use crate::weight::VectorId;
pub use kernels::{Activation, RopeStyle, Xielu};
use kernels::{KvType, KvTypes, TILE_ROWS};
use std::ops::Range;

/// Rotary position embedding of one kind of layer.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// Which elements form a pair.
    pub style: RopeStyle,
    /// Angle per position for each pair, `[rotated dims / 2]`, frequency scaling applied.
    pub inv_freq: Vec<f32>,
    /// Factor on cosines and sines, and so on what is rotated (YaRN's attention factor).
    pub amplitude: f32,
    /// Other angles, for contexts of more tokens than this (LongRoPE).
    pub long: Option<(usize, Vec<f32>)>,
    /// Which axis each pair follows, where places have several; empty: the first.
    pub axes: Vec<u8>,
    /// Whether pairs are within each half of what is rotated, those of the first half first (Gemma 4's images).
    pub halves: bool,
}

impl Rope {
    /// RoPE with the angles `inv_freq`, and nothing else.
    pub fn new(style: RopeStyle, inv_freq: Vec<f32>) -> Rope {
        Rope { style, inv_freq, amplitude: 1.0, long: None, axes: Vec::new(), halves: false }
    }
}

/// Index of a [`Rope`] in its graph.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct RopeId(pub(crate) u32);

/// How attention heads are shared by the nodes.
#[derive(Clone, Debug)]
pub struct Heads {
    /// Query heads in all.
    pub q: usize,
    /// Key/value heads in all.
    pub kv: usize,
    /// Elements of a head.
    pub dim: usize,
    /// Query heads cut over the nodes; a key/value head is wherever one of its query heads is.
    pub q_cut: Cut,
    /// All key/value heads are one, which is stored once on each node: they only say which query heads
    /// are attended together.
    pub shared: bool,
    /// What the product that gives queries gives besides.
    pub given: Given,
}

/// What comes with queries.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Given {
    /// Keys and values.
    KeysAndValues,
    /// Keys, which are values too before they get a norm and RoPE.
    Keys,
    /// Nothing: keys and values are another layer's, or come from elsewhere.
    Nothing,
}

impl Heads {
    /// Query heads per key/value head.
    pub fn group(&self) -> usize {
        self.q / self.kv
    }

    /// Query heads of a node.
    pub fn q_len(&self, node: usize) -> usize {
        self.q_cut.len(node)
    }

    /// Key/value heads of a node; two nodes hold the same one when its query heads are cut.
    pub fn kv_range(&self, node: usize) -> Range<usize> {
        let q = self.q_cut.range(node);
        let first = q.start / self.group();
        if q.is_empty() { first..first } else { first..q.end.div_ceil(self.group()) }
    }

    /// Number of key/value heads of a node.
    pub fn kv_len(&self, node: usize) -> usize {
        self.kv_range(node).len()
    }

    /// Key/value heads that a node stores.
    pub fn stored_len(&self, node: usize) -> usize {
        if self.shared { self.kv_len(node).min(1) } else { self.kv_len(node) }
    }

    /// What a node stores of a token: keys and values of heads, or one latent that is both.
    pub fn halves(&self) -> usize {
        if self.shared { 1 } else { 2 }
    }

    /// Which of them a node's key/value head is.
    pub fn stored_at(&self, kv: usize) -> usize {
        if self.shared { 0 } else { kv }
    }

    /// Key/value heads of every node.
    pub fn kv_cut(&self) -> Cut {
        Cut::replicated((0..self.q_cut.nodes()).map(|n| self.kv_range(n)).collect())
    }

    /// The query heads that read a key/value head, both numbered within the node.
    pub fn queries(&self, node: usize, kv: usize) -> Range<usize> {
        let q = self.q_cut.range(node);
        let kv = self.kv_range(node).start + kv;
        let own = (kv * self.group()).max(q.start)..((kv + 1) * self.group()).min(q.end);
        own.start - q.start..own.end - q.start
    }

    /// Where queries, keys and values begin in a node's `q | k | v` row, and where it ends. Products are
    /// written in whole tiles, so each begins at a multiple of one.
    pub fn sections(&self, node: usize) -> [usize; 4] {
        let whole = |heads: usize| (heads * self.dim).next_multiple_of(TILE_ROWS);
        let (q, kv) = (whole(self.q_len(node)), whole(self.kv_len(node)));
        match self.given {
            Given::KeysAndValues => [0, q, q + kv, q + 2 * kv],
            Given::Keys => [0, q, q, q + kv],
            Given::Nothing => [0, q, q, q],
        }
    }

    /// How keys and values are stored: latents, which are both, as keys are.
    pub fn types(&self, kv: KvTypes) -> KvTypes {
        if self.shared { kv.keys.into() } else { kv }
    }

    /// Elements of a head as attention and the cache have it: what it lacks to a multiple of the
    /// types' is zeros.
    pub fn stored(&self, kv: KvTypes) -> usize {
        self.dim.next_multiple_of(self.types(kv).head_multiple())
    }

    /// The same of the type that wants most.
    pub fn widest(&self) -> usize {
        self.stored(KvType::Q8_0.into())
    }
}

/// A norm of rows.
#[derive(Copy, Clone, Debug)]
pub enum Norm {
    /// `x / sqrt(mean(x²) + eps) * weight` (Zhang and Sennrich, 2019).
    Rms {
        /// Weights.
        weight: VectorId,
        /// Added to the mean square.
        eps: f32,
    },
    /// `(x - mean(x)) / sqrt(variance(x) + eps) * weight + bias` (Ba et al., 2016).
    Layer {
        /// Weights.
        weight: VectorId,
        /// Added to the product.
        bias: VectorId,
        /// Added to the variance.
        eps: f32,
    },
}

impl Norm {
    /// Its weights.
    pub fn weight(&self) -> VectorId {
        let (Norm::Rms { weight, .. } | Norm::Layer { weight, .. }) = self;
        *weight
    }

    /// All vectors that it reads.
    pub(crate) fn vectors(&self) -> Vec<VectorId> {
        match self {
            Norm::Rms { weight, .. } => vec![*weight],
            Norm::Layer { weight, bias, .. } => vec![*weight, *bias],
        }
    }

    /// The norm's name in listings.
    pub fn name(&self) -> &'static str {
        match self {
            Norm::Rms { .. } => "rms_norm",
            Norm::Layer { .. } => "layer_norm",
        }
    }
}

/// What norms of queries and keys go over.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum NormOver {
    /// Each head (Qwen3).
    Head,
    /// All heads together, whichever node has them (OLMo-2).
    Row,
}

/// Queries grow with their position: by `1 + scale * ln(1 + floor((position + offset) / length))`.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Temperature {
    /// Growth for each power of e.
    pub scale: f32,
    /// Positions before the first growth, at least one.
    pub length: usize,
    /// Added to positions.
    pub offset: u32,
}

impl Temperature {
    /// The factor on a query.
    pub fn factor(&self, position: u32) -> f32 {
        let stretches = f64::from((position + self.offset) / self.length as u32);
        (1.0 + f64::from(self.scale) * stretches.ln_1p()) as f32
    }
}

/// One attention operator.
#[derive(Clone, Debug)]
pub struct Attention {
    /// Heads and their split.
    pub heads: Heads,
    /// Weights of the RMSNorm of queries.
    pub q_norm: Option<VectorId>,
    /// Weights of that of keys.
    pub k_norm: Option<VectorId>,
    /// What these norms go over.
    pub norm_over: NormOver,
    /// Whether they come after RoPE; those of whole rows cannot.
    pub norm_last: bool,
    /// Whether they take the mean off first (LayerNorm); of heads only, which may then have weights of their own,
    /// `[heads, dim]`.
    pub norm_centres: bool,
    /// Weights of that of values.
    pub v_norm: Option<VectorId>,
    /// Their epsilon.
    pub norm_eps: f32,
    /// Rotary embedding; `None` where positions do not count.
    pub rope: Option<RopeId>,
    /// Weights of the RMSNorm of the last elements of keys, as many as there are weights, which are values
    /// too: latents ([`Builder::latents`](crate::Builder::latents)).
    pub latent_norm: Option<VectorId>,
    /// A score of each head beside those of its keys, which has no value (attention sinks).
    pub sinks: Option<VectorId>,
    /// Factor on `q·k`, usually `1/sqrt(dim)`.
    pub scale: f32,
    /// Growth of queries with their position.
    pub temperature: Option<Temperature>,
    /// Scores `s` become `cap * tanh(s / cap)` (Gemma 2).
    pub soft_cap: Option<f32>,
    /// What scores lose for each key between it and the token's own, by query head of all nodes (ALiBi); empty: nothing.
    pub slopes: Vec<f32>,
    /// What is added to scores by the distance of their key, `[heads, distances]`
    /// ([`Builder::biases`](crate::Builder::biases)).
    pub biases: Option<VectorId>,
    /// Which keys a token sees: all, or those of a sliding window or a chunk, the last of which is its own.
    pub keep: Keep,
    /// The layer whose keys and values it attends, if not its own.
    pub borrows: Option<usize>,
    /// Index of the state that holds its keys and values; the builder gives it.
    pub cache: usize,
}

impl Attention {
    /// Whether nodes tell each other of heads, which are no whole tiles, and not of tiles.
    pub(crate) fn tells_heads(&self) -> bool {
        self.norm_over == NormOver::Row && !self.heads.dim.is_multiple_of(TILE_ROWS)
    }

    /// Numbers that tell of so many heads.
    pub(crate) fn told(&self, heads: usize) -> usize {
        if self.tells_heads() { heads } else { heads * self.heads.dim / TILE_ROWS }
    }
}

/// What an expert is.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Expert {
    /// Its non-linear function.
    pub activation: Activation,
    /// Whether it is `down(f(gate·x) * (up·x))`, or else `down(f(up·x))`.
    pub gated: bool,
    /// Whether a token's weight is a factor on what the expert takes, and not on what it gives (Llama 4).
    pub weigh_input: bool,
}

/// What every node is told of a product whose rows nodes share, tile by tile.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum TileSums {
    /// Sums of squares of all queries and keys, its first two parts.
    Squares,
    /// Sums, and sums of squares, of its first part.
    Moments,
}

impl TileSums {
    /// Parts that are told of.
    pub(crate) fn parts(self) -> usize {
        match self {
            TileSums::Squares => 2,
            TileSums::Moments => 1,
        }
    }

    /// Numbers for each tile.
    pub(crate) fn numbers(self) -> usize {
        match self {
            TileSums::Squares => 1,
            TileSums::Moments => 2,
        }
    }
}

/// What is added to the embeddings of tokens.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Added {
    /// Rows of a table, `[positions, hidden]`: those of the tokens' positions.
    pub positions: Option<VectorId>,
    /// Rows of a table, `[types, hidden]`: those of the tokens' types.
    pub types: Option<VectorId>,
}

/// How rows become one.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Merging {
    /// One behind the other.
    Beside,
    /// An element of each in turn.
    InTurns,
    /// Their mean.
    Mean,
    /// Their mean, from which a vector is taken off, times another.
    Standardised {
        /// What is taken off.
        less: VectorId,
        /// Factors on the difference.
        times: VectorId,
    },
}

impl Merging {
    /// Elements of what becomes of `count` rows of `width`.
    pub(crate) fn width(self, count: usize, width: usize) -> usize {
        match self {
            Merging::Beside | Merging::InTurns => count * width,
            Merging::Mean | Merging::Standardised { .. } => width,
        }
    }
}
