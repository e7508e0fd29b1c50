//! Rotation of heads by a Hadamard matrix (QuaRot, Ashkboos et al., 2024, section 4; SpinQuant, Liu et al., 2024):
//! large elements are spread over all others, so that blocks of few bits lose less.
//!
//! The matrix is symmetric and orthogonal: to rotate twice is to do nothing, and products of rotated heads are
//! those of the heads.

use crate::simd::{LANES, Simd};

/// Rows of the Hadamard matrix of 16.
const ROWS: [[f32; LANES]; LANES] = {
    let mut rows = [[1.0; LANES]; LANES];
    let mut i = 0;
    while i < LANES {
        let mut j = 0;
        while j < LANES {
            if (i & j).count_ones() % 2 == 1 {
                rows[i][j] = -1.0;
            }
            j += 1;
        }
        i += 1;
    }
    rows
};

/// Elements that are rotated together: the largest power of two that divides the length.
fn block(len: usize) -> usize {
    1 << len.trailing_zeros()
}

/// Rotates `x`, whose length is a multiple of 16, in blocks. Sixteen elements beside each other are
/// multiplied by the matrix of 16, from the first to the last; then sums and differences of vectors, from near
/// ones to far ones.
#[inline(always)]
pub(crate) fn rotate<S: Simd>(s: S, x: &mut [f32]) {
    let block = block(x.len());
    let scale = s.splat((block as f32).sqrt().recip());
    for x in x.chunks_exact_mut(block) {
        let (vectors, _) = x.as_chunks_mut::<LANES>();
        for vector in &mut *vectors {
            let mut sum = s.splat(0.0);
            for (x, row) in vector.iter().zip(&ROWS) {
                sum = s.fma(s.splat(*x), s.load(row), sum);
            }
            s.store(s.mul(sum, scale), vector);
        }
        let mut stride = 1;
        while stride < vectors.len() {
            for pair in vectors.chunks_exact_mut(2 * stride) {
                let (low, high) = pair.split_at_mut(stride);
                for (low, high) in low.iter_mut().zip(high) {
                    let (a, b) = (s.load(low), s.load(high));
                    s.store(s.add(a, b), low);
                    s.store(s.sub(a, b), high);
                }
            }
            stride *= 2;
        }
    }
}
