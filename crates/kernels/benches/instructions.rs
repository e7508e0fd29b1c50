//! How many instructions the kernels take: a regression of a percent shows on the noisiest machine.
//!
//! `cargo bench -p arclight-kernels --bench instructions` runs every case once under Callgrind. That
//! knows AVX2 but not AVX-512, so the kernels of both sets that it can run are named here and not
//! detected: the algorithms are the same ones. Counts say nothing of memory, latency and clock
//! (`--bench kernels` does), and another compiler gives others, which is why none are committed:
//! save those of the code before a change and compare (CONTRIBUTING.md says how). Matrix results are
//! checked against the scalar twin first, outside what is counted.

#![allow(missing_docs, reason = "what the benchmark macros make")]

mod inputs;

use std::hint::black_box;
use std::process::{Command, Stdio};

use arclight_kernels::Isa::{self, Avx2, Scalar};
use arclight_kernels::{
    Activation, AttnTile, KV_CHUNK, Kernels, KvType, RopeStyle, Rows, RowsMut, TILE_ROWS,
    attn_scratch_len, attn_state_len, pack_tile, q8_row_bytes, tile_bytes,
};
use gguf::TensorType::{self, BF16, F16, F32, MXFP4, NVFP4, Q4_0, Q4_K, Q6_K, Q8_0};
use gungraun::{
    Callgrind, LibraryBenchmarkConfig, library_benchmark, library_benchmark_group, main,
};
use inputs::{Bytes, Matrix, Product, attn_tile, file_rows, noise};

/// Columns of a matrix, elements of a vector: long enough that what is done once per call does not
/// matter, short enough for a simulated processor.
const COLS: usize = 1024;
/// Some kernels take two tiles at a time.
const TILES: usize = 2;
const HEAD_DIM: usize = 128;

fn kernels(isa: Isa) -> &'static Kernels {
    let kernels = Kernels::for_isa(isa);
    kernels.unwrap_or_else(|| panic!("{isa} kernels do not run on this CPU under this valgrind"))
}

struct MatMul {
    matrix: Matrix,
    product: Product,
}

fn matmul_case(isa: Isa, ty: TensorType, tokens: usize) -> Box<MatMul> {
    let matrix = Matrix::noise(ty, COLS, TILES);
    let mut product = Product::noise(kernels(isa), ty, COLS, tokens, TILES);
    product.check(&matrix);
    Box::new(MatMul { matrix, product })
}

#[library_benchmark(setup = matmul_case)]
#[benches::avx2_x1(args = [
    (Avx2, Q4_0, 1), (Avx2, Q8_0, 1), (Avx2, Q4_K, 1), (Avx2, Q6_K, 1),
    (Avx2, MXFP4, 1), (Avx2, NVFP4, 1), (Avx2, F16, 1), (Avx2, BF16, 1), (Avx2, F32, 1),
])]
#[benches::avx2_x16(args = [
    (Avx2, Q4_0, 16), (Avx2, Q8_0, 16), (Avx2, Q4_K, 16), (Avx2, Q6_K, 16),
    (Avx2, MXFP4, 16), (Avx2, NVFP4, 16), (Avx2, F16, 16), (Avx2, BF16, 16), (Avx2, F32, 16),
])]
#[benches::scalar_x1(args = [
    (Scalar, Q4_0, 1), (Scalar, Q8_0, 1), (Scalar, Q4_K, 1), (Scalar, Q6_K, 1),
    (Scalar, MXFP4, 1), (Scalar, NVFP4, 1), (Scalar, F16, 1), (Scalar, BF16, 1), (Scalar, F32, 1),
])]
#[benches::scalar_x16(args = [
    (Scalar, Q4_0, 16), (Scalar, Q8_0, 16), (Scalar, Q4_K, 16), (Scalar, Q6_K, 16),
    (Scalar, MXFP4, 16), (Scalar, NVFP4, 16), (Scalar, F16, 16), (Scalar, BF16, 16), (Scalar, F32, 16),
])]
fn matmul(mut case: Box<MatMul>) -> Box<MatMul> {
    case.product.run(black_box(&case.matrix).view());
    case
}

struct Pack {
    ty: TensorType,
    rows: Vec<Vec<u8>>,
    tile: Bytes,
}

fn pack_case(ty: TensorType) -> Box<Pack> {
    let (rows, tile) = (file_rows(ty, COLS, TILE_ROWS), Bytes::zeroed(tile_bytes(ty, COLS)));
    Box::new(Pack { ty, rows, tile })
}

#[library_benchmark(setup = pack_case)]
#[benches::tile(args = [Q4_0, Q8_0, Q4_K, Q6_K, MXFP4, NVFP4, F16, BF16, F32])]
fn pack(mut case: Box<Pack>) -> Box<Pack> {
    let Pack { ty, rows, tile } = &mut *case;
    let rows: [&[u8]; TILE_ROWS] = std::array::from_fn(|r| rows[r].as_slice());
    pack_tile(*ty, &rows, COLS, tile);
    case
}

struct Vectors {
    kernels: &'static Kernels,
    /// `[COLS]` each.
    x: Vec<f32>,
    w: Vec<f32>,
    y: Vec<f32>,
    quants: Bytes,
}

fn vectors_case(isa: Isa) -> Box<Vectors> {
    Box::new(Vectors {
        kernels: kernels(isa),
        x: noise(1, COLS),
        w: noise(2, COLS),
        y: noise(3, COLS),
        quants: Bytes::zeroed(q8_row_bytes(COLS)),
    })
}

#[library_benchmark(setup = vectors_case)]
#[benches::isa(args = [Avx2, Scalar])]
fn quantize_q8(mut case: Box<Vectors>) -> Box<Vectors> {
    let Vectors { kernels, x, quants, .. } = &mut *case;
    kernels.quantize_q8(x, quants);
    case
}

#[library_benchmark(setup = vectors_case)]
#[benches::isa(args = [Avx2, Scalar])]
fn rms_norm(mut case: Box<Vectors>) -> Box<Vectors> {
    let Vectors { kernels, x, w, y, .. } = &mut *case;
    kernels.rms_norm(x, w, 1e-6, y);
    case
}

#[library_benchmark(setup = vectors_case)]
#[benches::isa(args = [Avx2, Scalar])]
fn swiglu(mut case: Box<Vectors>) -> Box<Vectors> {
    let Vectors { kernels, x, w, y, .. } = &mut *case;
    let n = y.len();
    kernels.gated(
        Activation::Silu,
        Rows::new(x, 1, n, n),
        Rows::new(w, 1, n, n),
        RowsMut::new(y, 1, n, n),
    );
    case
}

#[library_benchmark(setup = vectors_case)]
#[benches::isa(args = [Avx2, Scalar])]
fn rope_normal(mut case: Box<Vectors>) -> Box<Vectors> {
    let Vectors { kernels, w, y, .. } = &mut *case;
    kernels.rope(&mut y[..HEAD_DIM], &w[..HEAD_DIM], RopeStyle::Normal);
    case
}

#[library_benchmark(setup = vectors_case)]
#[benches::isa(args = [Avx2, Scalar])]
fn rope_neox(mut case: Box<Vectors>) -> Box<Vectors> {
    let Vectors { kernels, w, y, .. } = &mut *case;
    kernels.rope(&mut y[..HEAD_DIM], &w[..HEAD_DIM], RopeStyle::Neox);
    case
}

struct Attention {
    kernels: &'static Kernels,
    tile: AttnTile<'static>,
    scratch: Vec<f32>,
    /// Two states for every row.
    states: [Vec<f32>; 2],
}

fn attention_case(isa: Isa, kv: KvType, rows: usize) -> Box<Attention> {
    let kernels = kernels(isa);
    let tile = attn_tile(kernels, kv, HEAD_DIM, rows, KV_CHUNK);
    let mut scratch = vec![0.0; attn_scratch_len(rows)];
    let mut state = vec![0.0; rows * attn_state_len(HEAD_DIM)];
    kernels.attend_chunk(&tile, &mut scratch, &mut state);
    Box::new(Attention { kernels, tile, scratch, states: [state.clone(), state] })
}

#[library_benchmark(setup = attention_case)]
#[benches::avx2(args = [
    (Avx2, KvType::F16, 1), (Avx2, KvType::F16, 8),
    (Avx2, KvType::Q8_0, 1), (Avx2, KvType::Q8_0, 8),
    (Avx2, KvType::Q4_0, 1), (Avx2, KvType::Q4_0, 8),
])]
#[benches::scalar(args = [
    (Scalar, KvType::F16, 1), (Scalar, KvType::F16, 8),
    (Scalar, KvType::Q8_0, 1), (Scalar, KvType::Q8_0, 8),
    (Scalar, KvType::Q4_0, 1), (Scalar, KvType::Q4_0, 8),
])]
fn attend_chunk(mut case: Box<Attention>) -> Box<Attention> {
    let Attention { kernels, tile, scratch, states } = &mut *case;
    kernels.attend_chunk(tile, scratch, &mut states[0]);
    case
}

#[library_benchmark(setup = attention_case)]
#[benches::avx2(args = [(Avx2, KvType::F16, 1), (Avx2, KvType::F16, 8)])]
#[benches::scalar(args = [(Scalar, KvType::F16, 1), (Scalar, KvType::F16, 8)])]
fn attn_merge(mut case: Box<Attention>) -> Box<Attention> {
    let Attention { kernels, states: [acc, part], .. } = &mut *case;
    kernels.attn_merge(acc, part, HEAD_DIM);
    case
}

library_benchmark_group!(name = matrices, benchmarks = [matmul, pack]);
library_benchmark_group!(
    name = vectors,
    benchmarks = [quantize_q8, rms_norm, swiglu, rope_normal, rope_neox]
);
library_benchmark_group!(name = attention, benchmarks = [attend_chunk, attn_merge]);

/// Instructions only: the caches of a simulated processor are not this one's. The first thing that
/// the command asks for, so it looks for the tools too: their absence makes obscure errors later.
fn config() -> LibraryBenchmarkConfig {
    require("valgrind", "install your system's package of that name");
    require(
        option_env!("GUNGRAUN_RUNNER").unwrap_or("gungraun-runner"),
        "cargo install --locked gungraun-runner@0.20.0",
    );
    let mut config = LibraryBenchmarkConfig::default();
    config.tool(Callgrind::with_args(["--cache-sim=no"]));
    config
}

/// Ends the process unless there is such a program.
fn require(program: &str, remedy: &str) {
    let found = Command::new(program).arg("--version").stdout(Stdio::null()).status();
    if let Err(error) = found {
        eprintln!("counting instructions needs {program} ({error}): {remedy}");
        std::process::exit(1);
    }
}

main!(config = config(), library_benchmark_groups = [matrices, vectors, attention]);
