//! Loading again what has failed.
//!
//! A replica whose step fails is out of service until its model is loaded anew. When all of a model's replicas have
//! failed, the server does that by itself. It waits before, and longer each time, so that a request that always brings
//! the model down, or a fault of the machine, does not keep it loading.

use crate::fault::Fault;
use crate::state::{App, Model};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// How often it is looked whether a model works.
pub(crate) const LOOK: Duration = Duration::from_millis(250);
/// The longest wait.
const LONGEST: Duration = Duration::from_secs(300);
/// A model that has worked for so long begins with the shortest wait again.
const SOUND: Duration = Duration::from_secs(600);

/// How long it is waited before a model is loaded again.
#[derive(Debug)]
pub(crate) struct Backoff {
    first: Duration,
    next: Duration,
}

impl Backoff {
    pub(crate) fn new(first: Duration) -> Backoff {
        Backoff { first, next: first }
    }

    /// It has failed after it had worked for some time.
    pub(crate) fn failed(&mut self, worked: Duration) -> Duration {
        if worked >= SOUND {
            self.next = self.first;
        }
        let wait = self.next;
        self.next = (wait * 2).min(LONGEST.max(self.first));
        wait
    }
}

impl Model {
    /// Why it has no replica that works any more.
    pub(crate) fn failure(&self) -> Option<String> {
        let status = self.replicas.status();
        let all = status.iter().all(|replica| replica.failure.is_some());
        status.into_iter().find_map(|replica| replica.failure).filter(|_| all)
    }

    /// Whether it will work again by itself: it looks for another host.
    pub(crate) fn comes_back(&self) -> bool {
        self.replicas.status().iter().any(|replica| replica.comes_back)
    }
}

/// 503: a model has failed, and is loaded again at a time.
pub(crate) fn refused(why: &str, again: Instant) -> Fault {
    let wait = again.saturating_duration_since(Instant::now()).as_secs_f64().ceil() as u32;
    let message = format!("{why}; the model is loaded again in {wait} s");
    Fault { retry_after: Some(wait.max(1)), ..Fault::unavailable(message).code("replica_failed") }
}

/// Gives a model's memory back when nobody has it any more; its threads are joined.
pub(crate) fn end(mut model: Arc<Model>) {
    loop {
        match Arc::try_unwrap(model) {
            Ok(model) => return drop(model),
            // Who asks for figures has it for a moment.
            Err(held) => model = held,
        }
        thread::sleep(Duration::from_millis(1));
    }
}

impl App {
    /// Ends a server that has been stopped: the model writes to the disk what it keeps there, and its memory is given
    /// back. Requests that were cut off may have it for a moment longer, of which no more than `time` is waited for.
    pub fn end(&self, time: Duration) {
        let begin = Instant::now();
        let Some(mut model) = self.take_stopped() else { return };
        while begin.elapsed() < time {
            match Arc::try_unwrap(model) {
                Ok(model) => return drop(model),
                Err(held) => model = held,
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Has the model loaded again whenever it has failed; ends when the server does. It keeps its thread.
    pub fn keep_loaded(&self, load: impl Fn() -> Result<Model, String>) {
        let mut backoff = Backoff::new(self.options.reload_wait);
        let mut since = Instant::now();
        loop {
            thread::sleep(LOOK);
            if self.check_running().is_err() {
                return;
            }
            let fatal = |model: Arc<Model>| model.failure().filter(|_| !model.comes_back());
            let Some(mut why) = self.model().ok().and_then(fatal) else {
                continue;
            };
            let mut worked = since.elapsed();
            loop {
                let wait = backoff.failed(worked);
                tracing::error!(model = self.name(), "{why}; it is loaded again in {wait:.1?}");
                if let Some(model) = self.fail(&why, Instant::now() + wait) {
                    end(model);
                }
                thread::sleep(wait);
                if self.check_running().is_err() {
                    return;
                }
                match load() {
                    Ok(model) => break self.ready(model),
                    Err(error) => (why, worked) = (error, Duration::ZERO),
                }
            }
            self.metrics.reloaded();
            tracing::info!(model = self.name(), "loaded again");
            since = Instant::now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_a_bound_and_begin_anew_after_a_good_while() {
        let mut backoff = Backoff::new(Duration::from_secs(1));
        let waits: Vec<u64> = (0..11).map(|_| backoff.failed(Duration::ZERO).as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
        assert_eq!(backoff.failed(SOUND).as_secs(), 1);
        assert_eq!(backoff.failed(SOUND - LOOK).as_secs(), 2);
    }
}
