//! Which way to multiply bfloat16 is the faster: a question that only a measurement answers.

use std::sync::OnceLock;
use std::time::Instant;

use crate::isa::Isa;
use crate::kernels::Kernels;
use crate::product::Product;

/// How `vdpbf16ps` and `f32` multiply-adds compare on this CPU. On some it is slower than widening,
/// and the bits are the same, so the faster is chosen.
#[derive(Clone, Copy, Debug)]
pub struct Bf16Trial {
    /// Multiply-accumulates per second of one thread with `vdpbf16ps`.
    pub pairs: f64,
    /// With weights widened for fused multiply-adds.
    pub widened: f64,
}

impl Bf16Trial {
    /// Whether `vdpbf16ps` is the faster.
    pub fn pays(&self) -> bool {
        self.pairs > self.widened
    }
}

/// Compares both ways to multiply bfloat16, once per process and in less than a millisecond; `None`
/// where the CPU lacks the instruction.
pub fn bf16_trial() -> Option<&'static Bf16Trial> {
    static TRIAL: OnceLock<Option<Bf16Trial>> = OnceLock::new();
    let try_both = || {
        let (pairs, widened) = (Kernels::for_isa(Isa::Avx512Bf16)?, Kernels::for_isa(Isa::Avx512)?);
        let mut best = Bf16Trial { pairs: 0.0, widened: 0.0 };
        // In turns, so that what disturbs one disturbs the other; the first warms up.
        for _ in 0..5 {
            best.pairs = best.pairs.max(rate(|| pairs.peak(Product::Bf16, TRIAL_ROUNDS)));
            best.widened = best.widened.max(rate(|| widened.peak(Product::Bf16, TRIAL_ROUNDS)));
        }
        Some(best)
    };
    TRIAL.get_or_init(try_both).as_ref()
}

/// Some 20 µs.
const TRIAL_ROUNDS: u64 = 1 << 13;

/// What `run` does per second.
fn rate(run: impl FnOnce() -> u64) -> f64 {
    let start = Instant::now();
    run() as f64 / start.elapsed().as_secs_f64()
}
