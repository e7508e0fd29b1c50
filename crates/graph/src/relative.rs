//! Biases of attention by distance (T5; arXiv:1910.10683, section 2.1).
//!
//! A file has a number for each head and *bucket*: half of the buckets are for keys behind the token's own place. In
//! each half the first ones are a distance each, and the others runs of distances that grow by powers up to [`REACH`];
//! the last one has all that is farther. Here they become a number for each distance, which the kernels add to scores.

use kernels::bias_table_len;

/// The distance from which on all have the same bucket. No file states another.
pub(crate) const REACH: usize = 128;

/// Numbers of a head.
pub(crate) const LEN: usize = bias_table_len(REACH);

/// The bucket of a key `distance` behind the token's own place, of `buckets`. Rounded as in `transformers`, in single
/// precision.
fn bucket(distance: i64, buckets: usize) -> usize {
    let side = buckets / 2;
    let (behind, far) = (distance > 0, distance.unsigned_abs() as usize);
    let exact = side / 2;
    let of_side = if far < exact {
        far
    } else {
        let powers = (far as f32 / exact as f32).ln() / (REACH as f32 / exact as f32).ln();
        (exact + (powers * (side - exact) as f32) as usize).min(side - 1)
    };
    of_side + if behind { side } else { 0 }
}

/// `[buckets, heads]` as `[heads, distances]`.
pub(crate) fn spread(values: &[f32], buckets: usize) -> Vec<f32> {
    let heads = values.len() / buckets;
    let middle = (LEN / 2) as i64;
    let bucket = |at: usize| bucket(at as i64 - middle, buckets);
    let number = |head: usize| (0..LEN).map(move |at| values[bucket(at) * heads + head]);
    (0..heads).flat_map(number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `T5Attention._relative_position_bucket` of `transformers` 5.23: the first distance of each bucket of a side.
    #[test]
    fn buckets_are_those_of_transformers() {
        let firsts = |buckets: usize, sign: i64| -> Vec<i64> {
            let of = |d: &i64| bucket(sign * d, buckets) != bucket(sign * (d - 1), buckets);
            (1..400).filter(of).collect()
        };
        let sides = [1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91];
        assert_eq!(firsts(32, -1), sides);
        assert_eq!(firsts(32, 1), sides);
        assert_eq!((firsts(8, -1), firsts(8, 1)), (vec![1, 2, 16], vec![1, 2, 16]));
        assert_eq!(firsts(12, -1), [1, 2, 3, 11, 37]);
        assert_eq!(bucket(0, 32), 0);
        assert_eq!((bucket(1, 32), bucket(-1, 32)), (17, 1));
        assert_eq!((bucket(100_000, 32), bucket(-100_000, 32)), (31, 15));
    }

    #[test]
    fn every_head_has_a_number_for_each_distance() {
        let values: Vec<f32> = (0..32 * 3).map(|i| i as f32).collect();
        let all = spread(&values, 32);
        assert_eq!(all.len(), 3 * LEN);
        for head in 0..3 {
            let own = &all[head * LEN..][..LEN];
            let at = |distance: i64| own[(LEN as i64 / 2 + distance) as usize];
            assert_eq!(at(0), head as f32);
            assert_eq!(at(-3), (3 * 3 + head) as f32);
            assert_eq!(at(3), (19 * 3 + head) as f32);
            assert_eq!((own[0], own[LEN - 1]), ((15 * 3 + head) as f32, (31 * 3 + head) as f32));
        }
    }
}
