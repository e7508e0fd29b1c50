//! Idle time: what is done with a replica's engine while nobody needs it.

use super::queue::Shared;
use crate::engine::Engine;
use crate::error::Error;
use std::sync::Arc;

/// The time in which a replica has nothing to do, for who measures its engine.
///
/// A task begins only when the replica has had nothing to do for a second. Requests that come while it runs wait for
/// its end, so one should be no longer than a step. What it computes counts neither in
/// [`Replicas::counters`](super::Replicas::counters) nor in [`Replicas::status`](super::Replicas::status). It must leave
/// sequences as they are; [`Engine::time_step`] does.
#[derive(Clone)]
pub struct IdleTime {
    shared: Arc<Shared>,
    replica: usize,
}

impl IdleTime {
    pub(super) fn new(shared: Arc<Shared>, replica: usize) -> IdleTime {
        IdleTime { shared, replica }
    }

    /// Has the replica's engine do something when there is time; returns at once. Tasks are done one after the other.
    /// One that the replica does not come to before it ends is dropped.
    ///
    /// # Errors
    /// When the replica has ended, or is about to.
    pub fn ask(&self, task: impl FnOnce(&mut Engine) + Send + 'static) -> Result<(), Error> {
        self.shared.ask_idle(self.replica, Box::new(task))
    }
}
