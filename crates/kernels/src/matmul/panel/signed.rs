//! What instructions that multiply small matrices want of a panel: signed bytes, and sums with one scale.

use std::ops::Range;

use super::{Biased, Eight, FiveMinimum, Minimum, Pass, Sixteen, State, Sub};
use crate::TILE_ROWS;
use crate::q8::Q8Block;
use crate::simd::Dot;
use crate::views::Rows;

/// A token of instructions that multiply small matrices of bytes.
pub(crate) trait Matrices: Copy {
    /// The vectors for everything else.
    type Vectors: Dot;

    /// Most tokens of a register tile.
    const MOST: usize;

    /// What registers need before and after, where they are not the usual ones.
    const STATE: Option<State> = None;

    fn vectors(self) -> Self::Vectors;

    /// Puts weights of a panel into the order that they are multiplied in, without their offset.
    fn arrange<K: Finish>(self, panel: &mut [Sub]);

    /// As [`super::gather`], in the order that activations are multiplied in.
    fn gather(acts: Rows<'_, Q8Block>, tokens: Range<usize>, first: usize, to: &mut [Q8Block]);

    /// As [`super::step`], with a panel and activations in this order.
    ///
    /// # Safety
    ///
    /// Registers were made ready for `T` tokens.
    unsafe fn step<K: Finish, const T: usize>(self, pass: Pass<'_>, sums: &mut [[f32; TILE_ROWS]]);
}

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

impl Finish for FiveMinimum {
    const OFFSET: u8 = 0;
    const MINIMA: bool = true;
}

impl Finish for Sixteen {
    const OFFSET: u8 = 16;
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
