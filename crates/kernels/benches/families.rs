//! The members of the families of micro-kernels against each other.
//!
//! `cargo bench -p arclight-kernels --bench families [-- FILTER...]`: for every instruction set and matrix
//! type that contain all filters (`-- avx512vnni Q4_0`), G multiply-accumulates a second of each member with a
//! matrix in the second cache, by tokens, beside the peak of the same instructions on registers in the same
//! turns; then GB/s of weights from memory for one token by prefetch distance. Members take turns and the
//! median of their turns counts. Every result is checked against the scalar twin first.

#[path = "inputs/mod.rs"]
#[allow(dead_code, reason = "every benchmark uses its part")]
mod inputs;

use std::time::Instant;

use arclight_kernels::{How, Isa, Kernels, MatKernel, Tiles, tile_bytes};
use gguf::TensorType;
use inputs::{Matrix, Product};
use measure::probe::{Buffer, read_bytes};
use memory::{HugePages, Policy};

const COLS: usize = 2560;
/// Tiles that stay in a second cache of 2 MiB together, and that every member divides.
const TILES: usize = 64;
const TOKENS: [usize; 12] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 96, 512];
const AHEAD: [usize; 8] = [0, 512, 1024, 2048, 4096, 6144, 8192, 16384];
const TURNS: usize = 7;
/// Seconds of a turn.
const TURN: f64 = 0.004;
/// More than any cache.
const BYTES: usize = 256 << 20;

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Median seconds of each of some ways, which take turns.
fn turns<const N: usize>(ways: usize, mut run: impl FnMut(usize)) -> Vec<f64> {
    let mut once = |way: usize, calls: u32| {
        let start = Instant::now();
        (0..calls).for_each(|_| run(way));
        start.elapsed().as_secs_f64() / f64::from(calls)
    };
    let calls: Vec<u32> =
        (0..ways).map(|way| (TURN / once(way, 1)).clamp(1.0, 1e6) as u32).collect();
    let mut times = vec![Vec::new(); ways];
    for _ in 0..N {
        for way in 0..ways {
            times[way].push(once(way, calls[way]));
        }
    }
    times.into_iter().map(median).collect()
}

/// Multiply-accumulates of the type's instructions on registers.
fn peak(kernels: &Kernels, ty: TensorType) -> u64 {
    kernels.peak(kernels.product(arclight_kernels::Product::of(ty)), 10_000)
}

fn families(kernels: &'static Kernels, ty: TensorType) {
    let members = kernels.mat_kernels(ty);
    let matrix = Matrix::noise(ty, COLS, TILES);
    println!("{} {}: GMAC/s, share of the peak", kernels.isa(), ty.name());
    print!("{:>8} {:>6}", "tokens", "peak");
    members.iter().for_each(|member| print!(" {:>10}", member.to_string()));
    println!();
    let of_peak = peak(kernels, ty) as f64;
    for tokens in TOKENS {
        let mut product = Product::noise(kernels, ty, COLS, tokens, TILES);
        let how = |m: usize| How { kernel: Some(members[m]), ..How::default() };
        for m in 0..members.len() {
            product.check_by(how(m), &matrix);
        }
        let times = turns::<TURNS>(1 + members.len(), |way| match way.checked_sub(1) {
            None => {
                std::hint::black_box(peak(kernels, ty));
            }
            Some(m) => product.run_by(how(m), matrix.view()),
        });
        let (peak, times) = (of_peak / times[0], &times[1..]);
        let macs = (TILES * 16 * COLS * tokens) as f64;
        let best = times.iter().copied().fold(f64::INFINITY, f64::min);
        print!("{tokens:>8} {:>6.0}", peak / 1e9);
        for &time in times {
            let mark = if time == best { '*' } else { ' ' };
            print!(" {:>5.0} {:>2.0}%{mark}", macs / time / 1e9, macs / time / peak * 100.0);
        }
        println!();
    }
}

fn distances(kernels: &'static Kernels, ty: TensorType, buffer: &mut Buffer) {
    let matrix = Matrix::noise(ty, COLS, TILES);
    let len = tile_bytes(ty, COLS);
    let (words, _) = matrix.bytes.as_chunks::<8>();
    for copy in buffer.words_mut().chunks_exact_mut(words.len()) {
        for (to, word) in copy.iter_mut().zip(words) {
            *to = u64::from_ne_bytes(*word);
        }
    }
    let count = BYTES / matrix.bytes.len() * TILES;
    let bytes = &buffer.bytes()[..count * len];
    let members = kernels.mat_kernels(ty);
    let of_one = |m: &&MatKernel| kernels.kernel_size(**m).1 <= 2;
    let members: Vec<MatKernel> =
        std::iter::once(members[0]).chain(members.iter().filter(of_one).copied()).collect();
    let mut product = Product::noise(kernels, ty, COLS, 1, count);
    let ways = 1 + members.len() * AHEAD.len();
    let times = turns::<TURNS>(ways, |way| match way.checked_sub(1) {
        None => {
            std::hint::black_box(read_bytes(bytes));
        }
        Some(way) => {
            let kernel = Some(members[way / AHEAD.len()]);
            let how = How { kernel, ahead: AHEAD[way % AHEAD.len()] };
            product.run_by(how, Tiles::new(bytes, count, len, len));
        }
    });
    let rate = |time: f64| bytes.len() as f64 / time / 1e9;
    println!("one token from memory, GB/s by bytes ahead; plain loads {:.1}", rate(times[0]));
    print!("{:>8}", "");
    AHEAD.iter().for_each(|ahead| print!(" {ahead:>6}"));
    println!();
    for (m, times) in times[1..].chunks(AHEAD.len()).enumerate() {
        print!("{:>8}", members[m].to_string());
        times.iter().for_each(|&time| print!(" {:>6.1}", rate(time)));
        println!();
    }
}

fn main() -> Result<(), memory::Error> {
    // Cargo passes flags of its own, such as --bench.
    let filters: Vec<String> =
        std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let mut buffer = Buffer::new(BYTES, Policy::Default, HugePages::Transparent)?;
    for kernels in Kernels::available().filter(|k| k.isa() != Isa::Scalar) {
        let types = gguf::TYPES.iter().map(|info| info.ty);
        // Of the types that are unpacked, one that can be made stands for all.
        for ty in types.filter(|ty| ty.can_quantize() && *ty != TensorType::TQ1_0) {
            let label = format!("{} {}", kernels.isa(), ty.name()).to_lowercase();
            if filters.iter().all(|f| label.contains(&f.to_lowercase())) {
                families(kernels, ty);
                distances(kernels, ty, &mut buffer);
            }
        }
    }
    Ok(())
}
