//! Sums in the shape of a binary tree, as summands arrive.
//!
//! After `2^k` summands the sum has the shape of a full tree, whatever has come before or comes
//! after: a node that holds an aligned power of two of segments computes a subtree of the whole.

use kernels::Kernels;

/// Levels of a tree of as many summands as there can be segments or nodes (2^7).
pub(super) const LEVELS: usize = 8;

/// A stack of partial sums, as a binary counter: each covers a power of two of summands.
pub(super) struct Tree<'a> {
    levels: &'a mut [f32], // [LEVELS, width]
    width: usize,
    depth: usize,
    summands: usize,
}

impl<'a> Tree<'a> {
    /// An empty sum of `width` elements in `scratch`, which must hold `LEVELS` times as many.
    pub(super) fn new(scratch: &'a mut [f32], width: usize) -> Tree<'a> {
        Tree { levels: &mut scratch[..LEVELS * width], width, depth: 0, summands: 0 }
    }

    /// Takes a summand, which `write` puts into its place.
    pub(super) fn push(&mut self, write: impl FnOnce(&mut [f32])) {
        write(&mut self.levels[self.depth * self.width..][..self.width]);
        self.depth += 1;
        self.summands += 1;
    }

    /// Adds up what is complete, or everything when the summand was the `last`.
    pub(super) fn fold(&mut self, kernels: &Kernels, last: bool) {
        let complete = self.summands.trailing_zeros() as usize;
        let adds = if last { self.depth - 1 } else { complete };
        for _ in 0..adds {
            let (below, top) = self.levels.split_at_mut((self.depth - 1) * self.width);
            let at = (self.depth - 2) * self.width;
            kernels.add_assign(&mut below[at..], &top[..self.width]);
            self.depth -= 1;
        }
    }

    /// The sum; the next one begins.
    pub(super) fn take(&mut self) -> &[f32] {
        debug_assert_eq!(self.depth, 1, "folded");
        (self.depth, self.summands) = (0, 0);
        &self.levels[..self.width]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(summands: &[f32]) -> f32 {
        let mut scratch = [0.0; LEVELS];
        let mut tree = Tree::new(&mut scratch, 1);
        for (i, s) in summands.iter().enumerate() {
            tree.push(|to| to[0] = *s);
            tree.fold(Kernels::detect().unwrap(), i + 1 == summands.len());
        }
        tree.take()[0]
    }

    #[test]
    fn subtrees_add_up_to_the_bits_of_the_whole() {
        // Summands whose sum depends on the order.
        let s = [1e8, 1.0, -1e8, 1.0, 0.1, 0.2, 0.3, 0.4f32];
        let whole = sum(&s);
        assert_ne!(whole, s.iter().sum::<f32>(), "the order matters here");
        for part in [1, 2, 4] {
            let parts: Vec<f32> = s.chunks(part).map(sum).collect();
            assert_eq!(sum(&parts), whole, "subtrees of {part}");
        }
        assert_eq!(sum(&[1.0, 2.0, 4.0]), 7.0);
    }
}
