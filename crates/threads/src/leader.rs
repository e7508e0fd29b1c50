//! Lending the caller's thread to a pool: pinned while pools use it, given back afterwards.
//!
//! One thread may lead several pools in turn (one per plan, say), so what it is pinned to is a
//! property of the thread, and its own affinity comes back when the last of those pools goes.

use std::cell::RefCell;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use topology::CpuId;

use crate::affinity::{CpuSet, pin};

struct Led {
    /// How many pools this thread leads.
    pools: usize,
    /// The CPU that one of them asked for last.
    cpu: Option<CpuId>,
    /// Where the thread was allowed to run before the first of them.
    before: Option<CpuSet>,
}

static NEXT_KEY: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static LED: RefCell<Led> = const { RefCell::new(Led { pools: 0, cpu: None, before: None }) };
    /// Tells threads apart; unlike `ThreadId` it costs no allocation.
    static KEY: u64 = NEXT_KEY.fetch_add(1, Ordering::Relaxed);
}

/// Returns a function that gives the thread which calls it the CPUs that the present thread had before pools pinned it.
/// Call it on a new thread that is to run next to a pool. A new thread inherits the affinity of the
/// thread that starts it, which for the leader of a pool is one CPU.
pub fn unpinned() -> impl FnOnce() + Send {
    let before = LED.with_borrow(|led| led.before.clone());
    move || {
        // If the set has become impossible (a smaller cpuset), the thread stays where it is.
        _ = before.map(|before| before.apply());
    }
}

/// The part of thread 0 in one pool.
pub(crate) struct Leader {
    cpu: CpuId,
    thread: Option<u64>,
}

/// What [`Leader::take_part`] did that is worth a warning.
pub(crate) enum Trouble {
    NotPinned(io::Error),
    Moved,
}

impl Leader {
    pub(crate) fn new(cpu: CpuId) -> Self {
        Self { cpu, thread: None }
    }

    pub(crate) fn cpu(&self) -> CpuId {
        self.cpu
    }

    /// Belongs to another CPU from the next time on.
    pub(crate) fn go_to(&mut self, cpu: CpuId) {
        self.cpu = cpu;
    }

    /// Pins the calling thread to the leader's CPU, unless it is there already. Trouble is told
    /// once per thread that takes part.
    pub(crate) fn take_part(&mut self) -> Result<(), Trouble> {
        let key = KEY.with(|key| *key);
        let (new, moved) = (self.thread != Some(key), self.thread.is_some());
        self.thread = Some(key);
        let pinned = LED.with_borrow_mut(|led| {
            if new {
                led.pools += 1;
            }
            if led.cpu == Some(self.cpu) {
                return Ok(());
            }
            if led.before.is_none() {
                led.before = Some(CpuSet::of_this_thread()?);
            }
            led.cpu = Some(self.cpu);
            pin(self.cpu)
        });
        match pinned {
            Err(error) if new => Err(Trouble::NotPinned(error)),
            _ if new && moved => Err(Trouble::Moved),
            _ => Ok(()),
        }
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        // On another thread, or as a thread ends, there is nothing to give back here.
        let Ok(key) = KEY.try_with(|key| *key) else { return };
        if self.thread != Some(key) {
            return;
        }
        LED.with_borrow_mut(|led| {
            led.pools -= 1;
            if led.pools == 0 {
                led.cpu = None;
                if let Some(before) = led.before.take() {
                    // If the set has become impossible (a smaller cpuset), the kernel has already
                    // chosen another one, and this thread keeps it.
                    let _ = before.apply();
                }
            }
        });
    }
}
