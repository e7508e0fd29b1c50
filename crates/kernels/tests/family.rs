//! Every member of the families of micro-kernels.

mod common;

use arclight_kernels::{
    How, Isa, Kernels, MicroKernel, Piece, RowsMut, TILE_ROWS, Tiles, act_kind, pack_tile,
    tile_bytes,
};
use common::{Aligned, Matrix, Rng, TYPES, TestActs, same_bits};
use gguf::TensorType;
use proptest::prelude::*;

fn scalar() -> &'static Kernels {
    Kernels::for_isa(Isa::Scalar).unwrap()
}

/// Tiles side by side, whose columns come in pieces of so many blocks.
struct Packed {
    bytes: Aligned,
    tiles: usize,
    pieces: Vec<Piece>,
    cols: usize,
}

impl Packed {
    fn new(ty: TensorType, tiles: usize, pieces: &[(usize, usize)], rng: &mut Rng) -> Self {
        // Columns of floats may be odd, if they are one piece.
        let unit = if pieces.len() == 1 { ty.block_len() } else { ty.block_len().max(32) };
        let pieces: Vec<Piece> =
            pieces.iter().map(|&(units, folds)| Piece { cols: units * unit, folds }).collect();
        let len = pieces.iter().map(|piece| tile_bytes(ty, piece.cols)).sum::<usize>();
        let mut bytes = Aligned::new(tiles * len);
        let mut rest = bytes.bytes_mut();
        for _ in 0..tiles {
            for piece in &pieces {
                let rows = Matrix::arbitrary(ty, 16, piece.cols, rng).rows;
                let rows: Vec<&[u8]> = rows.iter().map(Vec::as_slice).collect();
                let (own, after) = rest.split_at_mut(tile_bytes(ty, piece.cols));
                pack_tile(ty, &rows, piece.cols, own);
                rest = after;
            }
        }
        let cols = pieces.iter().map(|piece| piece.cols).sum();
        Self { bytes, tiles, pieces, cols }
    }

    fn times(&self, kernels: &Kernels, how: How, ty: TensorType, x: &[f32]) -> Vec<f32> {
        let tokens = x.len() / self.cols;
        let acts = TestActs::new(kernels, ty, x, self.cols);
        let len = self.bytes.bytes().len() / self.tiles;
        let width = Piece::roots(&self.pieces) * self.tiles * TILE_ROWS;
        let tiles = Tiles::new(self.bytes.bytes(), self.tiles, len, len);
        let mut out = vec![f32::NAN; tokens * width];
        let view = RowsMut::new(&mut out, tokens, width, width);
        kernels.matmul_by(how, ty, tiles, &self.pieces, acts.view(0..tokens), view);
        out
    }
}

#[test]
fn all_members_give_the_same_bits() {
    let mut rng = Rng(41);
    for ty in TYPES {
        // An odd number of blocks, and of groups, ends every unrolled loop; 7 tiles are 4, 2 and 1.
        let roots = &[(2, 0), (1, 1), (3, 0)];
        let tree = &[(1, 0), (2, 1), (3, 1)];
        for (tiles, pieces) in [(7, &[(5, 0)][..]), (3, tree), (1, &[(4, 0)]), (3, roots)] {
            let matrix = Packed::new(ty, tiles, pieces, &mut rng);
            let x = rng.vec(29 * matrix.cols);
            let expected = matrix.times(scalar(), How::default(), ty, &x);
            for kernels in Kernels::available() {
                for member in kernels.family(ty) {
                    // Remainders of one to eleven tokens, with register tiles before them and alone.
                    for tokens in (1..=13).chain([24, 29]) {
                        let ahead = [0, 4096, 100][tokens % 3];
                        let how = How { kernel: Some(member.into()), ahead };
                        let out = matrix.times(kernels, how, ty, &x[..tokens * matrix.cols]);
                        let what = format!("{} {ty} {member}, {tokens} tokens", kernels.isa());
                        same_bits(&out, &expected[..out.len()], what);
                    }
                }
            }
        }
    }
}

/// Types whose weights can be unpacked into panels.
const PANELS: [TensorType; 14] = {
    use TensorType::*;
    [Q4_0, Q4_1, Q4_K, Q5_0, Q5_1, Q5_K, Q6_K, Q8_0, IQ4_NL, IQ4_XS, MXFP4, NVFP4, TQ1_0, TQ2_0]
};

#[test]
fn panels_give_the_same_bits() {
    let mut rng = Rng(43);
    for ty in PANELS {
        let block = ty.block_len() / 32;
        // Sub-blocks of 32 columns: less than a panel, several with a rest, pieces of all lengths; and more
        // tiles than share a copy of the activations.
        let pieces = [(3 * 8, 0), (8, 1), (40, 0), (24, 2), (8, 1)];
        let pieces = pieces.map(|(subs, folds)| (subs / block, folds));
        let short = [(1, 0), (3, 1), (1, 0), (1, 1), (2, 1), (9, 0), (7, 0), (1, 4)];
        let roots = [(3, 0), (9, 0), (1, 1), (8, 0), (2, 0), (2, 1)];
        let trees = [(18, &pieces[..]), (2, &short[..]), (35, &roots[..])];
        let shapes = [(1, &pieces[1..2]), (3, &pieces[..1])].into_iter().chain(trees);
        for (tiles, pieces) in shapes {
            let pieces: Vec<_> = match pieces {
                &[(blocks, _)] => vec![(blocks, 0)],
                all => all.to_vec(),
            };
            let matrix = Packed::new(ty, tiles, &pieces, &mut rng);
            // More tokens than pass over a panel; remainders of every size.
            let most = if tiles == 3 { 205 } else { 31 };
            let x = rng.vec(most * matrix.cols);
            let expected = matrix.times(scalar(), How::default(), ty, &x);
            for kernels in Kernels::available().filter(|k| k.isa() != Isa::Scalar) {
                let panel = kernels.family(ty).into_iter().find(|member| member.panel);
                let panel = panel.unwrap_or_else(|| panic!("{} {ty} without", kernels.isa()));
                let counts: &[usize] = if tiles == 3 { &[95, 96, 97, 205] } else { &[8, 13, 31] };
                for tokens in (1..=7).chain(counts.iter().copied()) {
                    for kernel in [Some(panel.into()), None] {
                        let how = How { kernel, ahead: [4096, 0][tokens % 2] };
                        let out = matrix.times(kernels, how, ty, &x[..tokens * matrix.cols]);
                        let what = format!("{} {ty} {panel}, {tiles} x {tokens}", kernels.isa());
                        same_bits(&out, &expected[..out.len()], what);
                    }
                }
            }
        }
    }
}

/// Types that have all sizes.
const WHOLE: [TensorType; 8] = {
    use TensorType::*;
    [F32, F16, BF16, Q4_0, Q8_0, Q4_K, Q5_K, Q6_K]
};

#[test]
fn families_have_what_their_registers_hold() {
    for kernels in Kernels::available() {
        for ty in TYPES {
            let panels = kernels.family(ty).iter().any(|member| member.panel);
            assert_eq!(panels, PANELS.contains(&ty) && kernels.isa() != Isa::Scalar, "{ty}");
            let family = kernels.family(ty);
            let what = format!("{} {ty}: {family:?}", kernels.isa());
            let sizes = |m: &MicroKernel| (m.vectors, m.tokens);
            let has = |size| family.iter().any(|m| sizes(m) == size);
            for (i, member) in family.iter().enumerate() {
                assert!(!family[..i].contains(member), "{what}: {member} twice");
            }
            match kernels.isa() {
                Isa::Scalar => assert_eq!(family.len(), 1, "{what}"),
                _ if ty == TensorType::Q2_K => assert!(family.len() < 9, "{what}"),
                _ if !WHOLE.contains(&ty) => {}
                Isa::Avx2 | Isa::AvxVnni => assert!(has((1, 6)) && has((2, 2)), "{what}"),
                Isa::Neon | Isa::NeonDot | Isa::NeonI8mm => {
                    assert!(has((1, 12)) && has((4, 2)), "{what}");
                }
                Isa::Avx512Bf16 if ty == TensorType::BF16 => assert!(has((1, 8)), "{what}"),
                Isa::Avx512 | Isa::Avx512Bw | Isa::Avx512Bf16 | Isa::Amx => {
                    assert!(has((1, 12)) && has((2, 6)), "{what}");
                }
            }
            // Twice as many sums as floats have: of 8 by 2 vectors there are 32.
            if act_kind(ty) == arclight_kernels::ActKind::Q8 {
                assert!(!has((2, 8)) && !has((4, 4)), "{what}");
            }
        }
    }
}

/// The usual one may be named to whoever multiplies a part of a product: few tokens that are all there are go
/// by one vector or by four where registers are many, and the same few as a part of many do not.
#[test]
fn the_usual_one_is_chosen_by_all_tokens_of_a_product() {
    for kernels in Kernels::available() {
        for ty in TYPES {
            let all = kernels.mat_kernels(ty);
            for tokens in 1..=100 {
                let usual = kernels.usual(How::default(), ty, tokens, 2).kernel;
                assert!(usual.is_none_or(|usual| all.contains(&usual)), "{ty} {tokens}: {usual:?}");
                // What was chosen stays.
                for chosen in [
                    How { kernel: Some(all[0]), ..How::default() },
                    How { kernel: usual, ahead: 0 },
                ] {
                    assert_eq!(kernels.usual(chosen, ty, tokens, 1), chosen);
                }
                assert_eq!(kernels.usual(How { kernel: None, ahead: 64 }, ty, tokens, 1).ahead, 64);
            }
        }
        let wide =
            matches!(kernels.isa(), Isa::Avx512 | Isa::Avx512Bw | Isa::Avx512Bf16 | Isa::Amx);
        let member = |tokens| {
            kernels.usual(How::default(), TensorType::Q4_0, tokens, 2).kernel.expect("no panel")
        };
        // A thread by itself asks for what it reads once from further ahead, or as far as with others; steps of
        // many tokens do not know who is beside them.
        let ahead = |tokens, threads| {
            kernels.usual(How::default(), TensorType::Q4_0, tokens, threads).ahead
        };
        assert!(ahead(1, 1) >= ahead(1, 2), "{} and {}", ahead(1, 1), ahead(1, 2));
        assert_eq!(ahead(12, 1), ahead(12, 2));
        if wide {
            assert_ne!(member(1), member(12));
            assert_eq!([5, 8, 9].map(|tokens| kernels.kernel_size(member(tokens)).0), [1, 1, 2]);
        }
    }
}

proptest! {
    #[test]
    fn a_member_has_one_name(vectors: u8, tokens: u8, unroll: u8, panel: bool) {
        let kernel = MicroKernel { vectors, tokens, unroll, panel };
        prop_assert_eq!(kernel.to_string().parse(), Ok(kernel));
    }

    #[test]
    fn any_text_is_a_name_or_is_refused(text in "[0-9xu+-]{0,9}|.*") {
        if let Ok(kernel) = text.parse::<MicroKernel>() {
            prop_assert_eq!(kernel.to_string(), text);
        }
    }
}

#[test]
fn a_wrong_name_is_named() {
    let error = "2by4".parse::<MicroKernel>().unwrap_err().to_string();
    assert!(error.starts_with("\"2by4\" is not a micro-kernel"), "{error}");
}

#[test]
#[should_panic(expected = "has no Q4_0 kernel 9x9")]
fn a_kernel_that_is_not_of_the_family_is_refused() {
    let mut rng = Rng(43);
    let matrix = Packed::new(TensorType::Q4_0, 1, &[(1, 0)], &mut rng);
    let kernel = Some("9x9".parse().unwrap());
    let x = rng.vec(matrix.cols);
    matrix.times(scalar(), How { kernel, ahead: 0 }, TensorType::Q4_0, &x);
}
