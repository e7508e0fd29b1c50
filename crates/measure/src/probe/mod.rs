//! What a core can read per second, how long it waits for a line, and which pages are best.
//!
//! [`read_bytes`] does nothing but load, as wide as the CPU can, into enough independent sums that
//! the additions never wait for each other: what remains is the memory. The caller runs it on as
//! many threads as it wants to know about, on memory of the node that it asks about, larger than
//! the caches, and takes the time. [`chase`] does the opposite, one load after the other.
//!
//! A thread reads four quarters side by side and asks for lines 2 KiB ahead, because no simpler pattern is
//! faster: one core of a virtual Xeon (Sapphire Rapids) reads 9.4 GB/s in one stream, 10.2 with prefetches,
//! 11.5 in four, 12.5 in four with prefetches 1 to 4 KiB ahead, 11.4 and 12.8 in eight; one of a virtual EPYC
//! 9005 34.6 in one stream, 35.0 to 36.1 with prefetches, 38.1 in four (64-byte loads, 256 and 512 MiB on
//! huge pages, medians of 15 and 7, loops that are not in the repository, November 2026).
//!
//! The result is a checksum, so that the loads cannot be optimised away and every variant can be
//! tested: the wrapping sum of the bytes taken as little-endian `u64`s, the last one padded with
//! zeros.

mod buffer;
mod chase;
mod pages;

pub use buffer::Buffer;
pub use chase::{chase, chase_nanoseconds, lay_cycle};
pub use pages::{PageTrial, PageTrials, huge_pages};

/// Reads every byte of `part` once, in order, and returns their checksum (see the module).
pub fn read_bytes(part: &[u8]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: the CPU has AVX-512 F, as was just found.
            return unsafe { x86::avx512_read(part) };
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the CPU has AVX2, as was just found.
            return unsafe { x86::avx2_read(part) };
        }
    }
    portable_read(part)
}

/// The specification, and the variant for other CPUs: eight sums, which the compiler turns into
/// the vectors of the target's base instruction set.
fn portable_read(part: &[u8]) -> u64 {
    let mut sums = [0_u64; 8];
    let (lines, rest) = part.as_chunks::<64>();
    for line in lines {
        let (words, _) = line.as_chunks::<8>();
        for (sum, word) in sums.iter_mut().zip(words) {
            *sum = sum.wrapping_add(u64::from_le_bytes(*word));
        }
    }
    sums.into_iter().fold(tail(rest), u64::wrapping_add)
}

/// The checksum of a few bytes.
fn tail(rest: &[u8]) -> u64 {
    rest.chunks(8).fold(0, |sum, word| {
        let mut padded = [0; 8];
        padded[..word.len()].copy_from_slice(word);
        sum.wrapping_add(u64::from_le_bytes(padded))
    })
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        _MM_HINT_T0, _mm_prefetch, _mm256_add_epi64, _mm256_loadu_si256, _mm256_setzero_si256,
        _mm512_add_epi64, _mm512_loadu_si512, _mm512_reduce_add_epi64, _mm512_setzero_si512,
    };

    use super::portable_read;

    /// Bytes of a quarter that are read before the next one's turn.
    const TURN: usize = 512;
    /// How far ahead lines are asked for.
    const AHEAD: usize = 2048;

    /// `part` in four quarters of whole turns, and the rest.
    fn quarters(part: &[u8]) -> ([&[[u8; TURN]]; 4], &[u8]) {
        let turns = part.len() / (4 * TURN);
        let (whole, rest) = part.split_at(4 * turns * TURN);
        let quarter = |i: usize| whole[i * turns * TURN..][..turns * TURN].as_chunks().0;
        ([quarter(0), quarter(1), quarter(2), quarter(3)], rest)
    }

    /// Asks for what comes [`AHEAD`] bytes after each line of a turn.
    #[inline(always)]
    fn prefetch(turn: &[u8; TURN]) {
        for line in turn.as_chunks::<64>().0 {
            // SAFETY: nothing is read, wherever it points.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().wrapping_add(AHEAD).cast()) };
        }
    }

    /// Eight sums of eight words.
    #[target_feature(enable = "avx512f")]
    pub(super) fn avx512_read(part: &[u8]) -> u64 {
        let mut sums = [_mm512_setzero_si512(); 8];
        let (quarters, rest) = quarters(part);
        for i in 0..quarters[0].len() {
            for quarter in quarters {
                let turn = &quarter[i];
                prefetch(turn);
                for (sum, line) in sums.iter_mut().zip(turn.as_chunks::<64>().0) {
                    // SAFETY: 64 bytes are there, and the load needs no alignment.
                    let line = unsafe { _mm512_loadu_si512(line.as_ptr().cast()) };
                    *sum = _mm512_add_epi64(*sum, line);
                }
            }
        }
        let sum = sums.into_iter().reduce(|a, b| _mm512_add_epi64(a, b)).map(|all| {
            // The sum of signed words wraps like that of unsigned ones.
            _mm512_reduce_add_epi64(all).cast_unsigned()
        });
        sum.unwrap_or(0).wrapping_add(portable_read(rest))
    }

    /// Eight sums of four words.
    #[target_feature(enable = "avx2")]
    pub(super) fn avx2_read(part: &[u8]) -> u64 {
        let mut sums = [_mm256_setzero_si256(); 8];
        let (quarters, rest) = quarters(part);
        for i in 0..quarters[0].len() {
            for quarter in quarters {
                let turn = &quarter[i];
                prefetch(turn);
                for half in turn.as_chunks::<{ TURN / 2 }>().0 {
                    for (sum, half) in sums.iter_mut().zip(half.as_chunks::<32>().0) {
                        // SAFETY: 32 bytes are there, and the load needs no alignment.
                        let half = unsafe { _mm256_loadu_si256(half.as_ptr().cast()) };
                        *sum = _mm256_add_epi64(*sum, half);
                    }
                }
            }
        }
        // SAFETY: four words of any bits are a vector, and the other way round.
        let words: [[u64; 4]; 8] = unsafe { std::mem::transmute(sums) };
        words.into_iter().flatten().fold(portable_read(rest), u64::wrapping_add)
    }

    #[cfg(test)]
    mod tests {
        use super::super::portable_read;
        use super::*;

        #[test]
        fn every_width_gives_the_same_checksum() {
            // Values with high bits set, so that sums wrap.
            let bytes: Vec<u8> =
                (0..9000_u32).map(|i| (i.wrapping_mul(2654435761) >> 24) as u8).collect();
            for start in [0, 1, 7, 64] {
                for len in (0..300).chain(2000..2100).chain([2049, 4095, 4096, 4097, 6143, 8199]) {
                    let part = &bytes[start..start + len];
                    let expected = portable_read(part);
                    if is_x86_feature_detected!("avx512f") {
                        // SAFETY: detected.
                        assert_eq!(unsafe { avx512_read(part) }, expected, "{start} {len}");
                    }
                    if is_x86_feature_detected!("avx2") {
                        // SAFETY: detected.
                        assert_eq!(unsafe { avx2_read(part) }, expected, "{start} {len}");
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_the_sum_of_little_endian_words() {
        assert_eq!(read_bytes(&[]), 0);
        assert_eq!(read_bytes(&[1, 2]), 0x0201);
        let mut bytes = vec![0xff; 8];
        bytes.extend([2, 0, 0, 0, 0, 0, 0, 0, 3]);
        assert_eq!(read_bytes(&bytes), u64::MAX.wrapping_add(2).wrapping_add(3));
        // Every byte counts, wherever it is.
        let mut bytes = vec![0; 1000];
        for i in 0..bytes.len() {
            bytes[i] = 5;
            assert_eq!(read_bytes(&bytes), 5 << (8 * (i % 8)), "byte {i}");
            assert_eq!(portable_read(&bytes), 5 << (8 * (i % 8)), "byte {i}");
            bytes[i] = 0;
        }
    }
}
