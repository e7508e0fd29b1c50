//! Blocks of 256 as small integers with few scales.
//!
//! The types whose values are rows of tables, and the ternary ones, differ in how they hide their
//! numbers, not in what the numbers are: a float for the block, a small whole number for every 16
//! elements, a signed byte for each. The products need at most 22 bits, so that `f32` holds them
//! exactly in whatever order they are multiplied.

/// A block: element `i` is `unit * scales[i / 16] * quants[i]`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Integers {
    /// Scale of the whole block.
    pub unit: f32,
    /// Scales of 16 elements each, at most 31.
    pub scales: [u8; 16],
    /// The elements, in -62..=62.
    pub quants: [i8; 256],
}

impl Integers {
    /// A block of zeros.
    pub const ZERO: Integers = Integers { unit: 0.0, scales: [0; 16], quants: [0; 256] };

    /// The elements as numbers.
    pub fn values(&self, to: &mut [f32; 256]) {
        let subs = to.as_chunks_mut::<16>().0.iter_mut().zip(self.quants.as_chunks::<16>().0);
        for ((to, quants), scale) in subs.zip(self.scales) {
            let scale = self.unit * f32::from(scale);
            for (to, &quant) in to.iter_mut().zip(quants) {
                *to = scale * f32::from(quant);
            }
        }
    }
}
