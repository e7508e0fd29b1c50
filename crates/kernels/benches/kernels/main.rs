//! How near the kernels come to the machine's limits.
//!
//! `cargo bench -p arclight-kernels --bench kernels [-- FILTER...]`: for every instruction set and
//! matrix type, GB/s of packed weights for one token, from the cache (how much faster than memory the
//! kernel is) and from memory (beside what plain loads of the same bytes reach), and G
//! multiply-accumulates per second for more tokens, beside the peak of the same instructions on
//! registers; then attention and the vector kernels. Every matrix result is checked against the
//! scalar twin before it is timed. A line is measured if it contains every filter:
//! `-- avx512vnni q4_0`.

mod attention;
#[path = "../inputs/mod.rs"]
mod inputs;
mod matrix;
mod uncached;

use std::hint::black_box;
use std::time::Instant;

use arclight_kernels::{
    Activation, Kernels, KvType, Product, Products, RopeStyle, Rows, RowsMut, q8_row_bytes,
};
use gguf::TensorType;

use inputs::{Bytes, noise};
use uncached::Uncached;

const KVS: [(KvType, usize); 7] = [
    (KvType::F16, 128),
    (KvType::F16, 64),
    (KvType::Bf16, 128),
    (KvType::Q8_0, 128),
    (KvType::Q8_0, 64),
    (KvType::Q4_0, 128),
    (KvType::Q4_0, 64),
];
/// Columns of a matrix, elements of a vector.
const COLS: usize = 2560;

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

/// Multiply-accumulates per second of every product.
fn peaks(kernels: &Kernels) -> Products<f64> {
    const ROUNDS: u64 = 100_000;
    Products::new(|product| {
        let product = kernels.product(product);
        let macs = kernels.peak(product, ROUNDS) as f64;
        macs / time(|| {
            kernels.peak(product, ROUNDS);
        })
    })
}

fn vectors(label: &str, kernels: &Kernels) {
    let (x, w) = (noise(1, COLS), noise(2, COLS));
    let mut y = x.clone();
    let mut quants = Bytes::zeroed(q8_row_bytes(COLS));
    let mut report = |name: &str, f: &mut dyn FnMut(&mut Vec<f32>)| {
        print!("  {name} {:.0}", time(|| f(black_box(&mut y))) * 1e9);
    };
    print!("{label}, ns for {COLS} floats:");
    report("quantize_q8", &mut |_| kernels.quantize_q8(&x, &mut quants));
    report("rms_norm", &mut |y| kernels.rms_norm(&x, &w, 1e-6, y));
    report("add", &mut |y| kernels.add(&x, &w, y));
    report("swiglu", &mut |y| {
        let n = y.len();
        kernels.gated(
            Activation::Silu,
            Rows::new(&x, 1, n, n),
            Rows::new(&w, 1, n, n),
            RowsMut::new(y, 1, n, n),
        );
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

fn main() -> Result<(), memory::Error> {
    // Cargo passes flags of its own, such as --bench.
    let filters: Vec<String> =
        std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let wanted = |label: &str| {
        filters.iter().all(|f| label.to_lowercase().contains(f.to_lowercase().as_str()))
    };
    let mut uncached = Uncached::new()?;
    println!(
        "weights of {} tiles of 16 x {COLS}: GB/s for one token from the cache, and from memory \
         (share of plain loads); then tokens: GMAC/s (share of peak)",
        matrix::TILES
    );
    for kernels in Kernels::available() {
        let isa = kernels.isa();
        // Of the types that are unpacked, one that can be made stands for all.
        let types = gguf::TYPES.iter().map(|info| info.ty);
        let types = types.filter(|ty| ty.can_quantize() && *ty != TensorType::TQ1_0);
        let matrices = types.map(|ty| (ty, format!("{isa:10} matmul {:6}", ty.name())));
        let matrices: Vec<_> = matrices.collect();
        let tiles = KVS.map(|(kv, dim)| (kv, dim, format!("{isa:10} attention {kv} of {dim}")));
        let rest = format!("{isa:10} vectors");
        let labels = matrices.iter().map(|m| &m.1).chain(tiles.iter().map(|t| &t.2)).chain([&rest]);
        if !labels.into_iter().any(|label| wanted(label)) {
            continue;
        }
        let peaks = peaks(kernels);
        let own = peaks.iter().filter(|(product, _)| kernels.product(*product) == *product);
        let own = own.map(|(product, rate)| format!("{} {:.1}", product.name(), rate / 1e9));
        println!("{isa:10} limits, GMAC/s: {}", own.collect::<Vec<_>>().join(", "));
        for (ty, label) in matrices.iter().filter(|m| wanted(&m.1)) {
            matrix::report(label, kernels, *ty, peaks[Product::of(*ty)], &mut uncached);
        }
        for (kv, dim, label) in tiles.iter().filter(|t| wanted(&t.2)) {
            attention::report(label, kernels, *kv, *dim, peaks[Product::F32]);
        }
        if wanted(&rest) {
            vectors(&rest, kernels);
        }
    }
    Ok(())
}
