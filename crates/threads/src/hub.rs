//! Where the threads of a pool meet: the barrier, the hand-out of jobs, their completion.
//!
//! All three are the same two-level meeting. Threads of a group arrive on a counter in their
//! group's own cache line; the last of them goes on to the counter that the groups share; the last
//! of all opens the gates. A thread polls only a gate of its own group, so with G groups a global
//! wait costs about 2 G transfers between nodes however many threads there are, and a local wait
//! none.
//!
//! Visibility: an arrival is acquire-release, so the last one to arrive has seen the writes of
//! all; opening a gate releases them to whoever leaves through it.
#![cfg_attr(not(loom), allow(unreachable_pub, reason = "public for the loom models"))]

use std::time::Duration;

use crate::gate::{Gate, Seen};
use crate::page::OwnPage;
use crate::sync::{AtomicUsize, Ordering, Padded, SettingU64, UnsafeCell};

/// The lines that the members of one group share. They should lie in the group's memory node.
pub struct Lines {
    /// Arrivals at the present barrier.
    arrived: Padded<AtomicUsize>,
    /// Opens when the barrier is complete. Apart from the counter, so that arrivals do not take
    /// the line away from those who poll it.
    gate: Padded<Gate>,
    /// Opens when there is a job.
    start: Padded<Gate>,
    /// Threads that are through with the job.
    finished: Padded<AtomicUsize>,
    size: usize,
}

impl Lines {
    /// Lines for a group of `size` threads.
    pub fn new(size: usize) -> Self {
        Self {
            arrived: Padded(AtomicUsize::new(0)),
            gate: Padded(Gate::new()),
            start: Padded(Gate::new()),
            finished: Padded(AtomicUsize::new(0)),
            size,
        }
    }
}

/// A thread of the pool panicked: there is no point in waiting for it.
#[derive(Debug, PartialEq, Eq)]
pub struct Poisoned;

/// See the module. `J` is the job that the leader, a member of group 0, hands to everybody.
pub struct Hub<J> {
    groups: Box<[OwnPage<Lines>]>,
    arrived: Padded<AtomicUsize>,
    finished: Padded<AtomicUsize>,
    /// Opens for the leader when every thread is through with the job.
    done: Padded<Gate>,
    /// `None` asks the workers to leave. On lines of its own: it is written for every job, and what
    /// lies beside it is read at every wait.
    job: Padded<UnsafeCell<Option<J>>>,
    /// Nanoseconds for which a wait spins before it sleeps.
    spin: SettingU64,
}

// SAFETY: the job is the only cell. The leader writes it before it opens the `start` gates and not
// again before all workers have arrived at `finished`; workers copy it between the two.
unsafe impl<J: Copy + Send> Sync for Hub<J> {}
// SAFETY: a hub owns its parts, and a job may move between threads.
unsafe impl<J: Copy + Send> Send for Hub<J> {}

/// Arrives at a meeting of `size`; true for the last one, which leaves the counter ready for the
/// next meeting before anybody can come to it.
fn is_last(counter: &AtomicUsize, size: usize) -> bool {
    let last = counter.fetch_add(1, Ordering::AcqRel) + 1 == size;
    if last {
        counter.store(0, Ordering::Relaxed);
    }
    last
}

fn nanos(spin: Duration) -> u64 {
    spin.as_nanos().try_into().unwrap_or(u64::MAX)
}

impl<J: Copy> Hub<J> {
    /// A hub for these groups, whose waits spin for `spin` before they sleep.
    pub fn new(groups: Vec<OwnPage<Lines>>, spin: Duration) -> Self {
        Self {
            groups: groups.into(),
            arrived: Padded(AtomicUsize::new(0)),
            finished: Padded(AtomicUsize::new(0)),
            done: Padded(Gate::new()),
            job: Padded(UnsafeCell::new(None)),
            spin: SettingU64::new(nanos(spin)),
        }
    }

    /// The number of groups.
    pub fn groups(&self) -> usize {
        self.groups.len()
    }

    /// Sets for how long later waits spin before they sleep.
    pub fn set_spin(&self, spin: Duration) {
        self.spin.store(nanos(spin), Ordering::Relaxed);
    }

    fn spin(&self) -> Duration {
        Duration::from_nanos(self.spin.load(Ordering::Relaxed))
    }

    /// Waits for the members of `group`.
    pub fn wait_local(&self, group: usize) -> Result<(), Poisoned> {
        let lines = &*self.groups[group];
        self.wait(lines, || lines.gate.open()).map(|_| ())
    }

    /// Waits for all threads, as a member of `group`. True for the thread that went on to the line
    /// which the groups share: the last of each group, and nobody when there is only one group.
    pub fn wait_global(&self, group: usize) -> Result<bool, Poisoned> {
        if self.groups.len() == 1 {
            return self.wait_local(group).map(|()| false);
        }
        // The last of a group, but not of all, waits with the others, on its group's gate.
        self.wait(&self.groups[group], || {
            if is_last(&self.arrived, self.groups.len()) {
                for lines in &self.groups {
                    lines.gate.open();
                }
            }
        })
    }

    /// Waits on a group's lines; true for the last to arrive, who has done `last`.
    fn wait(&self, lines: &Lines, last: impl FnOnce()) -> Result<bool, Poisoned> {
        // Before the arrival: afterwards the gate may open at any moment. A poisoning that this
        // look misses changes the word, and so ends the wait.
        let seen = lines.gate.seen();
        if seen.is_poisoned() {
            return Err(Poisoned);
        }
        let was_last = is_last(&lines.arrived, lines.size);
        if was_last {
            last();
        }
        if lines.gate.wait(seen, self.spin()).is_poisoned() { Err(Poisoned) } else { Ok(was_last) }
    }

    /// Makes every present and later barrier wait of the running job fail.
    pub fn poison(&self) {
        for lines in &self.groups {
            lines.gate.poison();
        }
    }

    /// Makes the barriers usable after a poisoning.
    ///
    /// The leader calls this between [`Self::finish_as_leader`] and [`Self::broadcast`], when no
    /// other thread touches them.
    pub fn clear_poison(&self) {
        self.arrived.store(0, Ordering::Relaxed);
        for lines in &self.groups {
            lines.arrived.store(0, Ordering::Relaxed);
            lines.gate.clear_poison();
        }
    }

    /// Hands `job` to all workers; `None` sends them home.
    ///
    /// # Safety
    /// Only the leader may call this, and only when every worker has finished the job before it
    /// (that is, after [`Self::finish_as_leader`]), or has not yet come to take its first one.
    pub unsafe fn broadcast(&self, job: Option<J>) {
        // SAFETY: no worker reads the job before its gate opens below, by this contract.
        self.job.with_mut(|cell| unsafe { *cell = job });
        for lines in &self.groups {
            lines.start.open();
        }
    }

    /// A worker waits for the job after the one it saw as `seen` (at first: [`Seen::NEW`]).
    pub fn next_job(&self, group: usize, seen: &mut Seen) -> Option<J> {
        *seen = self.groups[group].start.wait(*seen, self.spin());
        // SAFETY: the gate has opened, so the leader has written the job, and it will not write
        // again before this worker finishes.
        self.job.with(|cell| unsafe { *cell })
    }

    /// A worker of `group` is through with the job.
    pub fn finish(&self, group: usize) {
        if self.is_last_to_finish(group) {
            self.done.open();
        }
    }

    /// The leader is through with the job too, and waits until all workers are.
    pub fn finish_as_leader(&self) {
        let seen = self.done.seen();
        if !self.is_last_to_finish(0) {
            self.done.wait(seen, self.spin());
        }
    }

    fn is_last_to_finish(&self, group: usize) -> bool {
        let lines = &self.groups[group];
        is_last(&lines.finished, lines.size) && is_last(&self.finished, self.groups.len())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sync::assert_apart;

    #[test]
    fn what_threads_write_to_lies_on_lines_of_its_own() {
        assert_apart!(Lines: [arrived] [gate] [start] [finished] [size]);
        assert_apart!(Hub<usize>: [arrived] [finished] [done] [job] [groups, spin]);
        // The lines of two groups are on different pages.
        let page = || OwnPage::new(Lines::new(1)).unwrap();
        let (a, b) = (page(), page());
        assert!((&raw const *a).addr().abs_diff((&raw const *b).addr()) >= 4096);
    }
}
