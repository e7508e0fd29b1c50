//! Numbers to quantise.

/// Gaussian values of standard deviation 1, the same on every run.
pub(crate) fn gaussian(n: usize, mut seed: u64) -> Vec<f32> {
    let mut uniform = || {
        // xorshift64*; the upper 24 bits make a float in (0, 1].
        seed ^= seed >> 12;
        seed ^= seed << 25;
        seed ^= seed >> 27;
        ((seed.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 40) + 1) as f64 / f64::from(1 << 24)
    };
    // Box-Muller.
    let value = || (-2.0 * uniform().ln()).sqrt() * (std::f64::consts::TAU * uniform()).cos();
    std::iter::repeat_with(value).take(n).map(|x| x as f32).collect()
}
