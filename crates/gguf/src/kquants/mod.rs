//! The K-quants: blocks of 256 elements whose sub-blocks have scales, and some minima, of their own.
//!
//! Dequantisation is bit for bit that of ggml's reference. Quantisation searches: for each
//! sub-block it tries a range of step sizes, finds for each the scale (and minimum) of least
//! weighted squared error given the rounded values, and keeps the best; then it quantises the
//! scales and rounds all values once more against the scales that a reader will see. Larger
//! values weigh more, as they matter more to a dot product.

mod fit;
mod with_min;
mod without_min;

pub(crate) use with_min::{
    q2_k_from_f32, q2_k_to_f32, q4_k_from_f32, q4_k_to_f32, q5_k_from_f32, q5_k_to_f32,
};
pub(crate) use without_min::{q3_k_from_f32, q3_k_to_f32, q6_k_from_f32, q6_k_to_f32};

/// Elements of a block.
const LEN: usize = 256;
