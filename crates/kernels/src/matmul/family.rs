//! The family of micro-kernels: what is multiplied in registers at once, and which sizes of it exist.
//!
//! A micro-kernel takes so many vectors of rows by so many tokens and runs along the columns, every
//! product's sum in a register (MKs of Sandwich, section 5). All of a type are one function with its
//! sizes as parameters, so all give the same bits; which is fastest depends on the CPU, the tokens at
//! hand and the matrix, and is for a search to find.

use std::fmt;
use std::str::FromStr;

use super::Tile;
use crate::cpu::usual;
use crate::simd::Dot;

/// A member of the family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MicroKernel {
    /// Vectors of rows: with AVX-512 as many tiles of 16 rows, with AVX2 halves of one tile.
    pub vectors: u8,
    /// Tokens.
    pub tokens: u8,
    /// Steps along the columns in one turn of the loop: of 64 columns with types that have two blocks
    /// in a group, of 32 with other blocks, of one or two columns with floats.
    pub unroll: u8,
    /// Whether weights are unpacked once for many tokens, and not in every register tile.
    pub panel: bool,
}

impl MicroKernel {
    pub(crate) const fn of((vectors, tokens, unroll): Size) -> Self {
        Self { vectors, tokens, unroll, panel: false }
    }

    pub(super) const fn size(self) -> Size {
        (self.vectors, self.tokens, self.unroll)
    }
}

impl fmt::Display for MicroKernel {
    /// Vectors x tokens, what is unrolled, and `p` for a panel: `2x4`, `2x4u2`, `2x6p`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.vectors, self.tokens)?;
        if self.unroll != 1 {
            write!(f, "u{}", self.unroll)?;
        }
        f.write_str(if self.panel { "p" } else { "" })
    }
}

impl FromStr for MicroKernel {
    type Err = MicroKernelError;

    fn from_str(name: &str) -> Result<Self, MicroKernelError> {
        let wrong = || MicroKernelError(name.to_owned());
        let number = |s: &str| s.parse::<u8>().map_err(|_| wrong());
        let (vectors, rest) = name.split_once('x').ok_or_else(wrong)?;
        let rest = rest.strip_suffix('p').unwrap_or(rest);
        let (tokens, unroll) = rest.split_once('u').unwrap_or((rest, "1"));
        let size = (number(vectors)?, number(tokens)?, number(unroll)?);
        let kernel = Self { panel: name.ends_with('p'), ..Self::of(size) };
        // One name for one kernel: no signs, no zeros in front.
        if kernel.to_string() == name { Ok(kernel) } else { Err(wrong()) }
    }
}

/// A text that is no name of a micro-kernel.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a micro-kernel: vectors x tokens are wanted, such as 2x4, 2x4u2 or 2x6p")]
pub struct MicroKernelError(String);

/// What a type's products are summed in.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sums {
    /// An integer for the block at hand beside the float for all.
    Integers,
    /// Floats, and weights that are loaded as such.
    Floats,
    /// Floats, and weights that are widened into two vectors.
    Pairs,
    /// Floats, by an instruction that takes pairs.
    #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "`vdpbf16ps` alone"))]
    Dots,
}

impl Sums {
    /// Registers that a micro-kernel wants: sums, weights, and what is at hand.
    const fn registers(self, vectors: u8, tokens: u8) -> usize {
        let (n, t) = (vectors as usize, tokens as usize);
        match self {
            Sums::Integers => 2 * n * t + 2 * n + 2,
            Sums::Floats | Sums::Dots => n * t + n + 1,
            Sums::Pairs => n * t + 2 * n + 1,
        }
    }
}

/// Vectors of rows, tokens, steps in a turn of the loop.
pub(crate) type Size = (u8, u8, u8);

/// Every size that is compiled where registers are many; the first so many for every type, so that there are
/// some for what larger ones leave.
#[rustfmt::skip]
const WIDE: [Size; SIZES] = [
    (1, 1, 1), (1, 2, 1), (1, 3, 1), (1, 4, 1), (2, 1, 1), (2, 2, 1), (2, 3, 1), (2, 4, 1),
    (1, 6, 1), (1, 8, 1), (1, 12, 1), (2, 6, 1), (2, 8, 1), (2, 12, 1), (4, 1, 1), (4, 2, 1), (4, 4, 1),
    (1, 1, 2), (1, 8, 2), (2, 4, 2),
];

/// The same where they are few, and a tile is two vectors (or, of plain Rust, one).
#[rustfmt::skip]
const NARROW: [Size; SIZES] = [
    (1, 1, 1), (1, 2, 1), (1, 4, 1), (2, 1, 1), (1, 8, 1),
    (1, 3, 1), (1, 6, 1), (1, 12, 1), (2, 2, 1), (2, 3, 1), (2, 4, 1), (2, 6, 1), (2, 1, 2), (1, 4, 2),
    NONE, NONE, NONE, NONE, NONE, NONE,
];

/// The same where they are many, and a tile is four vectors.
#[rustfmt::skip]
const QUARTERS: [Size; SIZES] = [
    (1, 1, 1), (2, 1, 1), (2, 2, 1), (2, 3, 1), (2, 4, 1), (4, 1, 1), (2, 8, 1),
    (1, 2, 1), (1, 4, 1), (1, 6, 1), (1, 8, 1), (1, 12, 1), (2, 6, 1), (4, 2, 1), (4, 3, 1), (4, 4, 1),
    (4, 1, 2), (2, 4, 2), (1, 8, 2),
    NONE,
];

/// For `vdpbf16ps`: fewer than 8 tokens take hardly less time than 8, so what is left over goes at once.
#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
pub(crate) const PAIRS: [Size; SIZES] = [
    (2, 8, 1), (2, 7, 1), (2, 6, 1), (2, 5, 1), (2, 4, 1), (2, 3, 1), (2, 2, 1), (2, 1, 1),
    (1, 8, 1), (1, 7, 1), (1, 6, 1), (1, 5, 1), (1, 4, 1), (1, 3, 1), (1, 2, 1), (1, 1, 1),
    (2, 12, 1), (4, 4, 1), (4, 2, 1), (4, 1, 1),
];

/// Sizes in a list.
pub(crate) const SIZES: usize = 20;
/// No size.
pub(super) const NONE: Size = (0, 0, 0);

/// How many of them every type has, whatever its registers.
const fn always<D: Dot>() -> usize {
    match D::GROUPS {
        _ if D::WIDE => 8,
        4 => 6,
        _ => 4,
    }
}

/// The sizes that are compiled for a type; none in the places of the others.
pub(crate) const fn sizes<D: Dot, K: Tile>() -> [Size; SIZES] {
    let mut sizes = match D::GROUPS {
        _ if D::WIDE => WIDE,
        4 => QUARTERS,
        _ => NARROW,
    };
    let usual = usual::<D, K>().size();
    let mut at = 0;
    while at < SIZES {
        let (n, t, u) = sizes[at];
        let fits = D::WIDE || n as usize <= D::GROUPS;
        let wanted = at < always::<D>()
            || n == usual.0 && t == usual.1 && u == usual.2
            || K::FAMILY && K::SUMS.registers(n, t) <= D::REGISTERS;
        if !(fits && wanted) {
            sizes[at] = NONE;
        }
        at += 1;
    }
    sizes
}
