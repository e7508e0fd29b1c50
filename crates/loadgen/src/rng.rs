//! Random numbers that stay the same: a run is known by its seed, so its arrivals, lengths and words
//! must not change with a dependency. So is a synthetic model (`arclight synth`) by its name and seed.
//!
//! Sources: SplitMix64 (Steele, Lea and Flood, 2014); normal numbers by the polar method (Marsaglia and
//! Bray, 1964); gamma numbers by squeeze (Marsaglia and Tsang, 2000).

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// The stream of `seed` for the purpose `name`: purposes do not disturb each other.
    pub fn new(seed: u64, name: &str) -> Rng {
        // FNV-1a of the name; one step mixes it with the seed.
        let hash = name.bytes().fold(0xCBF2_9CE4_8422_2325u64, |h, b| {
            (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01B3)
        });
        let mut rng = Rng(seed ^ hash);
        rng.0 = rng.bits();
        rng
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number in 0..1.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A number in 0..1, of fewer bits.
    pub fn unit_f32(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1u64 << 24) as f32
    }

    /// Random bytes.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        let (words, rest) = bytes.as_chunks_mut::<8>();
        for word in words {
            *word = self.bits().to_le_bytes();
        }
        let last = self.bits().to_le_bytes();
        rest.copy_from_slice(&last[..rest.len()]);
    }

    /// A number below `n`, which must not be 0. (The bias is below n / 2⁶⁴.)
    pub fn below(&mut self, n: usize) -> usize {
        (self.bits() % n as u64) as usize
    }

    /// Exponential with mean 1.
    pub(crate) fn exponential(&mut self) -> f64 {
        // 1 − u is never 0.
        -(1.0 - self.unit()).ln()
    }

    fn normal(&mut self) -> f64 {
        loop {
            let (x, y) = (2.0 * self.unit() - 1.0, 2.0 * self.unit() - 1.0);
            let s = x * x + y * y;
            if s > 0.0 && s < 1.0 {
                return x * (-2.0 * s.ln() / s).sqrt();
            }
        }
    }

    /// Gamma with this shape and scale 1: mean and variance are `shape`.
    pub(crate) fn gamma(&mut self, shape: f64) -> f64 {
        if shape < 1.0 {
            // Γ(a) = Γ(a + 1) · U^(1/a)
            let u = 1.0 - self.unit();
            return self.gamma(shape + 1.0) * u.powf(1.0 / shape);
        }
        let d = shape - 1.0 / 3.0;
        let c = 1.0 / (9.0 * d).sqrt();
        loop {
            let x = self.normal();
            let v = (1.0 + c * x).powi(3);
            let u = 1.0 - self.unit();
            if v > 0.0 && u.ln() < 0.5 * x * x + d - d * v + d * v.ln() {
                return d * v;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_is_that_of_the_paper() {
        // First outputs of SplitMix64 seeded with 1234567, as in the authors' reference.
        let mut rng = Rng(1_234_567);
        assert_eq!(rng.bits(), 6_457_827_717_110_365_317);
        assert_eq!(rng.bits(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn names_and_seeds_give_streams_of_their_own() {
        assert_ne!(Rng::new(1, "a").bits(), Rng::new(1, "b").bits());
        assert_ne!(Rng::new(1, "a").bits(), Rng::new(2, "a").bits());
        assert_eq!(Rng::new(1, "a").bits(), Rng::new(1, "a").bits());
    }

    #[test]
    fn moments_are_those_of_the_distributions() {
        const N: usize = 200_000;
        let moments = |draw: &mut dyn FnMut() -> f64| {
            let samples: Vec<f64> = (0..N).map(|_| draw()).collect();
            let mean = samples.iter().sum::<f64>() / N as f64;
            let squares: f64 = samples.iter().map(|s| (s - mean).powi(2)).sum();
            (mean, squares / N as f64)
        };
        let mut rng = Rng::new(7, "moments");
        // The standard error of a mean is sd/√N, of a variance var·√((κ−1)/N) with the kurtosis κ:
        // 3 + 6/shape for gamma. Bounds are five of these.
        let (mean, variance) = moments(&mut || rng.normal());
        assert!(mean.abs() < 5.0 / (N as f64).sqrt());
        assert!((variance - 1.0).abs() < 5.0 * (2.0 / N as f64).sqrt(), "{variance}");
        for shape in [0.1, 0.25, 1.0, 2.5, 40.0] {
            let (mean, variance) = moments(&mut || rng.gamma(shape));
            let n = N as f64;
            assert!((mean - shape).abs() < 5.0 * (shape / n).sqrt(), "{shape}: {mean}");
            let error = shape * ((2.0 + 6.0 / shape) / n).sqrt();
            assert!((variance - shape).abs() < 5.0 * error, "{shape}: {variance}");
        }
        let (mean, variance) = moments(&mut || rng.exponential());
        assert!((mean - 1.0).abs() < 5.0 / (N as f64).sqrt(), "{mean}");
        assert!((variance - 1.0).abs() < 5.0 * (8.0 / N as f64).sqrt(), "{variance}");
    }
}
