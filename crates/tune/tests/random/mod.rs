//! Noise that is the same every time.

/// A number of mean 0 and deviation 1: twelve even ones (xorshift64*) after `state`, which is not 0.
pub(crate) fn normal(state: &mut u64) -> f64 {
    let mut sum = -6.0;
    for _ in 0..12 {
        *state ^= *state >> 12;
        *state ^= *state << 25;
        *state ^= *state >> 27;
        let bits = state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11;
        sum += bits as f64 / (1u64 << 53) as f64;
    }
    sum
}
