//! Random numbers that stay the same: a synthetic model is known by its name and seed, so its
//! numbers must not change with a dependency.
//!
//! Source: SplitMix64 (Steele, Lea and Flood, 2014), fast enough to fill gigabytes.

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    /// The stream of `seed` for the thing called `name`.
    pub(crate) fn new(seed: u64, name: &str) -> Rng {
        // FNV-1a of the name; one step mixes it with the seed.
        let hash = name.bytes().fold(0xCBF2_9CE4_8422_2325u64, |h, b| {
            (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01B3)
        });
        let mut rng = Rng(seed ^ hash);
        rng.0 = rng.next();
        rng
    }

    /// 64 random bits.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number in 0..1.
    pub(crate) fn unit(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 24) as f32
    }

    /// Random bytes.
    pub(crate) fn fill(&mut self, bytes: &mut [u8]) {
        let (words, rest) = bytes.as_chunks_mut::<8>();
        for word in words {
            *word = self.next().to_le_bytes();
        }
        let last = self.next().to_le_bytes();
        rest.copy_from_slice(&last[..rest.len()]);
    }

    /// A number below `n`, which must not be 0.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_is_that_of_the_paper() {
        // First outputs of SplitMix64 seeded with 1234567, as in the authors' reference.
        let mut rng = Rng(1_234_567);
        assert_eq!(rng.next(), 6_457_827_717_110_365_317);
        assert_eq!(rng.next(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn names_and_seeds_give_streams_of_their_own() {
        assert_ne!(Rng::new(1, "a").next(), Rng::new(1, "b").next());
        assert_ne!(Rng::new(1, "a").next(), Rng::new(2, "a").next());
        assert_eq!(Rng::new(1, "a").next(), Rng::new(1, "a").next());
    }
}
