//! Loading again what has failed.
//!
//! A replica whose step fails is out of service. The server loads it again by itself while the others go on
//! ([`Mending`]); when all of a model's replicas have failed, it loads the whole model, from the file as it is then. It
//! waits before, and longer each time, so that a request that always brings the model down, or a fault of the machine,
//! does not keep it loading.

use crate::model::Model;
use crate::state::App;
use arclight_engine::{ReplicaStatus, Replicas};
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

    /// Why the whole of it has to be loaded again, if it has to.
    pub(crate) fn fatal(&self) -> Option<String> {
        let why = self.failure()?;
        let status = self.replicas.status();
        let returns = |replica: &ReplicaStatus| replica.comes_back || replica.restarting;
        (!status.iter().any(returns)).then_some(why)
    }
}

/// Has replicas of a model loaded again while others go on.
#[derive(Debug)]
pub(crate) struct Mending {
    first: Duration,
    replicas: Vec<Mended>,
}

#[derive(Debug)]
struct Mended {
    backoff: Backoff,
    /// Since when it has worked.
    since: Instant,
    /// When it is loaded again, of one that has failed.
    again: Option<Instant>,
    /// It was loaded again, and it is not known yet whether it works.
    tried: bool,
}

impl Mending {
    /// Of a model that has been loaded just now; the first wait.
    pub(crate) fn new(first: Duration) -> Mending {
        Mending { first, replicas: Vec::new() }
    }

    /// Looks at all replicas; how many work again.
    pub(crate) fn look(&mut self, name: &str, replicas: &Replicas) -> usize {
        let status = replicas.status();
        // The only one is the whole model, and so are all.
        if status.len() < 2 || status.iter().all(|one| one.failure.is_some()) {
            return 0;
        }
        let now = Instant::now();
        let first = self.first;
        self.replicas.resize_with(status.len(), || Mended {
            backoff: Backoff::new(first),
            since: now,
            again: None,
            tried: false,
        });
        let mut mended = 0;
        for (at, (one, status)) in self.replicas.iter_mut().zip(&status).enumerate() {
            match (&status.failure, one.again) {
                (None, _) => {
                    if std::mem::take(&mut one.tried) {
                        tracing::info!(model = name, "replica {at} is loaded again");
                        one.since = now;
                        mended += 1;
                    }
                }
                (Some(_), _) if status.restarting => {}
                (Some(why), None) => {
                    let worked = if one.tried { Duration::ZERO } else { now - one.since };
                    let wait = one.backoff.failed(worked);
                    tracing::error!(
                        model = name,
                        "replica {at}: {why}; it is loaded again in {wait:.1?}"
                    );
                    one.again = Some(now + wait);
                }
                (Some(_), Some(again)) if again <= now => {
                    one.again = None;
                    one.tried = true;
                    replicas.restart(at);
                }
                (Some(_), Some(_)) => {}
            }
        }
        mended
    }
}

impl App {
    /// Ends a server that has been stopped: the model writes to the disk what it keeps there, and its memory is given
    /// back. Requests that were cut off may have it for a moment longer, of which no more than `time` is waited for.
    pub fn end(&self, time: Duration) {
        if let Some(model) = self.take_stopped() {
            model.end(Some(time));
        }
    }

    /// Has the model loaded again whenever it has failed; ends when the server does. It keeps its thread.
    pub fn keep_loaded(&self, load: impl Fn() -> Result<Model, String>) {
        let mut backoff = Backoff::new(self.options.reload_wait);
        let mut mending = Mending::new(self.options.reload_wait);
        let mut since = Instant::now();
        loop {
            thread::sleep(LOOK);
            if self.check_running().is_err() {
                return;
            }
            let Ok(model) = self.model() else { continue };
            self.mend(&mut mending, &model);
            let fatal = model.fatal();
            drop(model);
            let Some(mut why) = fatal else { continue };
            let mut worked = since.elapsed();
            loop {
                let wait = backoff.failed(worked);
                tracing::error!(model = self.name(), "{why}; it is loaded again in {wait:.1?}");
                if let Some(model) = self.fail(&why, Instant::now() + wait) {
                    // Its requests have failed, and give it back.
                    model.end(None);
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
            mending = Mending::new(self.options.reload_wait);
            since = Instant::now();
        }
    }

    /// Has replicas of its model loaded again that have failed.
    pub(crate) fn mend(&self, mending: &mut Mending, model: &Model) {
        for _ in 0..mending.look(self.name(), &model.replicas) {
            self.metrics.reloaded();
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
