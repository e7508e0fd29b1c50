//! Values of 3, 5 and 6 bits in vectors of bytes.
//!
//! Elements go by quads, four of each row: a *word* has a byte for each of four elements of one row, and
//! what is done to it is done to all four. As many quads as there are vectors lie in the low bits of the
//! vectors' bytes, where one instruction unpacks them; the others lie in the bits above, in runs.

use super::part;

/// Bits `from..from + count` of quad `quad` are bits `at..at + count` of vector `vector`.
pub(super) struct Run {
    quad: usize,
    from: u32,
    count: u32,
    vector: usize,
    at: u32,
}

pub(super) const fn run(quad: usize, from: u32, count: u32, vector: usize, at: u32) -> Run {
    Run { quad, from, count, vector, at }
}

impl Run {
    /// The lowest `count` bits of each byte.
    const fn mask(&self) -> u32 {
        ((1 << self.count) - 1) * 0x0101_0101
    }
}

/// Puts the quads of row `row` into `VECTORS` vectors of 16 rows.
#[inline(always)]
pub(super) fn put<const QUADS: usize, const VECTORS: usize>(
    packed: &mut [u8],
    row: usize,
    quads: [u32; QUADS],
    runs: &[Run],
) {
    let mut words = [0; VECTORS];
    for run in runs {
        words[run.vector] |= (quads[run.quad] >> run.from & run.mask()) << run.at;
    }
    for (v, word) in words.into_iter().enumerate() {
        packed[64 * v + 4 * row..][..4].copy_from_slice(&word.to_le_bytes());
    }
}

/// Gives them back.
#[inline(always)]
pub(super) fn get<const QUADS: usize>(packed: &[u8], row: usize, runs: &[Run]) -> [u32; QUADS] {
    let mut quads = [0; QUADS];
    for run in runs {
        let word = u32::from_le_bytes(*part(packed, 64 * run.vector + 4 * row));
        quads[run.quad] |= (word >> run.at & run.mask()) << run.from;
    }
    quads
}
