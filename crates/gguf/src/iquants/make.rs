//! Blocks of the IQ types below 4 bits, from values and weights.

use std::sync::LazyLock;

use super::codebook::Codebook;
use super::fit::{Choice, Format, LEN, Made};
use super::grids;
use crate::Error;
use crate::TensorType::{self, *};
use crate::search::{self, Weighed};

/// A type whose rows are magnitudes.
fn magnitudes<const W: usize, const L: usize>(
    ty: TensorType,
    table: &'static [[i8; W]],
    levels: [i8; L],
    sub: usize,
    divisor: f32,
) -> Format<W, L> {
    let book = Codebook::new(table, levels);
    // The fewer levels, the less the largest value counts. Up to 1.4 and 1.3.
    let range = if L == 3 { (0.3, 1.246) } else { (0.5, 1.146) };
    let shifts = &[0.0];
    Format { ty, table, book, levels, shifts, shift_by_row: false, sub, steps: 15, divisor, range }
}

/// A type whose rows are ternary values, off by an eighth.
fn ternary(ty: TensorType, sub: usize, shift_by_row: bool) -> Format<8, 3> {
    let levels = grids::ONE_BIT;
    let book = Codebook::new(&grids::IQ1, levels);
    let (table, shifts, range) = (&grids::IQ1, &[1.0, -1.0], (0.2, 1.258));
    Format { ty, table, book, levels, shifts, shift_by_row, sub, steps: 7, divisor: 8.0, range }
}

type Eights = LazyLock<Format<8, 3>>;
type Fours = LazyLock<Format<4, 8>>;

static XXS2: Eights =
    LazyLock::new(|| magnitudes(IQ2_XXS, &grids::IQ2_XXS, grids::TWO_BITS, 32, 8.0));
static XS2: Eights = LazyLock::new(|| magnitudes(IQ2_XS, &grids::IQ2_XS, grids::TWO_BITS, 16, 8.0));
static S2: Eights = LazyLock::new(|| magnitudes(IQ2_S, &grids::IQ2_S, grids::TWO_BITS, 16, 8.0));
static XXS3: Fours =
    LazyLock::new(|| magnitudes(IQ3_XXS, &grids::IQ3_XXS, grids::THREE_BITS_XXS, 32, 4.0));
static S3: Fours = LazyLock::new(|| magnitudes(IQ3_S, &grids::IQ3_S, grids::THREE_BITS_S, 32, 1.0));
static S1: Eights = LazyLock::new(|| ternary(IQ1_S, 32, false));
static M1: Eights = LazyLock::new(|| ternary(IQ1_M, 16, true));

/// Calls `to` with each block as its format stores it, and the signs of its eights.
fn make<const W: usize, const L: usize>(
    format: &Format<W, L>,
    signs: Signs,
    src: Weighed<'_>,
    mut to: impl FnMut(&Made, &[u8; LEN / 8]),
) -> Result<(), Error> {
    let own = match src.weights {
        Some(_) => Vec::new(),
        None => search::weights(src.x, &vec![1.0; src.x.len()]),
    };
    let src = Weighed { weights: src.weights.or(Some(&own)), ..src };
    for (i, x, w) in src.blocks::<LEN>() {
        let w = w.expect("just made");
        let mut x = *x;
        let mut bits = [0; LEN / 8];
        if signs != Signs::InRows {
            let eights = x.as_chunks_mut::<8>().0.iter_mut().zip(w.as_chunks::<8>().0);
            for (bits, (x, w)) in bits.iter_mut().zip(eights) {
                *bits = strip(x, w, signs == Signs::Even);
            }
        }
        to(&format.make(&x, w, i)?, &bits);
    }
    Ok(())
}

/// Where signs are.
#[derive(Clone, Copy, PartialEq)]
enum Signs {
    /// A bit for each value.
    Free,
    /// Seven bits for eight values, such that the number of minus signs is even.
    Even,
    /// The rows have them.
    InRows,
}

/// Takes the signs off eight values. Where their number must be even and is not, the value to
/// which its sign matters least keeps the wrong one.
fn strip(x: &mut [f32; 8], w: &[f32; 8], even: bool) -> u8 {
    let mut bits = x.iter().rev().fold(0u8, |bits, x| bits << 1 | u8::from(*x < 0.0));
    *x = x.map(f32::abs);
    if even && bits.count_ones() % 2 == 1 {
        let matters = |i: usize| w[i] * x[i];
        let least = (1..8).fold(0, |least, i| if matters(i) < matters(least) { i } else { least });
        x[least] = -x[least];
        bits ^= 1 << least;
    }
    bits
}

/// Four sevens of signs, and four bits of scale.
fn signs_and_scale(signs: &[u8], steps: u8) -> [u8; 4] {
    let sevens = signs.iter().rev().fold(0, |word, s| word << 7 | u32::from(s & 127));
    (sevens | u32::from(steps) << 28).to_le_bytes()
}

/// Pairs of four bits, low ones first.
fn nibbles(steps: &[u8]) -> impl Iterator<Item = u8> {
    steps.as_chunks::<2>().0.iter().map(|[low, high]| low | high << 4)
}

/// The low bytes of row numbers.
fn low_bytes(rows: &[Choice]) -> impl Iterator<Item = u8> {
    rows.iter().map(|choice| choice.row as u8)
}

/// What is left of row numbers, `bits` of each, the first lowest.
fn high_bits(rows: &[Choice], bits: usize) -> impl Iterator<Item = u8> {
    let byte = move |rows: &[Choice]| {
        rows.iter().rev().fold(0, |byte, choice| byte << bits | (choice.row >> 8) as u8)
    };
    rows.chunks(8 / bits).map(byte)
}

pub(crate) fn iq2_xxs_from_f32(src: Weighed<'_>, dst: &mut Vec<u8>) -> Result<(), Error> {
    make(&XXS2, Signs::Even, src, |made, signs| {
        dst.extend(made.half.to_le_bytes());
        for (j, rows) in made.rows[..32].chunks(4).enumerate() {
            dst.extend(low_bytes(rows));
            dst.extend(signs_and_scale(&signs[4 * j..][..4], made.steps[j]));
        }
    })
}

pub(crate) fn iq2_xs_from_f32(src: Weighed<'_>, dst: &mut Vec<u8>) -> Result<(), Error> {
    make(&XS2, Signs::Even, src, |made, signs| {
        dst.extend(made.half.to_le_bytes());
        let word = |(choice, signs): (&Choice, &u8)| choice.row | u16::from(signs & 127) << 9;
        dst.extend(made.rows.iter().zip(signs).map(word).flat_map(u16::to_le_bytes));
        dst.extend(nibbles(&made.steps));
    })
}

pub(crate) fn iq2_s_from_f32(src: Weighed<'_>, dst: &mut Vec<u8>) -> Result<(), Error> {
    make(&S2, Signs::Free, src, |made, signs| {
        dst.extend(made.half.to_le_bytes());
        let rows = &made.rows[..32];
        dst.extend(low_bytes(rows));
        dst.extend(signs);
        dst.extend(high_bits(rows, 2));
        dst.extend(nibbles(&made.steps));
    })
}

pub(crate) fn iq3_xxs_from_f32(src: Weighed<'_>, dst: &mut Vec<u8>) -> Result<(), Error> {
    make(&XXS3, Signs::Even, src, |made, signs| {
        dst.extend(made.half.to_le_bytes());
        dst.extend(low_bytes(&made.rows));
        for (signs, &steps) in signs.chunks(4).zip(&made.steps) {
            dst.extend(signs_and_scale(signs, steps));
        }
    })
}

pub(crate) fn iq3_s_from_f32(src: Weighed<'_>, dst: &mut Vec<u8>) -> Result<(), Error> {
    make(&S3, Signs::Free, src, |made, signs| {
        dst.extend(made.half.to_le_bytes());
        dst.extend(low_bytes(&made.rows));
        dst.extend(high_bits(&made.rows, 1));
        dst.extend(signs);
        dst.extend(nibbles(&made.steps[..8]));
    })
}

pub(crate) fn iq1_s_from_f32(src: Weighed<'_>, dst: &mut Vec<u8>) -> Result<(), Error> {
    make(&S1, Signs::InRows, src, |made, _| {
        dst.extend(made.half.to_le_bytes());
        let rows = &made.rows[..32];
        dst.extend(low_bytes(rows));
        for (rows, &steps) in rows.chunks(4).zip(&made.steps) {
            let high = rows.iter().rev().fold(0, |word, choice| word << 3 | choice.row >> 8);
            let down = u16::from(rows[0].shift < 0.0);
            dst.extend((high | u16::from(steps) << 12 | down << 15).to_le_bytes());
        }
    })
}

pub(crate) fn iq1_m_from_f32(src: Weighed<'_>, dst: &mut Vec<u8>) -> Result<(), Error> {
    make(&M1, Signs::InRows, src, |made, _| {
        let rows = &made.rows[..32];
        dst.extend(low_bytes(rows));
        let nibble = |choice: &Choice| (choice.row >> 8) as u8 | u8::from(choice.shift < 0.0) << 3;
        dst.extend(rows.chunks(2).map(|pair| nibble(&pair[0]) | nibble(&pair[1]) << 4));
        for (j, steps) in made.steps.chunks(4).enumerate() {
            let scales = steps.iter().rev().fold(0, |word, &steps| word << 3 | u16::from(steps));
            let part = made.half.to_bits() >> (4 * j) & 15;
            dst.extend((scales | part << 12).to_le_bytes());
        }
    })
}
