//! What instructions that multiply small matrices want of a panel: signed bytes, and sums with one scale.

use super::{Biased, Eight, Minimum, Sub};

/// How the integer sums of a sub-block are added.
pub(crate) trait Finish {
    /// What weights in a panel have too much.
    const OFFSET: u8;

    /// Whether it has minima.
    const MINIMA: bool;
}

impl Finish for Eight {
    const OFFSET: u8 = 8;
    const MINIMA: bool = false;
}

impl Finish for Minimum {
    const OFFSET: u8 = 0;
    const MINIMA: bool = true;
}

impl Finish for Biased {
    const OFFSET: u8 = 128;
    const MINIMA: bool = false;
}

/// Takes the offset from weights.
#[inline(always)]
pub(crate) fn center<K: Finish>(panel: &mut [Sub]) {
    if K::OFFSET == 0 {
        return;
    }
    for sub in panel {
        for byte in sub.quads.as_flattened_mut() {
            *byte = byte.wrapping_sub(K::OFFSET);
        }
    }
}
