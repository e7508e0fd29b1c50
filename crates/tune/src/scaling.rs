//! Amdahl's law, fitted to measured speeds: with a serial share *s*, *n* threads are
//! `1 / (s + (1 − s) / n)` times as fast as one.
//!
//! The law knows no bandwidth: where memory is full, its serial share stands for that too.

/// A serial share.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Amdahl {
    /// Share of one thread's time that more threads do not shorten, in 0..=1.
    pub serial: f64,
}

impl Amdahl {
    /// The share that fits best: least squares over the times, `1/S = 1/n + s (1 − 1/n)`, which are linear in
    /// it. `speeds` are numbers of threads and speeds over that of one thread. None if no number is above 1.
    pub fn fit(speeds: impl IntoIterator<Item = (usize, f64)>) -> Option<Amdahl> {
        let (mut product, mut square) = (0.0, 0.0);
        for (threads, speed) in speeds {
            let part = 1.0 / threads as f64;
            product += (1.0 - part) * (1.0 / speed - part);
            square += (1.0 - part) * (1.0 - part);
        }
        let serial = product / square;
        serial.is_finite().then(|| Amdahl { serial: serial.clamp(0.0, 1.0) })
    }

    /// Speed of so many threads over that of one.
    pub fn speedup(&self, threads: usize) -> f64 {
        1.0 / (self.serial + (1.0 - self.serial) / threads as f64)
    }

    /// Speed that no number of threads exceeds; none where nothing is serial.
    pub fn most(&self) -> Option<f64> {
        (self.serial > 0.0).then(|| 1.0 / self.serial)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_found_again() {
        // ZigLlama, section 7.3: p = 0.93 gives 3.1, 5.2 and 7.6 times.
        let law = Amdahl { serial: 0.07 };
        for (threads, speed) in [(4, 3.3), (8, 5.4), (16, 7.8)] {
            assert!((law.speedup(threads) - speed).abs() < 0.05, "{}", law.speedup(threads));
        }
        let found = Amdahl::fit([1, 2, 4, 8].map(|n| (n, law.speedup(n)))).unwrap();
        assert!((found.serial - 0.07).abs() < 1e-12, "{found:?}");
        assert!((found.most().unwrap() - 14.285).abs() < 0.01);
        // What one disturbed figure says counts less than three others.
        let disturbed = [(2, 1.0), (4, law.speedup(4)), (8, law.speedup(8)), (16, law.speedup(16))];
        let found = Amdahl::fit(disturbed).unwrap().serial;
        assert!(found > 0.07 && found < 0.2, "{found}");
    }

    #[test]
    fn shares_stay_shares() {
        assert_eq!(Amdahl::fit([(1, 1.0)]), None);
        assert_eq!(Amdahl::fit([]), None);
        // Faster than all threads could be, by a cache or by noise; and slower than one.
        assert_eq!(Amdahl::fit([(1, 1.0), (2, 2.5)]), Some(Amdahl { serial: 0.0 }));
        assert_eq!(Amdahl::fit([(2, 0.5)]), Some(Amdahl { serial: 1.0 }));
        assert_eq!(Amdahl { serial: 0.0 }.most(), None);
        assert_eq!(Amdahl { serial: 1.0 }.speedup(64), 1.0);
    }
}
