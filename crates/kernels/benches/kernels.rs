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
    ActKind, Acts, AttnTile, Isa, KV_CHUNK, KV_PAGE, Kernels, KvPageMut, KvPages, KvType, Piece,
    RopeStyle, Rows, RowsMut, TILE_ROWS, Tiles, act_kind, attn_scratch_len, attn_state_len,
    pack_tile, q8_row_bytes, tile_bytes,
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

/// `x` in the form that matrices of type `ty` want.
fn acts<'a>(kernels: &Kernels, ty: TensorType, x: &'a [f32], rows: &'a mut Vec<u8>) -> Acts<'a> {
    let (kind, tokens) = (act_kind(ty), x.len() / COLS);
    let width = kernels.row_bytes(kind, COLS);
    let rows = aligned(rows, tokens * width);
    for (x, row) in x.chunks(COLS).zip(rows.chunks_mut(width)) {
        match kind {
            ActKind::F32 => {}
            ActKind::Bf16 => kernels.round_bf16(x, row),
            ActKind::Q8 => kernels.quantize_q8(x, row),
        }
    }
    match kind {
        ActKind::F32 => Acts::F32(Rows::new(x, tokens, COLS, COLS)),
        ActKind::Bf16 => Acts::Bf16(Rows::new(rows, tokens, width, width)),
        ActKind::Q8 => Acts::Q8(Rows::new(rows, tokens, width, width)),
    }
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
        let mut quants = [Vec::new(), Vec::new()];
        let [own, theirs] = &mut quants;
        let scalar = Kernels::for_isa(Isa::Scalar).expect("always there");
        let (acts, expected) = (acts(kernels, ty, &x, own), acts(scalar, ty, &x, theirs));
        let mut out = vec![0.0; tokens * TILES * TILE_ROWS];
        let run = |kernels: &Kernels, acts: Acts<'_>, out: &mut [f32]| {
            let width = TILES * TILE_ROWS;
            let out = RowsMut::new(out, tokens, width, width);
            let tiles = Tiles::new(tiles, TILES, bytes, bytes);
            kernels.matmul(ty, tiles, &Piece::whole(COLS), acts, out);
        };
        let mut right = out.clone();
        run(scalar, expected, &mut right);
        run(kernels, acts, &mut out);
        assert!(out.iter().zip(&right).all(|(a, b)| a.to_bits() == b.to_bits()), "{ty} is wrong");
        let seconds = time(|| run(kernels, acts, &mut out));
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

fn attention(kernels: &Kernels, kv: KvType, dim: usize, peak: f64) {
    let pages = KV_CHUNK / KV_PAGE;
    let mut k = vec![vec![0u8; kv.page_bytes(dim)]; pages];
    let mut v = k.clone();
    // SAFETY: bytes as half floats; a page of bytes is as aligned as anything that is allocated.
    let halves = |page: &mut [u8]| unsafe { page.align_to_mut::<u16>().1.to_vec() };
    let (mut k16, mut v16) = (Vec::new(), Vec::new());
    for page in 0..pages {
        k16.push(halves(&mut k[page]));
        v16.push(halves(&mut v[page]));
    }
    for key in 0..KV_CHUNK {
        let (page, slot) = (key / KV_PAGE, key % KV_PAGE);
        let (key, value) = (noise(key as u64, dim), noise(key as u64 + 1000, dim));
        if kv == KvType::Q8_0 {
            kernels.store_k(&key, KvPageMut::Q8_0(&mut k[page]), slot);
            kernels.store_v(&value, KvPageMut::Q8_0(&mut v[page]), slot);
        } else {
            kernels.store_k(&key, KvPageMut::F16(&mut k16[page]), slot);
            kernels.store_v(&value, KvPageMut::F16(&mut v16[page]), slot);
        }
    }
    let (k, v): (Vec<&[u8]>, Vec<&[u8]>) =
        (k.iter().map(Vec::as_slice).collect(), v.iter().map(Vec::as_slice).collect());
    let (k16, v16): (Vec<&[u16]>, Vec<&[u16]>) =
        (k16.iter().map(Vec::as_slice).collect(), v16.iter().map(Vec::as_slice).collect());
    print!("{:10} attention, {KV_CHUNK} keys of {dim}, {kv}:", kernels.isa());
    for rows in [1, 2, 4, 8, 16] {
        let q = noise(7, rows * dim);
        let mut quants = Vec::new();
        let quants = aligned(&mut quants, q8_row_bytes(rows * dim));
        kernels.quantize_q8(&q, quants);
        let limits = vec![KV_CHUNK as u32; rows];
        let pages = match kv {
            KvType::Q8_0 => KvPages::Q8_0 { q: quants, k: &k, v: &v },
            _ => KvPages::F16 { q: &q, k: &k16, v: &v16 },
        };
        let tile = AttnTile { rows, head_dim: dim, limits: &limits, pages, next: &[] };
        let mut scratch = vec![0.0; attn_scratch_len(rows)];
        let mut out = vec![0.0; rows * attn_state_len(dim)];
        let seconds = time(|| kernels.attend_chunk(&tile, &mut scratch, &mut out));
        let bytes = (2 * KV_CHUNK * kv.token_bytes(dim)) as f64;
        let macs = (2 * KV_CHUNK * dim * rows) as f64;
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
    report("swiglu", &mut |y| {
        let n = y.len();
        kernels.swiglu(Rows::new(&x, 1, n, n), Rows::new(&w, 1, n, n), RowsMut::new(y, 1, n, n));
    });
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
        let (peak_i8, peak_bf16) = (peak(&|n| kernels.peak_i8(n)), peak(&|n| kernels.peak_bf16(n)));
        let (peak_f16, peak_f32) = (peak(&|n| kernels.peak_f16(n)), peak(&|n| kernels.peak_f32(n)));
        println!(
            "{:10} limits, GMAC/s: int8 {:.1}, bf16 {:.1}, f16 {:.1}, f32 {:.1}",
            kernels.isa(),
            peak_i8 / 1e9,
            peak_bf16 / 1e9,
            peak_f16 / 1e9,
            peak_f32 / 1e9
        );
        for ty in TYPES {
            let peak = match ty {
                TensorType::BF16 => peak_bf16,
                TensorType::F16 => peak_f16,
                TensorType::F32 => peak_f32,
                _ => peak_i8,
            };
            matmuls(kernels, ty, peak);
        }
        for (kv, dim) in
            [(KvType::F16, 128), (KvType::F16, 64), (KvType::Q8_0, 128), (KvType::Q8_0, 64)]
        {
            attention(kernels, kv, dim, peak_f32);
        }
        vectors(kernels);
    }
}
