//! A residual stream of several streams side by side (AltUp; Baykal et al., 2023).
//!
//! A row is `[streams, width]`. A layer works on one of them, the active one. Before it, every stream is predicted
//! of all, by factors that a router's scores of the token give; behind it, all are corrected by what the layer
//! changed. All of this is row by row and on every node, so it costs no wait of its own.

use crate::op::Norm;
use crate::weight::VectorId;

/// What is done with streams.
#[derive(Clone, Debug)]
pub enum Streams {
    /// `x` `[width]` is the first stream; runs of `y` `[(count - 1) * width]` are the others, brought to the length
    /// of `x`.
    Begin {
        /// Mean squares of `y` that are smaller count as this.
        least: f32,
    },
    /// `x_i + Σ_j c_ij x_j` of the streams `x`; `c = table · tanh(scores z)`, `[count, count]`.
    Predict {
        /// `[count * count, count]`
        table: VectorId,
    },
    /// Stream `at` of `x`, times `factor`.
    Take {
        /// Which.
        at: usize,
        /// `[width]`
        factor: Option<VectorId>,
    },
    /// `(x + norm(x)) * scale` of stream `at`.
    TakeTwice {
        /// Which.
        at: usize,
        /// An RMSNorm.
        norm: Norm,
        /// Factor on the sum.
        scale: f32,
    },
    /// `x_i + (1 + c_i) * (y - x_active)` of the streams `x`; `c = table · tanh(scores z)`, `[count]`.
    Correct {
        /// The stream that the layer worked on.
        active: usize,
        /// `[count, count]`
        table: VectorId,
    },
    /// `y` `[width]` is added to all streams of `x` but the first.
    Spread,
    /// `(x + y) * scale`, `y` brought to the length of `z` before. All: `[width]`.
    Merge {
        /// Mean squares of `y` that are smaller count as this.
        least: f32,
        /// Factor on the sum.
        scale: f32,
    },
}

impl Streams {
    /// Its name in listings, and of the buffer that it writes.
    pub fn name(&self) -> &'static str {
        match self {
            Streams::Begin { .. } | Streams::Spread => "streams",
            Streams::Predict { .. } => "predicted",
            Streams::Take { factor: None, .. } => "active",
            Streams::Take { factor: Some(_), .. } => "scaled",
            Streams::TakeTwice { .. } => "active+norm",
            Streams::Correct { .. } => "corrected",
            Streams::Merge { .. } => "merged",
        }
    }

    /// Whether `y` is dealt otherwise than by rows.
    pub(crate) fn takes_product(&self) -> bool {
        matches!(self, Streams::Begin { .. } | Streams::Merge { .. })
    }
}
