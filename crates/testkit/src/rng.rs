//! Reproducible random numbers (SplitMix64; Steele, Lea and Flood, 2014).

/// A generator that gives the same numbers for the same seed, on every machine.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// Starts from `seed`.
    pub fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    /// The stream of `seed` for the thing called `name`: it starts at the name's FNV-1a hash plus the seed.
    pub fn named(seed: u64, name: &str) -> Rng {
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325, |h: u64, byte| {
            (h ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
        Rng(hash.wrapping_add(seed))
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in `0..n`.
    pub fn below(&mut self, n: usize) -> usize {
        (self.bits() % n as u64) as usize
    }

    /// About normal, with deviation 1: the sum of twelve uniform numbers. In Miri, which takes a thousand times as long,
    /// one uniform number of that deviation.
    pub fn normal(&mut self) -> f32 {
        if cfg!(miri) {
            return ((self.bits() >> 40) as f32 / (1 << 24) as f32 - 0.5) * 12f32.sqrt();
        }
        (0..12).map(|_| (self.bits() >> 40) as f32 / (1 << 24) as f32).sum::<f32>() - 6.0
    }

    /// `n` numbers of deviation `scale`.
    pub fn normals(&mut self, n: usize, scale: f32) -> Vec<f32> {
        (0..n).map(|_| self.normal() * scale).collect()
    }
}
