//! What products of bfloat16 mean, on every instruction set: rounding, order, the ends of the range.

mod common;

use arclight_kernels::{Isa, Kernels, TILE_ROWS, bf16_trial};
use common::{Matrix, Rng, TestActs, matmul};
use gguf::TensorType;
use half::bf16;

/// What counts as zero is below this.
const LEAST: f32 = 1.0 / (1u64 << 56) as f32;

/// An activation or a weight as it counts.
fn counts(x: f32) -> f32 {
    if x.abs() < LEAST { 0.0 } else { bf16::from_f32(x).to_f32() }
}

/// One output by the book: in pairs of columns the second first, every step rounded once.
fn reference(w: &[bf16], x: &[f32]) -> f32 {
    let fma = |acc, w: &bf16, x: &f32| counts(w.to_f32()).mul_add(counts(*x), acc);
    w.chunks(2).zip(x.chunks(2)).fold(0.0, |acc, (w, x)| {
        let acc = if w.len() == 2 { fma(acc, &w[1], &x[1]) } else { acc };
        fma(acc, &w[0], &x[0])
    })
}

fn matrix(rows: &[Vec<bf16>]) -> Matrix {
    let bytes = |row: &Vec<bf16>| row.iter().flat_map(|w| w.to_le_bytes()).collect();
    Matrix::new(TensorType::BF16, rows.iter().map(bytes).collect(), rows[0].len())
}

/// Sixteen rows times `x` (`[tokens, cols]`) on every instruction set against the reference.
#[track_caller]
fn check(rows: &[Vec<bf16>], x: &[f32]) {
    let (m, cols) = (matrix(rows), rows[0].len());
    for kernels in Kernels::available() {
        let acts = TestActs::new(kernels, TensorType::BF16, x, cols);
        let out = matmul(kernels, &m, acts.view(0..x.len() / cols));
        for (x, out) in x.chunks(cols).zip(out.chunks(TILE_ROWS)) {
            for (w, &got) in rows.iter().zip(out) {
                let want = reference(w, x);
                // The sign and payload of a NaN are open.
                let same = got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan();
                assert!(same, "{}: {got:e} for {want:e}, {w:?} times {x:?}", kernels.isa());
            }
        }
    }
}

/// A number of random sign and fraction, its exponent in `-low..high`.
fn number(rng: &mut Rng, (low, high): (i32, i32)) -> f32 {
    let exponent = low + (rng.next() >> 40) as i32 % (high - low);
    let bits = rng.next() as u32;
    f32::from_bits(bits & 0x807f_ffff | ((127 + exponent) as u32) << 23)
}

#[test]
fn sums_have_the_order_and_the_roundings_of_the_definition() {
    let mut rng = Rng(11);
    // Moderate; around the least that counts, where sums meet the subnormals if anything lets them
    // in; and up to overflow.
    for range in [(-8, 8), (-58, -52), (-60, -50), (-57, 40), (55, 70), (-126, 127)] {
        for cols in [1, 2, 3, 7, 8, 33, 64] {
            let weight = |rng: &mut Rng| bf16::from_f32(number(rng, range));
            let rows: Vec<Vec<bf16>> =
                (0..TILE_ROWS).map(|_| (0..cols).map(|_| weight(&mut rng)).collect()).collect();
            let x: Vec<f32> = (0..19 * cols).map(|_| number(&mut rng, range)).collect();
            check(&rows, &x);
        }
    }
}

#[test]
fn special_values_have_one_meaning() {
    // Zeros, the smallest and largest subnormals and normals, the two sides of what counts, numbers
    // that round to even, up, and over into infinity, infinities and NaNs.
    let specials = [
        0x0000_0000,
        0x0000_0001,
        0x007f_ffff,
        0x0080_0000,
        0x237f_ffff,
        0x2380_0000,
        0x2380_8000,
        0x237f_8000,
        0x3f80_0000,
        0x3f80_8000,
        0x3f81_8000,
        0x3f80_8001,
        0x7f7f_0000,
        0x7f7f_7fff,
        0x7f7f_8000,
        0x7f7f_ffff,
        0x7f80_0000,
        0x7f80_0001,
        0x7fc0_0000,
        0x7fff_ffff,
    ];
    let both = |bits: u32| [f32::from_bits(bits), f32::from_bits(bits | 0x8000_0000)];
    let values: Vec<f32> = specials.into_iter().flat_map(both).collect();
    let mut rng = Rng(12);
    for a in values.iter().map(|&w| bf16::from_bits((w.to_bits() >> 16) as u16)) {
        for cols in [1, 2, 5] {
            let mut pick = || values[rng.next() as usize % values.len()];
            let rows: Vec<Vec<bf16>> = (0..TILE_ROWS)
                .map(|r| {
                    let other = |c| bf16::from_bits(((r + c) as u16) << 7 | 0x3c00);
                    (0..cols).map(|c| if c == r % cols { a } else { other(c) }).collect()
                })
                .collect();
            let x: Vec<f32> =
                values.iter().flat_map(|&v| [v, pick(), pick(), 1.0, pick()]).collect();
            check(&rows, &x[..x.len() / cols * cols]);
        }
    }
}

#[test]
fn a_tile_gives_back_weights_as_they_count() {
    let tiny = [LEAST / 2.0, -LEAST / 2.0, 1e-40, 0.0, LEAST, -LEAST, 1.5, f32::INFINITY];
    let m = matrix(&[tiny.map(bf16::from_f32).to_vec()]);
    for kernels in Kernels::available() {
        let mut out = [f32::NAN; 8];
        kernels.unpack_row(m.ty, m.tile.bytes(), m.cols, 0, &mut out);
        assert_eq!(out, [0.0, 0.0, 0.0, 0.0, LEAST, -LEAST, 1.5, f32::INFINITY]);
    }
}

#[test]
fn both_ways_are_timed_where_there_are_two() {
    match (bf16_trial(), Isa::Avx512Bf16.is_available()) {
        (Some(trial), true) => assert!(trial.pairs > 0.0 && trial.widened > 0.0, "{trial:?}"),
        (trial, there) => assert!(trial.is_none() && !there, "{trial:?}"),
    }
}

#[test]
#[should_panic(expected = "Bf16 rows of 6 bytes for 4 columns")]
fn activations_of_another_width_are_refused() {
    use arclight_kernels::{Acts, Rows};
    let m = matrix(&[vec![bf16::ONE; 4]]);
    let kernels = Kernels::for_isa(Isa::Scalar).unwrap();
    matmul(kernels, &m, Acts::Bf16(Rows::new(&[0; 6], 1, 6, 6)));
}

#[test]
#[should_panic(expected = "a row of 7 bytes for 2 activations")]
fn rows_of_another_width_are_refused() {
    Kernels::for_isa(Isa::Scalar).unwrap().round_bf16(&[1.0; 2], &mut [0; 7]);
}
