//! Steps that are only timed, on an engine that serves: nothing of them stays.

use crate::engine::{BatchEntry, Engine};
use crate::error::Error;
use crate::sequence::SeqId;
use graph::Outputs;
use std::time::{Duration, Instant};

/// Steps that are timed together at most.
const MOST_STEPS: u32 = 64;

impl Engine {
    /// Seconds of a step of these tokens, which begin a sequence of their own: the mean of as many steps as take `least`
    /// together. A first one that takes less is not counted: what was in the caches before was another's.
    ///
    /// The sequence is gone afterwards, and neither the prefix cache nor a disk hears of it. Only pages that nobody holds
    /// are used: `None` if there are too few, or all sequences are in use. Logits of the last step are gone.
    ///
    /// # Errors
    /// As [`Engine::step`].
    pub fn time_step(&mut self, tokens: &[u32], least: Duration) -> Result<Option<f64>, Error> {
        let Ok(sequence) = self.new_sequence() else { return Ok(None) };
        // How long steps take tells whether reading pages pays: made-up ones are not to count there.
        let disk = self.disk.take();
        let timed = match self.kv.has_free(sequence, tokens.len()) {
            Ok(true) => self.time_steps(sequence, tokens, least).map(Some),
            Ok(false) => Ok(None),
            Err(e) => Err(e),
        };
        self.disk = disk;
        self.free(sequence)?;
        timed
    }

    fn time_steps(
        &mut self,
        sequence: SeqId,
        tokens: &[u32],
        least: Duration,
    ) -> Result<f64, Error> {
        let mut step = || {
            self.truncate(sequence, 0)?;
            let start = Instant::now();
            self.step(&[BatchEntry { sequence, tokens, outputs: Outputs::Last }])?;
            Ok::<_, Error>(start.elapsed())
        };
        let first = step()?;
        if first >= least {
            return Ok(first.as_secs_f64());
        }
        let (mut steps, mut took) = (0, Duration::ZERO);
        while steps < MOST_STEPS && took < least {
            took += step()?;
            steps += 1;
        }
        Ok(took.as_secs_f64() / f64::from(steps))
    }
}
