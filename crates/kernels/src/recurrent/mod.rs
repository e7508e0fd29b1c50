//! Layers with a state of fixed size: convolutions along a sequence, and linear recurrences.
//!
//! Both are written token by token, and a token's bits depend on the tokens before it and on nothing else:
//! a prompt may be cut anywhere. The chunked forms of these recurrences (Yang et al., 2024; Dao and Gu,
//! 2024) multiply matrices of some 64 tokens, whose bits depend on where chunks begin; they exist to
//! keep the state out of slow memory and to fill matrix units. On a CPU neither is wanted: a slice of the state
//! (16 columns of a head) stays in the first cache for all tokens of a step, and the number of
//! multiplications is the least.

mod conv;
mod scan;

pub use conv::Conv;
pub use scan::{SLICE, Scan, scan_state_len};

pub(crate) use conv::conv;
pub(crate) use scan::scan;
