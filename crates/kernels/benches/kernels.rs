//! How near the kernels come to the machine's limits.
//!
//! `cargo bench -p arclight-kernels [-- FILTER]`: for every instruction set and matrix type, GB/s
//! of packed weights for one token (weights in the cache: how much faster than memory the kernel
//! is) and G multiply-accumulates per second for more, beside the peak of the same instructions on
//! registers; then the other kernels. Every matrix result is checked against the scalar twin before
//! it is timed.

use std::hint::black_box;
use std::time::Instant;

use arclight_kernels::{
    ActKind, Acts, AttnTile, Isa, KV_CHUNK, KV_PAGE, Kernels, KvPageMut, KvPages, Piece, RopeStyle,
    Rows, RowsMut, TILE_ROWS, act_kind, attn_scratch_len, attn_state_len, pack_tile, q8_row_bytes,
    tile_bytes,
};
use gguf::TensorType;

const TYPES: [TensorType; 7] = [
    TensorType::Q4_0,
    TensorType::Q8_0,
    TensorType::Q4_K,
    TensorType::Q6_K,
    TensorType::F16,
    TensorType::BF16,
    TensorType::F32,
];
const COLS: usize = 2560;
/// Tiles that stay in the second cache level together.
const TILES: usize = 8;

/// Best seconds per call of five runs of at least 20 ms.
fn time(mut f: impl FnMut()) -> f64 {
    f();
    let mut calls = 1;
    let mut run = |calls: u32| {
        let start = Instant::now();
        (0..calls).for_each(|_| f());
        start.elapsed().as_secs_f64()
    };
    while run(calls) < 0.02 {
        calls *= 2;
    }
    (0..5).map(|_| run(calls) / f64::from(calls)).fold(f64::INFINITY, f64::min)
}

fn noise(seed: u64, len: usize) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..len).map(|_| next()).collect()
}

/// Memory at a multiple of 64 bytes.
fn aligned(buffer: &mut Vec<u8>, len: usize) -> &mut [u8] {
    buffer.resize(len + 64, 0);
    let at = buffer.as_ptr().align_offset(64);
    &mut buffer[at..at + len]
}

fn matmuls(kernels: &Kernels, ty: TensorType, peak: f64) {
    let bytes = tile_bytes(ty, COLS);
    let mut tiles = Vec::new();
    let tiles = aligned(&mut tiles, TILES * bytes);
    for (i, tile) in tiles.chunks_mut(bytes).enumerate() {
        let rows: Vec<Vec<u8>> = (0..TILE_ROWS)
            .map(|r| {
                let mut row = Vec::new();
                ty.quantize(&noise((i * TILE_ROWS + r) as u64, COLS), &mut row).expect("finite");
                row
            })
            .collect();
        let rows: Vec<&[u8]> = rows.iter().map(Vec::as_slice).collect();
        pack_tile(ty, &rows, COLS, tile);
    }
    print!("{:10} {:5}", kernels.isa(), ty.name());
    for tokens in [1, 2, 4, 8, 16, 32, 128] {
        let x = noise(99, tokens * COLS);
        let mut quants = Vec::new();
        let width = q8_row_bytes(COLS);
        let quants = aligned(&mut quants, tokens * width);
        let acts = match act_kind(ty) {
            ActKind::F32 => Acts::F32(Rows::new(&x, tokens, COLS, COLS)),
            ActKind::Q8 => {
                for (x, row) in x.chunks(COLS).zip(quants.chunks_mut(width)) {
                    kernels.quantize_q8(x, row);
                }
                Acts::Q8(Rows::new(quants, tokens, width, width))
            }
        };
        let mut out = vec![0.0; tokens * TILES * TILE_ROWS];
        let run = |kernels: &Kernels, out: &mut [f32]| {
            for (i, tile) in tiles.chunks(bytes).enumerate() {
                let stride = TILES * TILE_ROWS;
                let out = RowsMut::new(&mut out[i * TILE_ROWS..], tokens, TILE_ROWS, stride);
                kernels.matmul_tile(ty, tile, &Piece::whole(COLS), acts, out);
            }
        };
        let mut expected = out.clone();
        run(Kernels::for_isa(Isa::Scalar).expect("always there"), &mut expected);
        run(kernels, &mut out);
        assert!(
            out.iter().zip(&expected).all(|(a, b)| a.to_bits() == b.to_bits()),
            "{ty} is wrong"
        );
        let seconds = time(|| run(kernels, &mut out));
        if tokens == 1 {
            print!("  {:6.1} GB/s", (TILES * bytes) as f64 / seconds / 1e9);
        } else {
            let macs = (TILES * TILE_ROWS * COLS * tokens) as f64;
            print!(
                "  {tokens:3}: {:5.1} ({:2.0}%)",
                macs / seconds / 1e9,
                macs / seconds / peak * 100.0
            );
        }
    }
    println!();
}

fn attention(kernels: &Kernels, peak: f64) {
    const DIM: usize = 128;
    let pages = KV_CHUNK / KV_PAGE;
    let mut k = vec![vec![0u16; KV_PAGE * DIM]; pages];
    let mut v = k.clone();
    for key in 0..KV_CHUNK {
        let (page, slot) = (key / KV_PAGE, key % KV_PAGE);
        kernels.store_k(&noise(key as u64, DIM), KvPageMut::F16(&mut k[page]), slot);
        kernels.store_v(&noise(key as u64 + 1000, DIM), KvPageMut::F16(&mut v[page]), slot);
    }
    let k: Vec<&[u16]> = k.iter().map(Vec::as_slice).collect();
    let v: Vec<&[u16]> = v.iter().map(Vec::as_slice).collect();
    print!("{:10} attention, {KV_CHUNK} keys of {DIM}:", kernels.isa());
    for rows in [1, 2, 4, 8, 32] {
        let q = noise(7, rows * DIM);
        let limits = vec![KV_CHUNK as u32; rows];
        let tile = AttnTile {
            q: &q,
            rows,
            head_dim: DIM,
            limits: &limits,
            pages: KvPages::F16 { k: &k, v: &v },
        };
        let mut scratch = vec![0.0; attn_scratch_len(rows)];
        let mut out = vec![0.0; rows * attn_state_len(DIM)];
        let seconds = time(|| kernels.attend_chunk(&tile, &mut scratch, &mut out));
        let bytes = (2 * KV_CHUNK * DIM * 2) as f64;
        let macs = (2 * KV_CHUNK * DIM * rows) as f64;
        print!(
            "  {rows} rows {:.0} GB/s {:.1} GMAC/s ({:.0}%)",
            bytes / seconds / 1e9,
            macs / seconds / 1e9,
            macs / seconds / peak * 100.0
        );
    }
    println!();
}

fn vectors(kernels: &Kernels) {
    let (x, w) = (noise(1, COLS), noise(2, COLS));
    let mut y = x.clone();
    let mut quants = Vec::new();
    let quants = aligned(&mut quants, q8_row_bytes(COLS));
    let mut report = |name: &str, f: &mut dyn FnMut(&mut Vec<f32>)| {
        print!("  {name} {:.0}", time(|| f(black_box(&mut y))) * 1e9);
    };
    print!("{:10} ns for {COLS} floats:", kernels.isa());
    report("quantize_q8", &mut |_| kernels.quantize_q8(&x, quants));
    report("rms_norm", &mut |y| kernels.rms_norm(&x, &w, 1e-6, y));
    report("add", &mut |y| kernels.add(&x, &w, y));
    report("swiglu", &mut |y| kernels.swiglu(&x, &w, y));
    report("softmax", &mut |y| {
        y.copy_from_slice(&x);
        kernels.softmax(y);
    });
    report("argmax", &mut |_| {
        black_box(kernels.argmax(&x));
    });
    report("rope normal", &mut |y| kernels.rope(y, &w, RopeStyle::Normal));
    report("rope neox", &mut |y| kernels.rope(y, &w, RopeStyle::Neox));
    println!();
}

fn main() {
    // Cargo passes flags of its own, such as --bench.
    let filter = std::env::args().skip(1).find(|arg| !arg.starts_with('-'));
    let wanted = |name: &str| filter.as_ref().is_none_or(|filter| name.contains(filter.as_str()));
    println!(
        "weights of {TILES} tiles of 16 x {COLS}; GB/s at one token, then tokens: GMAC/s (share of peak)"
    );
    for kernels in Kernels::available().filter(|k| wanted(k.isa().name())) {
        let peak = |run: &dyn Fn(u64) -> u64| {
            let macs = run(100_000) as f64;
            macs / time(|| {
                run(100_000);
            })
        };
        let (peak_i8, peak_f32) = (peak(&|n| kernels.peak_i8(n)), peak(&|n| kernels.peak_f32(n)));
        println!(
            "{:10} limits: {:.1} G int8 MAC/s, {:.1} G f32 MAC/s",
            kernels.isa(),
            peak_i8 / 1e9,
            peak_f32 / 1e9
        );
        for ty in TYPES {
            let peak = if act_kind(ty) == ActKind::Q8 { peak_i8 } else { peak_f32 };
            matmuls(kernels, ty, peak);
        }
        attention(kernels, peak_f32);
        vectors(kernels);
    }
}
