//! Sums in the shape of a binary tree, as summands arrive: a stack of partial sums.
//!
//! Which sums are added when is laid down in [`crate::sum`].

use kernels::Kernels;

/// Most sums on the stack: one per level of a tree of up to 2^7 summands.
pub(crate) const LEVELS: usize = 8;

/// A stack of partial sums.
pub(crate) struct Tree<'a> {
    levels: &'a mut [f32], // [LEVELS, width]
    width: usize,
    depth: usize,
}

impl<'a> Tree<'a> {
    /// An empty sum of `width` elements in `scratch`, which must hold `LEVELS` times as many.
    pub(crate) fn new(scratch: &'a mut [f32], width: usize) -> Tree<'a> {
        Tree { levels: &mut scratch[..LEVELS * width], width, depth: 0 }
    }

    /// Takes a summand, which `write` puts into its place, and adds the topmost two `folds` times.
    pub(crate) fn push(&mut self, kernels: &Kernels, folds: usize, write: impl FnOnce(&mut [f32])) {
        write(&mut self.levels[self.depth * self.width..][..self.width]);
        self.depth += 1;
        for _ in 0..folds {
            let (below, top) = self.levels.split_at_mut((self.depth - 1) * self.width);
            let at = (self.depth - 2) * self.width;
            kernels.add_assign(&mut below[at..], &top[..self.width]);
            self.depth -= 1;
        }
    }

    /// The only sum on the stack, and room for as much; the next one begins.
    pub(crate) fn take(&mut self) -> (&mut [f32], &mut [f32]) {
        debug_assert_eq!(self.depth, 1, "folded");
        self.depth = 0;
        let (sum, rest) = self.levels.split_at_mut(self.width);
        (sum, &mut rest[..self.width])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folds_add_the_topmost_two() {
        let kernels = Kernels::detect().unwrap();
        let mut scratch = [0.0; LEVELS];
        let mut tree = Tree::new(&mut scratch, 1);
        // (1e8 + (1 + 2)) + 4: the inner sum first, or the small summands vanish.
        for (value, folds) in [(1e8, 0), (1.0, 0), (2.0, 2), (4.0, 1)] {
            tree.push(kernels, folds, |to| to[0] = value);
        }
        assert_eq!(tree.take().0[0], (1e8f32 + 3.0) + 4.0);
    }
}
