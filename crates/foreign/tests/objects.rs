//! Shared objects with kernels: what is taken, and what is refused.

use std::path::{Path, PathBuf};
use std::process::Command;

use arclight_foreign::{Fault, load};
use gguf::TensorType;
use kernels::{
    Acts, Foreign, How, Isa, Kernels, MatKernel, Piece, Rows, RowsMut, TILE_ROWS, Tiles, pack_tile,
    q8_row_bytes, tile_bytes,
};

/// Makes shared objects in a folder that goes away; nothing where there is no C compiler.
struct Builder(tempfile::TempDir);

impl Builder {
    fn new() -> Option<Self> {
        match Command::new("cc").arg("--version").output() {
            Ok(_) => Some(Self(tempfile::tempdir().unwrap())),
            Err(fault) => {
                eprintln!("skipped: no C compiler (cc): {fault}");
                None
            }
        }
    }

    /// `plain.c` with macros and other flags.
    fn build(&self, file: &str, flags: &[&str]) -> PathBuf {
        let (out, here) = (self.0.path().join(file), Path::new(env!("CARGO_MANIFEST_DIR")));
        let mut cc = Command::new("cc");
        cc.args([
            "-std=c11",
            "-O2",
            "-ffp-contract=off",
            "-shared",
            "-fPIC",
            "-Wall",
            "-Werror",
            "-I",
        ]);
        cc.arg(here.join("include")).args(flags).arg(here.join("tests/plain.c"));
        let built = cc.args(["-lm", "-o"]).arg(&out).output().unwrap();
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        out
    }
}

fn refused(path: &Path) -> (Fault, String) {
    let error = load(path).expect_err("it is wrong");
    let words = error.to_string();
    assert!(words.starts_with(&path.display().to_string()), "{words}");
    assert!(!words.contains('\n'), "{words}");
    (error.fault, words)
}

/// Packed tiles of random blocks, whose columns come in pieces.
fn matrix(ty: TensorType, tiles: usize, pieces: &[Piece], seed: &mut u64) -> Vec<u8> {
    let mut packed = Vec::new();
    for _ in 0..tiles {
        for piece in pieces {
            let rows: Vec<Vec<u8>> = (0..TILE_ROWS)
                .map(|_| {
                    let values: Vec<f32> = (0..piece.cols).map(|_| noise(seed)).collect();
                    let mut row = Vec::new();
                    ty.quantize(&values, &mut row).unwrap();
                    row
                })
                .collect();
            let rows: Vec<&[u8]> = rows.iter().map(Vec::as_slice).collect();
            let mut tile = vec![0; tile_bytes(ty, piece.cols)];
            pack_tile(ty, &rows, piece.cols, &mut tile);
            packed.extend(tile);
        }
    }
    packed
}

/// From -1 to 1 (Knuth's constants for 64 bits).
fn noise(seed: &mut u64) -> f32 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 40) as f32 / (1u64 << 23) as f32 - 1.0
}

/// The product in every number of tiles and tokens, beside the scalar kernel's, for columns in one piece, in a tree,
/// and with several roots.
fn same_bits(kernel: &'static Foreign, ty: TensorType) {
    let scalar = Kernels::for_isa(Isa::Scalar).unwrap();
    let mut seed = 7;
    let trees: [&[(usize, usize)]; 4] = [
        &[(3, 0)],
        &[(2, 0), (1, 1)],
        &[(1, 0), (2, 0), (1, 1), (3, 1)],
        &[(2, 0), (4, 0), (1, 1)],
    ];
    for pieces in trees {
        let piece = |&(blocks, folds): &(usize, usize)| Piece { cols: 32 * blocks, folds };
        let pieces: Vec<Piece> = pieces.iter().map(piece).collect();
        let cols: usize = pieces.iter().map(|piece| piece.cols).sum();
        let roots = Piece::roots(&pieces);
        for tiles in [1, 2, 3, 5] {
            let packed = matrix(ty, tiles, &pieces, &mut seed);
            let len = packed.len() / tiles;
            for tokens in [1, 2, 3, 4, 7, 16] {
                let bytes = q8_row_bytes(cols);
                let mut acts = vec![[0u8; 64]; tokens * bytes / 64];
                for row in acts.as_flattened_mut().chunks_exact_mut(bytes) {
                    let x: Vec<f32> = (0..cols).map(|_| noise(&mut seed)).collect();
                    scalar.quantize_q8(&x, row);
                }
                let width = roots * tiles * TILE_ROWS;
                let run = |kernels: &Kernels, kernel| {
                    let mut out = vec![f32::NAN; tokens * width];
                    let acts = Acts::Q8(Rows::new(acts.as_flattened(), tokens, bytes, bytes));
                    let tiles = Tiles::new(&packed, tiles, len, len);
                    let to = RowsMut::new(&mut out, tokens, width, width);
                    let how = How { kernel, ..How::default() };
                    kernels.matmul_by(how, ty, tiles, &pieces, acts, to);
                    out.into_iter().map(f32::to_bits).collect::<Vec<_>>()
                };
                let want = run(scalar, None);
                for kernels in Kernels::available() {
                    let got = run(kernels, Some(MatKernel::Foreign(kernel)));
                    assert!(got == want, "{ty}, {tiles} tiles, {tokens} tokens, {pieces:?}");
                }
            }
        }
    }
}

#[test]
fn kernels_of_a_file_stand_beside_the_family() {
    let Some(builder) = Builder::new() else { return };
    let file = builder.build("both.so", &["-DNAME=\"plain-8\"", "-DSECOND=\"plain-4\""]);
    let [eight, four] = load(&file).unwrap()[..] else { panic!("two kernels") };
    assert_eq!([eight.name(), four.name()], ["plain-8", "plain-4"]);
    assert_eq!(eight.product().unwrap().size(), (2, 3));
    assert_eq!(four.product().unwrap().size(), (1, 2));
    assert_eq!(eight.digest(), four.digest());
    let kernels = Kernels::detect().unwrap();
    for (kernel, ty, other) in
        [(eight, TensorType::Q8_0, TensorType::Q4_0), (four, TensorType::Q4_0, TensorType::Q8_0)]
    {
        let kernel = MatKernel::Foreign(kernel);
        assert!(kernels.mat_kernels(ty).contains(&kernel));
        assert!(!kernels.mat_kernels(other).contains(&kernel));
        assert_eq!(kernels.family(ty).len() + 1, kernels.mat_kernels(ty).len());
        let block = kernels.block(How { kernel: Some(kernel), ahead: 0 }, ty, 100);
        assert_eq!(
            (block.tiles, block.tokens, block.panel),
            if ty == TensorType::Q8_0 { (2, 3, false) } else { (1, 2, false) }
        );
    }
    same_bits(eight, TensorType::Q8_0);
    same_bits(four, TensorType::Q4_0);
    // Again it is the same; another file with these names is refused, as one of them would not be told from this.
    assert_eq!(load(&file).unwrap(), [eight, four]);
    let other = builder.build("other.so", &["-DNAME=\"plain-8\"", "-DTOKENS=2"]);
    assert!(matches!(refused(&other), (Fault::Taken(name), _) if name == "plain-8"));
    assert!(Foreign::loaded().contains(&eight));
}

#[test]
fn a_kernel_that_is_named_and_not_loaded_multiplies_nothing() {
    let kernel = Foreign::named("elsewhere", "0011223344556677");
    assert!(kernel.product().is_none() && !Foreign::loaded().contains(&kernel));
    assert_eq!(kernel, Foreign::named("elsewhere", "0011223344556677"));
    assert_ne!(kernel, Foreign::named("elsewhere", "7766554433221100"));
    let kernels = Kernels::detect().unwrap();
    assert!(!kernels.has_kernel(TensorType::Q8_0, MatKernel::Foreign(kernel)));
}

#[test]
fn a_kernel_that_differs_is_refused_with_the_figures() {
    let Some(builder) = Builder::new() else { return };
    for wrong in 1..=8 {
        let name = format!("-DNAME=\"wrong-{wrong}\"");
        let file = format!("wrong-{wrong}.so");
        let file = builder.build(&file, &[&name, &format!("-DWRONG={wrong}")]);
        let (fault, words) = refused(&file);
        let Fault::Differs { difference, .. } = fault else { panic!("{wrong}: {words}") };
        let beyond = matches!(wrong, 7 | 8);
        assert_eq!(difference.wrong.is_none(), beyond, "{words}");
        match (wrong, difference.wrong) {
            // Only the last row of the third token of the second tile.
            (5, Some((count, at, [got, want]))) => {
                assert_eq!((count, at, difference.rows, difference.tokens), (1, [31, 2], 32, 3));
                assert!(words.contains(&format!("row 31, token 2: {got:e} instead of {want:e}")));
            }
            (6, Some((_, at, _))) => assert_eq!((at, difference.tokens), ([3, 0], 1)),
            _ => {}
        }
        assert!(!Foreign::loaded().iter().any(|kernel| kernel.name() == format!("wrong-{wrong}")));
    }
}

#[test]
fn what_a_file_says_wrongly_is_named() {
    let Some(builder) = Builder::new() else { return };
    let cases: [(&[&str], &str); 15] = [
        (
            &["-DVERSION=2"],
            "kernels for version 2 of the interface, and this program has version 1",
        ),
        (&["-DLIST=other"], "no symbol arclight_kernels"),
        (&["-DCOUNT=0"], "a list of 0 kernels"),
        (&["-DCOUNT=1000"], "a list of 1000 kernels"),
        (&["-DNAME=0"], "kernel 1 has no name"),
        (&["-DTYPE=0"], "kernel 1 has no type"),
        (&["-DMULTIPLY=0"], "kernel 1 has no function"),
        (&["-DNAME=\"two words\""], "kernel \"two words\": a name has up to 64 letters"),
        (&["-DNAME=\"2x4\""], "kernel \"2x4\": a name has"),
        (&["-DNAME=\"usual\""], "kernel \"usual\": a name has"),
        (&["-DTYPE=\"Q6_K\""], "kernel \"plain\" is for \"Q6_K\": Q8_0 and Q4_0 are taken"),
        (&["-DINSTRUCTIONS=\"mmx\""], "needs \"mmx\", which is no instruction set: use one of"),
        (
            &["-DROWS=24"],
            "takes 24 rows by 3 tokens at once: rows must be 16 or a multiple up to 128",
        ),
        (&["-DTOKENS=33"], "takes 32 rows by 33 tokens at once"),
        (&["-DNAME=\"same\"", "-DSECOND=\"same\""], "kernel \"same\": another one that is loaded"),
    ];
    for (at, (flags, words)) in cases.into_iter().enumerate() {
        let (_, told) = refused(&builder.build(&format!("case-{at}.so"), flags));
        assert!(told.contains(words), "{told}");
    }
    // There is no CPU with all of them.
    let foreign = if cfg!(target_arch = "x86_64") { "neon" } else { "avx2" };
    let flag = format!("-DINSTRUCTIONS=\"{foreign}\"");
    let (_, told) = refused(&builder.build("isa.so", &[&flag]));
    assert!(told.contains(&format!("needs {foreign}, which this CPU does not have")), "{told}");
}

/// GCC's start files for -ffast-math change how the thread that loads them rounds.
#[test]
fn loading_changes_no_rounding_here() {
    let Some(builder) = Builder::new() else { return };
    // Its bits may be right or wrong.
    let _ = load(&builder.build("fast.so", &["-DNAME=\"fast\"", "-ffast-math"]));
    let least = std::hint::black_box(f32::MIN_POSITIVE);
    assert!(least * std::hint::black_box(0.5) > 0.0);
}

#[test]
fn what_is_no_shared_object_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing.so");
    assert!(matches!(refused(&missing), (Fault::Read(_), words) if words.contains("No such file")));
    let text = folder.path().join("text.so");
    std::fs::write(&text, "no kernel").unwrap();
    assert!(
        matches!(refused(&text), (Fault::Open(_), words) if words.contains("that can be loaded"))
    );
    assert!(matches!(refused(folder.path()).0, Fault::Read(_)));
}

/// What the header says of the packed forms and of activations: read here as it is written there.
#[test]
fn layouts_are_those_of_the_header() {
    let scalar = Kernels::for_isa(Isa::Scalar).unwrap();
    let mut x = [0.0f32; 64];
    (x[0], x[31], x[32], x[40]) = (127.0, -3.0, 1.0, -0.5);
    #[repr(align(64))]
    struct Row([[u8; 64]; 2]);
    let mut row = Row([[0; 64]; 2]);
    scalar.quantize_q8(&x, row.0.as_flattened_mut());
    let row = row.0;
    let word = |b: usize, at: usize| i32::from_le_bytes(row[b][at..at + 4].try_into().unwrap());
    let scale = |b: usize| f32::from_bits(word(b, 32) as u32);
    assert_eq!((row[0][0] as i8, row[0][31] as i8, scale(0)), (127, -3, 1.0));
    assert_eq!((word(0, 40), word(0, 52)), (-8 * 124, -128 * 124));
    assert_eq!((row[1][0] as i8, row[1][8] as i8, scale(1)), (127, -64, 1.0 / 127.0));
    assert_eq!((word(1, 40), word(1, 52)), (-8 * 63, -128 * 63));
    for (ty, group) in [(TensorType::Q8_0, 1088), (TensorType::Q4_0, 576)] {
        assert_eq!([2, 4].map(|blocks| tile_bytes(ty, 32 * blocks)), [group, 2 * group]);
        let one = 64 + (group - 64) / 2;
        assert_eq!([1, 3].map(|blocks| tile_bytes(ty, 32 * blocks)), [one, group + one]);
    }
}
