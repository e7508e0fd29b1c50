//! Every matrix type on every instruction set: packing, products, bits.

mod common;

use arclight_kernels::{
    ActKind, Acts, Isa, Kernels, Piece, Rows, RowsMut, TILE_ROWS, Tiles, act_kind, is_unpacked,
    pack_tile, q8_row_bytes, tile_bytes,
};
use common::{
    Aligned, Matrix, Rng, TYPES, TestActs, halves, matmul, moderate, reference_q8, same_bits,
};
use gguf::TensorType;
use proptest::prelude::*;

fn scalar() -> &'static Kernels {
    Kernels::for_isa(Isa::Scalar).unwrap()
}

/// Miri takes a thousand times as long: one width, and few tokens.
const BLOCKS: &[usize] = if cfg!(miri) { &[1] } else { &[1, 2, 3, 5, 7] };
const TOKENS: usize = if cfg!(miri) { 2 } else { 20 };

/// Column counts that end in every way a layout can: single blocks, pairs, odd numbers of them.
fn widths(ty: TensorType) -> impl Iterator<Item = usize> {
    let unit = if ty.block_len() == 1 { 3 } else { ty.block_len() };
    BLOCKS.iter().map(move |n| n * unit)
}

#[test]
fn a_tile_gives_back_every_row_bit_for_bit() {
    let mut rng = Rng(1);
    for ty in TYPES {
        for cols in widths(ty) {
            for rows in [1, 7, 16] {
                let m = Matrix::arbitrary(ty, rows, cols, &mut rng);
                for kernels in Kernels::available() {
                    for (r, values) in m.values.iter().enumerate() {
                        let mut out = vec![f32::NAN; cols];
                        kernels.unpack_row(ty, m.tile.bytes(), cols, r, &mut out);
                        same_bits(&out, values, format_args!("{ty} {rows}x{cols}, row {r}"));
                    }
                }
            }
        }
    }
}

#[test]
fn tiles_are_whole_lines_and_hardly_larger_than_the_file() {
    for ty in TYPES {
        for blocks in 1..=40 {
            let cols = blocks * ty.block_len();
            let (tile, file) = (tile_bytes(ty, cols), 16 * blocks * ty.block_bytes());
            assert!(tile.is_multiple_of(64), "{ty}, {cols} columns: {tile} bytes");
            if is_unpacked(ty) {
                assert_eq!(tile, 16 * cols * 69 / 64, "{ty}: 8.625 bits for each value");
                continue;
            }
            let more = match ty {
                TensorType::Q3_K => 1.06,
                TensorType::TQ1_0 => 66.0 / 54.0,
                _ => 1.03,
            };
            assert!(
                tile as f64 <= file as f64 * more + 48.0,
                "{ty}, {cols} columns: {tile} for {file}"
            );
        }
    }
}

fn has_minima(ty: TensorType) -> bool {
    use TensorType::*;
    matches!(ty, Q4_1 | Q5_1 | Q2_K | Q4_K | Q5_K)
}

/// One output of one token: the sum in f64 over dequantised weights and activations, and how far
/// from it an f32 accumulation may end.
fn reference(m: &Matrix, row: usize, x: &[f32]) -> (f64, f64) {
    let acts: Vec<f64> = match act_kind(m.ty) {
        ActKind::F32 => x.iter().map(|&x| f64::from(x)).collect(),
        ActKind::Bf16 => x.iter().map(|&x| half::bf16::from_f32(x).to_f64()).collect(),
        ActKind::Q8 => {
            let (qs, ds) = reference_q8(x);
            qs.iter().enumerate().map(|(i, &q)| f64::from(q) * f64::from(ds[i / 32])).collect()
        }
    };
    let products = m.values[row].iter().zip(&acts).map(|(&w, &a)| f64::from(w) * a);
    let (mut sum, mut size) = (0.0, 0.0);
    for p in products {
        sum += p;
        size += p.abs();
    }
    // Products and minima cancel: the roundings are relative to the terms before they do.
    if has_minima(m.ty) {
        let top = m.values[row].iter().fold(0f64, |top, &w| top.max(f64::from(w).abs()));
        size += 4.0 * top * acts.iter().map(|a| a.abs()).sum::<f64>();
    }
    // Each column (each block of 32) adds roundings of at most an ulp of the partial sums, 2^-24 of
    // `size` at most each: the accumulation's, the scales' product's, the stored block sum's.
    let terms = if m.ty.block_len() == 1 { m.cols } else { m.cols / 16 * 2 + 4 };
    let rounding = size * (terms as f64 + 4.0) * 2f64.powi(-24) + 1e-30;
    let steps = if m.ty == TensorType::Q2_K { half_steps(&m.rows[row], x) } else { 0.0 };
    (sum, rounding + steps)
}

/// What Q2_K's minima may be off because the sums of 16 activations are rounded to steps, of which the
/// greatest scale of 256 columns has 16: half a step each.
fn half_steps(row: &[u8], x: &[f32]) -> f64 {
    let (_, ds) = reference_q8(x);
    let mut off = 0.0;
    for (block, ds) in row.chunks(84).zip(ds.chunks(8)) {
        let step = ds.iter().fold(0f32, |top, &d| top.max(d)) / 16.0;
        let unit = half::f16::from_le_bytes([block[82], block[83]]).to_f64();
        let minima: f64 = block[..16].iter().map(|&both| unit.abs() * f64::from(both >> 4)).sum();
        off += minima * f64::from(step) / 2.0;
    }
    off
}

#[test]
fn products_match_the_reference_and_the_scalar_twin_for_every_number_of_tokens() {
    let mut rng = Rng(2);
    for ty in TYPES {
        for cols in widths(ty) {
            let makes: &[fn(_, _, _, &mut Rng) -> Matrix] = if cfg!(miri) {
                &[Matrix::arbitrary]
            } else {
                &[Matrix::quantised, Matrix::arbitrary]
            };
            for make in makes {
                let rows = 1 + rng.next() as usize % 16;
                let m = make(ty, rows, cols, &mut rng);
                let x = rng.vec(TOKENS * cols);
                let acts = TestActs::new(scalar(), ty, &x, cols);
                let expected = matmul(scalar(), &m, acts.view(0..TOKENS));
                for (t, out) in expected.chunks(TILE_ROWS).enumerate() {
                    for (r, &y) in out.iter().enumerate() {
                        if r >= rows {
                            assert_eq!(y, 0.0, "{ty}: padding row {r}");
                            continue;
                        }
                        let (exact, bound) = reference(&m, r, &x[t * cols..][..cols]);
                        let error = (f64::from(y) - exact).abs();
                        assert!(
                            error <= bound,
                            "{ty} {cols}: {y} for {exact}, off by {error:e} > {bound:e}"
                        );
                    }
                }
                for kernels in Kernels::available() {
                    for tokens in 1..=TOKENS {
                        let what = format!("{} {ty} {rows}x{cols}, {tokens} tokens", kernels.isa());
                        let acts = TestActs::new(kernels, ty, &x[..tokens * cols], cols);
                        let out = matmul(kernels, &m, acts.view(0..tokens));
                        same_bits(&out, &expected[..tokens * TILE_ROWS], what);
                    }
                }
            }
        }
    }
}

#[test]
fn extreme_quants_do_not_saturate() {
    // All weights at an end of their range against all activations at an end of theirs.
    for ty in TYPES.into_iter().filter(|ty| ty.block_len() > 1) {
        for byte in [0x00, 0x7f, 0x80, 0xff] {
            let cols = 256;
            let mut row = vec![byte; cols / ty.block_len() * ty.block_bytes()];
            for block in row.chunks_exact_mut(ty.block_bytes()) {
                moderate(ty, block, &mut Rng(0));
                for &at in halves(ty) {
                    block[at..at + 2].copy_from_slice(&0x3c00u16.to_le_bytes());
                }
            }
            let m = Matrix::new(ty, vec![row], cols);
            for sign in [1.0f32, -1.0] {
                let x = vec![sign * 127.0; cols];
                for kernels in Kernels::available() {
                    let acts = TestActs::new(kernels, ty, &x, cols);
                    let out = matmul(kernels, &m, acts.view(0..1));
                    let (exact, bound) = reference(&m, 0, &x);
                    let error = (f64::from(out[0]) - exact).abs();
                    assert!(
                        error <= bound,
                        "{} {ty} {byte:#x}: {} for {exact}",
                        kernels.isa(),
                        out[0]
                    );
                }
            }
        }
    }
}

#[test]
fn outputs_go_to_their_columns_only() {
    let m = Matrix::quantised(TensorType::Q4_0, 16, 64, &mut Rng(3));
    let x = Rng(4).vec(3 * 64);
    for kernels in Kernels::available() {
        let acts = TestActs::new(kernels, m.ty, &x, 64);
        let dense = matmul(kernels, &m, acts.view(0..3));
        let mut wide = vec![7f32; 3 * 40];
        let view = RowsMut::new(&mut wide[10..], 3, TILE_ROWS, 40 - 2);
        kernels.matmul(m.ty, Tiles::one(m.tile.bytes()), &Piece::whole(64), acts.view(0..3), view);
        for (i, &v) in wide.iter().enumerate() {
            match (i + 38 - 10) % 38 {
                c if c < TILE_ROWS && (10..10 + 2 * 38 + TILE_ROWS).contains(&i) => {
                    assert_eq!(v.to_bits(), dense[(i - 10) / 38 * TILE_ROWS + c].to_bits());
                }
                _ => assert_eq!(v, 7.0, "element {i} belongs to others"),
            }
        }
    }
}

#[test]
fn quantised_activations_match_the_book() {
    let mut rng = Rng(5);
    let mut x = rng.vec(32 * 64);
    x[32..64].fill(0.0);
    x[64..96].fill(1e-40);
    x[100] = 1e30;
    x[130] = -3e-30;
    // Halves: the rounding must go to even.
    x[160..192].iter_mut().enumerate().for_each(|(i, v)| *v = i as f32 - 15.5);
    x[160] = 127.0;
    let (qs, ds) = reference_q8(&x);
    let m_one =
        Matrix::new(TensorType::Q8_0, vec![[&0x3c00u16.to_le_bytes()[..], &[1; 32]].concat()], 32);
    for kernels in Kernels::available() {
        let mut row = Aligned::new(q8_row_bytes(x.len()));
        kernels.quantize_q8(&x, row.bytes_mut());
        for (b, block) in row.bytes().chunks(64).enumerate() {
            let word = |at: usize| <[u8; 4]>::try_from(&block[at..at + 4]).unwrap();
            let q: Vec<i32> = block[..32].iter().map(|&q| i32::from(q as i8)).collect();
            assert_eq!(q, qs[32 * b..][..32], "{}: block {b}", kernels.isa());
            let sum: i32 = q.iter().sum();
            assert_eq!(f32::from_le_bytes(word(32)).to_bits(), ds[b].to_bits());
            assert_eq!(f32::from_le_bytes(word(36)), ds[b] * sum as f32);
            assert_eq!(i32::from_le_bytes(word(40)), -8 * sum);
            assert_eq!(i32::from_le_bytes(word(44)), -32 * q[..16].iter().sum::<i32>());
            assert_eq!(i32::from_le_bytes(word(48)), -32 * q[16..].iter().sum::<i32>());
            assert_eq!(i32::from_le_bytes(word(52)), -128 * sum);
            let step = ds[b / 8 * 8..].iter().take(8).fold(0.0, |a: f32, &d| a.max(d)) / 16.0;
            assert_eq!(f32::from_le_bytes(word(60)), step);
            for (half, at) in q.chunks(16).zip([56, 58]) {
                let sum = half.iter().sum::<i32>() as f32;
                let steps = i16::from_le_bytes([block[at], block[at + 1]]);
                assert_eq!(f32::from(steps), (sum * (ds[b] / step)).round_ties_even());
            }
        }
        // What is not a number must not become one.
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for at in [0, 15, 16, 31] {
                let mut x = rng.vec(32);
                x[at] = bad;
                let acts = TestActs::new(kernels, TensorType::Q8_0, &x, 32);
                let y = matmul(kernels, &m_one, acts.view(0..1))[0];
                assert!(!y.is_finite(), "{}: {bad} at {at} became {y}", kernels.isa());
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_shape_has_the_same_bits_alone_and_together(
        ty in prop::sample::select(TYPES.to_vec()),
        rows in 1usize..=16,
        blocks in 1usize..=12,
        tokens in 1usize..=40,
        seed: u64,
    ) {
        let mut rng = Rng(seed);
        let cols = blocks * ty.block_len();
        let m = Matrix::arbitrary(ty, rows, cols, &mut rng);
        let x = rng.vec(tokens * cols);
        let acts = TestActs::new(scalar(), ty, &x, cols);
        let best = Kernels::available().next().unwrap();
        let together = matmul(best, &m, TestActs::new(best, ty, &x, cols).view(0..tokens));
        for t in 0..tokens {
            let alone = matmul(scalar(), &m, acts.view(t..t + 1));
            same_bits(&alone, &together[t * TILE_ROWS..][..TILE_ROWS], format_args!("token {t}"));
        }
    }
}

#[test]
#[should_panic(expected = "33 columns are not whole Q4_0 blocks of 32")]
fn partial_blocks_are_refused() {
    tile_bytes(TensorType::Q4_0, 33);
}

#[test]
#[should_panic(expected = "a row of 17 bytes for 32 columns of Q4_0")]
fn short_rows_are_refused() {
    pack_tile(TensorType::Q4_0, &[&[0; 17]], 32, &mut [0; 320]);
}

#[test]
#[should_panic(expected = "Q4_0 weights need Q8 activations")]
fn the_wrong_kind_of_activations_is_refused() {
    let m = Matrix::quantised(TensorType::Q4_0, 1, 32, &mut Rng(6));
    let x = [0.0; 32];
    matmul(scalar(), &m, Acts::F32(Rows::new(&x, 1, 32, 32)));
}

#[test]
#[should_panic(expected = "output of 17 columns, not 16")]
fn an_output_of_another_width_is_refused() {
    let m = Matrix::quantised(TensorType::F32, 1, 32, &mut Rng(7));
    let acts = TestActs::new(scalar(), m.ty, &[0.0; 32], 32);
    let mut out = [0.0; 17];
    let out = RowsMut::new(&mut out, 1, 17, 17);
    scalar().matmul(m.ty, Tiles::one(m.tile.bytes()), &Piece::whole(32), acts.view(0..1), out);
}

#[test]
#[should_panic(expected = "1 output rows for 2 tokens")]
fn an_output_of_too_few_rows_is_refused() {
    let m = Matrix::quantised(TensorType::F32, 1, 32, &mut Rng(8));
    let acts = TestActs::new(scalar(), m.ty, &[0.0; 64], 32);
    let mut out = [0.0; 16];
    let out = RowsMut::new(&mut out, 1, 16, 16);
    scalar().matmul(m.ty, Tiles::one(m.tile.bytes()), &Piece::whole(32), acts.view(0..2), out);
}

#[test]
#[should_panic(expected = "Q8 rows of 64 bytes for 64 columns")]
fn activations_of_another_width_are_refused() {
    let m = Matrix::quantised(TensorType::Q8_0, 1, 64, &mut Rng(9));
    let acts = TestActs::new(scalar(), m.ty, &[0.0; 32], 32);
    matmul(scalar(), &m, acts.view(0..1));
}

#[test]
#[should_panic(expected = "quantised rows must be aligned to 4")]
fn misaligned_rows_are_refused() {
    let mut row = Aligned::new(65);
    scalar().quantize_q8(&[0.0; 32], &mut row.bytes_mut()[1..]);
}
