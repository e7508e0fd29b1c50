//! What summands are made of: whole numbers, so that every order of adding them up gives the same.

use super::LINE;

/// With more nodes the sums would leave the whole numbers that an f32 has.
pub const MOST_NODES: usize = 128;

/// What distinguishes a node's summand in a turn. Nodes differ, so that one taken twice for another
/// shows; turns differ, so that an old one shows.
pub(super) fn tag(node: usize, turn: usize) -> f32 {
    (3 * (node + 1) + turn % 64) as f32
}

/// The part of a summand's element that depends on its place.
pub(super) fn element(i: usize) -> f32 {
    (i % LINE + i / LINE % 1024) as f32
}

/// Writes a node's summand; `first` is the place of the first element, the start of a line.
pub(super) fn fill(part: &mut [f32], first: usize, tag: f32) {
    for (line, values) in part.chunks_mut(LINE).enumerate() {
        let tag = tag + element(first + line * LINE);
        for (i, value) in values.iter_mut().enumerate() {
            *value = tag + i as f32;
        }
    }
}

/// Reads everything.
pub(super) fn checksum(values: &[f32]) -> u32 {
    values.iter().fold(0, |sum, value| sum.wrapping_add(value.to_bits()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_exact_in_any_order() {
        let most = element(LINE - 1) + 1023.0 + tag(MOST_NODES - 1, 63);
        assert!(most * MOST_NODES as f32 <= (1 << f32::MANTISSA_DIGITS) as f32);
    }

    #[test]
    fn a_part_is_filled_as_if_it_were_filled_alone() {
        let (mut whole, mut part) = (vec![0.0; 5 * LINE + 3], vec![0.0; 2 * LINE]);
        fill(&mut whole, 0, 7.0);
        fill(&mut part, 3 * LINE, 7.0);
        assert_eq!(part, whole[3 * LINE..5 * LINE]);
        assert!(whole.iter().zip(0..).all(|(&value, i)| value == 7.0 + element(i)));
    }
}
