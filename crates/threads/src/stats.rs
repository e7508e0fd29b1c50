//! How often and how long each thread waited.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::sync::Padded;

/// Waits of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// How many.
    pub count: u64,
    /// How long together, in nanoseconds, from arrival to departure.
    pub nanos: u64,
}

/// The waits of one thread, by how far they reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadStats {
    /// Waits for the threads of one group. In a pool of one group all waits are of this kind.
    pub local: Waits,
    /// Waits for all groups: [`Scope::Global`](crate::Scope), every wait in
    /// [`View::One`](crate::View), and switches of view.
    pub global: Waits,
}

/// The counters of one thread. Only that thread adds to them.
#[derive(Default)]
pub(crate) struct Counters {
    local: Pair,
    global: Pair,
}

#[derive(Default)]
struct Pair {
    count: AtomicU64,
    nanos: AtomicU64,
}

impl Pair {
    fn add(&self, took: Duration) {
        // Plain loads and stores: there is no second writer to lose an update to.
        self.count.store(self.count.load(Relaxed) + 1, Relaxed);
        self.nanos.store(self.nanos.load(Relaxed) + took.as_nanos() as u64, Relaxed);
    }

    fn get(&self) -> Waits {
        Waits { count: self.count.load(Relaxed), nanos: self.nanos.load(Relaxed) }
    }

    fn reset(&self) {
        self.count.store(0, Relaxed);
        self.nanos.store(0, Relaxed);
    }
}

impl Counters {
    /// One padded slot per thread.
    pub(crate) fn slots(threads: usize) -> Box<[Padded<Self>]> {
        (0..threads).map(|_| Padded(Self::default())).collect()
    }

    pub(crate) fn add(&self, global: bool, took: Duration) {
        let waits = if global { &self.global } else { &self.local };
        waits.add(took);
    }

    pub(crate) fn get(&self) -> ThreadStats {
        ThreadStats { local: self.local.get(), global: self.global.get() }
    }

    pub(crate) fn reset(&self) {
        self.local.reset();
        self.global.reset();
    }
}
