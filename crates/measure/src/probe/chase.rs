//! How long a core waits for one cache line: a walk whose every step depends on the one before.
//!
//! The lines of a buffer are linked into one cycle in an order that no prefetcher guesses. The
//! order is a formula, not a table: numbers below a power of two, scrambled by steps that can each
//! be undone (multiplying by an odd number; adding a number's upper half to its lower), so that it
//! visits every line once and costs no memory to lay out.

use std::time::{Duration, Instant};

/// Words in a cache line: 64 bytes. On CPUs whose lines are longer (128 bytes on some Arm and
/// POWER) every second step finds its line fetched already if it was not evicted meanwhile, which
/// in a buffer beyond the caches it was.
const LINE: usize = 8;

/// Links the lines of `words` into one cycle: word `8 i` says where the walk goes from there. As
/// many lines as the largest power of two that there is room for; nothing happens without a line.
pub fn lay_cycle(words: &mut [u64]) {
    let Some(bits) = (words.len() / LINE).checked_ilog2() else { return };
    let at = |step: u64| scramble(step, bits) as usize * LINE;
    let mut here = at(0);
    for step in 1..=1_u64 << bits {
        let next = at(step & ((1 << bits) - 1));
        words[here] = next as u64;
        here = next;
    }
}

/// Walks so many steps from `from` through what [`lay_cycle`] made, and says where it ended.
///
/// # Panics
/// `words` holds anything else.
pub fn chase(words: &[u64], from: usize, steps: usize) -> usize {
    (0..steps).fold(from, |at, _| words[at] as usize)
}

/// Nanoseconds per step of a walk of `steps`; `at` is where it begins, and where the next one goes
/// on: lines that were not visited before are not in a cache either.
///
/// # Panics
/// As [`chase`].
pub fn chase_nanoseconds(words: &[u64], at: &mut usize, steps: usize) -> f64 {
    let start = Instant::now();
    *at = std::hint::black_box(chase(words, *at, steps));
    let took: Duration = start.elapsed();
    took.as_secs_f64() * 1e9 / steps.max(1) as f64
}

/// A permutation of the numbers of `bits` bits.
fn scramble(number: u64, bits: u32) -> u64 {
    let mask = (1 << bits) - 1;
    let half = bits.div_ceil(2).max(1);
    // Odd constants with well-mixed low bits, from SplitMix64 and MurmurHash3.
    [0xbf58_476d_1ce4_e5b9_u64, 0x94d0_49bb_1331_11eb, 0xff51_afd7_ed55_8ccd].into_iter().fold(
        number ^ (number >> half),
        |number, odd| {
            let product = number.wrapping_mul(odd) & mask;
            product ^ (product >> half)
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_visits_every_line_once_and_returns() {
        for (len, lines) in [(8, 1), (15, 1), (16, 2), (63, 4), (8 * 4096, 4096), (8 * 5000, 4096)]
        {
            let mut words = vec![u64::MAX; len];
            lay_cycle(&mut words);
            let mut seen = vec![false; lines];
            let mut at = 0;
            for step in 0..lines {
                assert_eq!(at % LINE, 0);
                assert!(!std::mem::replace(&mut seen[at / LINE], true), "{len}: step {step}");
                at = chase(&words, at, 1);
            }
            assert_eq!(at, 0, "{len}");
            assert_eq!(chase(&words, 0, 3 * lines), 0);
        }
        lay_cycle(&mut [0; 7]);
    }

    #[test]
    fn no_stride_is_frequent() {
        // Prefetchers follow equal strides; a random order of 4096 lines repeats one about once.
        let mut words = vec![0; LINE * 4096];
        lay_cycle(&mut words);
        let mut strides = std::collections::BTreeMap::<i64, usize>::new();
        for at in (0..words.len()).step_by(LINE) {
            *strides.entry(words[at] as i64 - at as i64).or_default() += 1;
        }
        let most = strides.values().max().copied();
        assert!(most < Some(24), "{most:?}");
    }

    #[test]
    fn walks_go_on_where_the_last_one_ended() {
        let mut words = vec![0; LINE * 64];
        lay_cycle(&mut words);
        let mut at = 0;
        assert!(chase_nanoseconds(&words, &mut at, 40) > 0.0);
        assert_eq!(at, chase(&words, 0, 40));
        chase_nanoseconds(&words, &mut at, 24);
        assert_eq!(at, 0);
    }
}
