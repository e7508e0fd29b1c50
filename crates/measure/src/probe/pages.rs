//! Which pages serve this machine best: base pages, transparent huge pages, or the pool's.
//!
//! A buffer of each kind is streamed and walked at random in turn. Weights are streamed, so the
//! read rate decides; what the kernel gave is asked of it, not assumed. The buffers are small beside
//! the caches of large servers: translation, which is what differs, costs the same there.

use std::time::{Duration, Instant};

use memory::{Error, HugePages, Policy, Warning};

use super::{Buffer, chase_nanoseconds, lay_cycle, read_bytes};

/// Bytes of each buffer.
const BYTES: usize = 64 << 20;
const ROUNDS: usize = 3;
/// Steps of a walk: about 1 ms.
const STEPS: usize = 10_000;
/// Differences below this are noise.
const NOISE: f64 = 0.03;

/// What one kind of page gave.
#[derive(Clone, Copy, Debug)]
pub struct PageTrial {
    /// The kind asked for.
    pub pages: HugePages,
    /// Bytes read per second by one core.
    pub read: f64,
    /// Nanoseconds to load a line at random.
    pub latency: f64,
    /// Bytes that really were on huge pages.
    pub huge_bytes: u64,
    /// Bytes in all.
    pub bytes: u64,
}

/// What [`huge_pages`] found.
#[derive(Debug)]
pub struct PageTrials {
    /// One for each kind of page that could be had, base pages first.
    pub trials: Vec<PageTrial>,
    /// The kind to use.
    pub best: HugePages,
    /// What the kernel refused. Usually the pool has no pages, which is not worth a warning.
    pub refused: Vec<Warning>,
    /// Time that it took.
    pub took: Duration,
}

/// Compares the kinds of pages with buffers placed by `policy`, on the calling thread. Takes some
/// tens of milliseconds and 192 MiB.
///
/// Transparent pages are recommended unless they are slower than base pages (they also make faults
/// and page tables fewer); the pool's pages, which others may have been promised, only when they
/// are faster.
///
/// # Errors
/// The kernel has no address space, or does not tell about pages.
pub fn huge_pages(policy: &Policy) -> Result<PageTrials, Error> {
    let start = Instant::now();
    let mut refused = Vec::new();
    let mut samples = Vec::new();
    for pages in [HugePages::Off, HugePages::Transparent, HugePages::Explicit] {
        let mut buffer = Buffer::new(BYTES, policy.clone(), pages)?;
        let granted = !buffer
            .warnings()
            .iter()
            .any(|w| matches!(w, Warning::NoHugePages { .. } | Warning::NoTransparentPages { .. }));
        refused.extend(buffer.take_warnings());
        if granted {
            lay_cycle(buffer.words_mut());
            samples.push(Sample { buffer, pages, at: 0, reads: vec![], walks: vec![] });
        }
    }
    // In turn, so that a change of the machine's speed meets them all.
    for _ in 0..ROUNDS {
        samples.iter_mut().for_each(Sample::measure);
    }
    let trials = samples.iter().map(Sample::result).collect::<Result<Vec<_>, _>>()?;
    Ok(PageTrials { best: best(&trials), trials, refused, took: start.elapsed() })
}

struct Sample {
    buffer: Buffer,
    pages: HugePages,
    at: usize,
    /// Seconds.
    reads: Vec<f64>,
    /// Nanoseconds.
    walks: Vec<f64>,
}

impl Sample {
    fn measure(&mut self) {
        let start = Instant::now();
        std::hint::black_box(read_bytes(self.buffer.bytes()));
        self.reads.push(start.elapsed().as_secs_f64());
        self.walks.push(chase_nanoseconds(self.buffer.words(), &mut self.at, STEPS));
    }

    fn result(&self) -> Result<PageTrial, Error> {
        let median = |samples| topology::median(samples).expect("passes were measured");
        Ok(PageTrial {
            pages: self.pages,
            read: self.buffer.len() as f64 / median(&self.reads),
            latency: median(&self.walks),
            huge_bytes: self.buffer.huge_bytes()?,
            bytes: self.buffer.len() as u64,
        })
    }
}

fn best(trials: &[PageTrial]) -> HugePages {
    let read = |pages| trials.iter().find(|t| t.pages == pages).map(|t| t.read);
    let base = read(HugePages::Off).unwrap_or(0.0);
    let (best, rate) = match read(HugePages::Transparent) {
        Some(rate) if rate >= base * (1.0 - NOISE) => (HugePages::Transparent, rate),
        _ => (HugePages::Off, base),
    };
    match read(HugePages::Explicit) {
        Some(explicit) if explicit > rate * (1.0 + NOISE) => HugePages::Explicit,
        _ => best,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(off: f64, transparent: Option<f64>, explicit: Option<f64>) -> HugePages {
        let trial = |(pages, read): (HugePages, Option<f64>)| {
            Some(PageTrial { pages, read: read?, latency: 0.0, huge_bytes: 0, bytes: 1 })
        };
        let kinds = [
            (HugePages::Off, Some(off)),
            (HugePages::Transparent, transparent),
            (HugePages::Explicit, explicit),
        ];
        best(&kinds.into_iter().filter_map(trial).collect::<Vec<_>>())
    }

    #[test]
    fn the_read_rate_decides_beyond_noise() {
        use HugePages::{Explicit, Off, Transparent};
        assert_eq!(chosen(10.0, Some(12.0), None), Transparent);
        assert_eq!(chosen(10.0, Some(9.9), None), Transparent);
        assert_eq!(chosen(10.0, Some(9.0), None), Off);
        assert_eq!(chosen(10.0, None, None), Off);
        assert_eq!(chosen(10.0, Some(12.0), Some(12.1)), Transparent);
        assert_eq!(chosen(10.0, Some(12.0), Some(13.0)), Explicit);
        assert_eq!(chosen(10.0, None, Some(13.0)), Explicit);
    }

    #[test]
    fn this_machine_is_measured() {
        let found = huge_pages(&Policy::Default).unwrap();
        assert_eq!(found.trials[0].pages, HugePages::Off);
        assert_eq!(found.trials[0].huge_bytes, 0);
        for trial in &found.trials {
            assert!(trial.read > 1e6 && trial.latency > 0.0, "{trial:?}");
            assert!(trial.bytes == BYTES as u64 && trial.huge_bytes <= trial.bytes, "{trial:?}");
            if trial.pages == HugePages::Explicit {
                assert_eq!(trial.huge_bytes, trial.bytes);
            }
        }
        assert!(found.trials.iter().any(|t| t.pages == found.best));
        // Each kind was measured or refused with a reason.
        assert!(found.trials.len() + found.refused.len() >= 3, "{found:?}");
    }
}
