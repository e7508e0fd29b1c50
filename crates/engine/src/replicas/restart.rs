//! The replicas' threads, and loading one again that has failed while the others go on.
//!
//! The failed one's thread has ended then, and with it its engine has given its memory back: there is never a second
//! copy of its weights. It is loaded as it was at first, from the same file, on the same part of the machine.

use super::loader::{Loaded, Loader};
use super::queue::Shared;
use super::runner::serve;
use crate::error::Error;
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

/// The threads of all replicas.
pub(super) struct Threads {
    running: Mutex<Vec<JoinHandle<()>>>, // [replica], empty when they were joined
    /// How each was loaded. With one replica nothing is kept: when it has failed, no other goes on, and the whole model
    /// can be loaded.
    loaders: Vec<Loader>,
    /// Ends what is being loaded.
    stop: Arc<AtomicBool>,
}

impl Threads {
    pub(super) fn new(started: Vec<(Loader, JoinHandle<()>)>, stop: Arc<AtomicBool>) -> Threads {
        let (mut loaders, running): (Vec<_>, Vec<_>) = started.into_iter().unzip();
        if loaders.len() == 1 {
            loaders.clear();
        }
        Threads { running: Mutex::new(running), loaders, stop }
    }

    /// Begins to load a replica again; whether it has.
    pub(super) fn restart(&self, me: usize, shared: &Arc<Shared>) -> bool {
        let Some(loader) = self.loaders.get(me) else { return false };
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if me >= running.len() || !shared.begin_restart(me) {
            return false;
        }
        let (loader, own) = (loader.clone(), shared.clone());
        // The old thread is handed over by a channel: where none can be begun, it stays.
        let (give, old) = std::sync::mpsc::sync_channel::<JoinHandle<()>>(1);
        let begun = thread::Builder::new().name(format!("replica-{me}")).spawn(move || {
            if let Ok(old) = old.recv() {
                // Its memory is given back. A panic was told to the requests that it concerned.
                let _ = old.join();
            }
            again(loader, own);
        });
        match begun {
            Ok(new) => {
                let _ = give.send(mem::replace(&mut running[me], new));
                true
            }
            Err(error) => {
                shared.restarted_not(me, &format!("no thread for it: {error}"));
                false
            }
        }
    }

    /// Waits until all have ended, which they have been told.
    pub(super) fn join(&mut self) {
        self.stop.store(true, Relaxed);
        let running = self.running.get_mut().unwrap_or_else(PoisonError::into_inner);
        for thread in running.drain(..) {
            // A panic was told to the requests that it concerned.
            let _ = thread.join();
        }
    }
}

/// Loads a replica and serves.
fn again(loader: Loader, shared: Arc<Shared>) {
    let me = loader.me;
    match loader.load(&mut |_| {}) {
        Ok(Loaded { mut crew, mut seat, .. }) => {
            // Counts go on.
            let (groups, experts) = shared.done(me);
            crew.watch.go_on(groups, experts);
            seat.groups = crew.watch.look(&mut crew.engine);
            seat.experts = crew.watch.experts();
            let serving = loader.serving.clone();
            drop(loader);
            shared.restarted(me, seat);
            tracing::info!("replica {me} is in service again");
            serve(me, crew, &serving, shared);
        }
        Err(error) => {
            let reason = match error {
                Error::Replica { source, .. } => source.to_string(),
                error => error.to_string(),
            };
            shared.restarted_not(me, &format!("it could not be loaded again: {reason}"));
        }
    }
}
