//! What each thread did with its time: how long it worked, how often and how long it waited, and
//! how often it crossed to the line that the groups share.
//!
//! Whoever is fastest waits longest: a thread's own work is its time in jobs without its waits
//! ([`ThreadStats::busy_nanos`]), and that is what tells a slow thread from those it holds up, if each has its part of
//! the work. Where others take over what it has not begun, the time for which they wait for it alone tells
//! ([`ThreadStats::last`]).

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::hub::Arrival;
use crate::sync::Padded;

/// Waits of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// How many.
    pub count: u64,
    /// How long together, in nanoseconds, from arrival to departure.
    pub nanos: u64,
}

/// Jobs of one thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Jobs {
    /// How many.
    pub count: u64,
    /// How long together, in nanoseconds.
    pub nanos: u64,
}

/// What one thread did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadStats {
    /// Jobs, and the time from taking one up to being through with it, waits included. The time to
    /// hear of a job and to wait for the other threads after it is not in it.
    pub jobs: Jobs,
    /// Waits for the threads of one group. In a pool of one group all waits are of this kind.
    pub local: Waits,
    /// Waits for all groups: [`Scope::Global`](crate::Scope), every wait in
    /// [`View::One`](crate::View), and switches of view.
    pub global: Waits,
    /// Global waits in which it was the last of its group and so went on to the line that all
    /// groups share. Over all threads that is one per group and global wait, however many threads
    /// there are; none when there is only one group, which has no such line.
    pub crossings: u64,
    /// Waits to which it came last of all for whom they are, and how long the others had waited for it alone: since
    /// the one before it came.
    pub last: Waits,
    /// Tasks that it ran ([`Worker::tasks`](crate::Worker::tasks)).
    pub tasks: TaskCounts,
}

/// What one thread did in sets of tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskCounts {
    /// Tasks that it ran, its own and others'.
    pub count: u64,
    /// Of these, tasks that others might have run: the policy lets them.
    pub stealable: u64,
    /// Of these, tasks that were dealt to another thread of its group.
    pub near: u64,
    /// And to a thread of another group.
    pub far: u64,
    /// When it took a task, so many were left in the queue of the thread that it was dealt to: summed
    /// over its tasks.
    pub depths: u64,
    /// And at most.
    pub deepest: u64,
    /// From coming to a set to being through with the last task of it that it ran, in nanoseconds.
    pub busy_nanos: u64,
    /// From then to the end of the wait that follows the set, if the job has one. If there is other
    /// work before that wait, its unevenness is in it too, but not the work.
    pub idle_nanos: u64,
}

impl std::ops::AddAssign for TaskCounts {
    /// Sums; the deepest is that of both.
    fn add_assign(&mut self, more: TaskCounts) {
        self.count += more.count;
        self.stealable += more.stealable;
        self.near += more.near;
        self.far += more.far;
        self.depths += more.depths;
        self.deepest = self.deepest.max(more.deepest);
        self.busy_nanos += more.busy_nanos;
        self.idle_nanos += more.idle_nanos;
    }
}

impl ThreadStats {
    /// Nanoseconds in jobs that it did not wait.
    pub fn busy_nanos(&self) -> u64 {
        self.jobs.nanos.saturating_sub(self.local.nanos + self.global.nanos)
    }
}

/// The counters of one thread. Only that thread adds to them.
#[derive(Default)]
pub(crate) struct Counters {
    jobs: Pair,
    local: Pair,
    global: Pair,
    crossings: AtomicU64,
    last: Pair,
    tasks: Tasks,
}

#[derive(Default)]
struct Tasks {
    count: AtomicU64,
    stealable: AtomicU64,
    near: AtomicU64,
    far: AtomicU64,
    depths: AtomicU64,
    deepest: AtomicU64,
    busy_nanos: AtomicU64,
    idle_nanos: AtomicU64,
}

#[derive(Default)]
struct Pair {
    count: AtomicU64,
    nanos: AtomicU64,
}

impl Pair {
    fn add(&self, took: Duration) {
        add(&self.count, 1);
        add(&self.nanos, took.as_nanos() as u64);
    }

    fn get(&self) -> (u64, u64) {
        (self.count.load(Relaxed), self.nanos.load(Relaxed))
    }

    fn set(&self, count: u64, nanos: u64) {
        self.count.store(count, Relaxed);
        self.nanos.store(nanos, Relaxed);
    }
}

/// A plain load and store: there is no second writer to lose an update to.
fn add(counter: &AtomicU64, n: u64) {
    counter.store(counter.load(Relaxed) + n, Relaxed);
}

impl Counters {
    /// One padded slot per thread.
    pub(crate) fn slots(threads: usize) -> Box<[Padded<Self>]> {
        (0..threads).map(|_| Padded(Self::default())).collect()
    }

    /// Notes a wait, and how the thread came to it.
    pub(crate) fn waited(&self, global: bool, arrival: Arrival, took: Duration) {
        let waits = if global { &self.global } else { &self.local };
        waits.add(took);
        if arrival.crossed {
            add(&self.crossings, 1);
        }
        if let Some(held) = arrival.last {
            self.last.add(Duration::from_nanos(held));
        }
    }

    /// Notes a job.
    pub(crate) fn ran(&self, took: Duration) {
        self.jobs.add(took);
    }

    /// Notes a set of tasks.
    pub(crate) fn did(&self, set: &TaskCounts) {
        let tasks = &self.tasks;
        add(&tasks.count, set.count);
        add(&tasks.stealable, set.stealable);
        add(&tasks.near, set.near);
        add(&tasks.far, set.far);
        add(&tasks.depths, set.depths);
        tasks.deepest.store(tasks.deepest.load(Relaxed).max(set.deepest), Relaxed);
        add(&tasks.busy_nanos, set.busy_nanos);
        add(&tasks.idle_nanos, set.idle_nanos);
    }

    /// Notes the wait after a set of tasks.
    pub(crate) fn idled(&self, took: Duration) {
        add(&self.tasks.idle_nanos, took.as_nanos() as u64);
    }

    pub(crate) fn get(&self) -> ThreadStats {
        let waits = |pair: &Pair| {
            let (count, nanos) = pair.get();
            Waits { count, nanos }
        };
        let (count, nanos) = self.jobs.get();
        ThreadStats {
            jobs: Jobs { count, nanos },
            local: waits(&self.local),
            global: waits(&self.global),
            crossings: self.crossings.load(Relaxed),
            last: waits(&self.last),
            tasks: self.tasks.get(),
        }
    }

    pub(crate) fn reset(&self) {
        self.set(&ThreadStats::default());
    }

    pub(crate) fn set(&self, to: &ThreadStats) {
        self.jobs.set(to.jobs.count, to.jobs.nanos);
        self.local.set(to.local.count, to.local.nanos);
        self.global.set(to.global.count, to.global.nanos);
        self.crossings.store(to.crossings, Relaxed);
        self.last.set(to.last.count, to.last.nanos);
        let TaskCounts { count, stealable, near, far, depths, deepest, busy_nanos, idle_nanos } =
            to.tasks;
        let tasks = [count, stealable, near, far, depths, deepest, busy_nanos, idle_nanos];
        for (counter, to) in self.tasks.all().into_iter().zip(tasks) {
            counter.store(to, Relaxed);
        }
    }
}

impl Tasks {
    fn get(&self) -> TaskCounts {
        let [count, stealable, near, far, depths, deepest, busy_nanos, idle_nanos] =
            self.all().map(|counter| counter.load(Relaxed));
        TaskCounts { count, stealable, near, far, depths, deepest, busy_nanos, idle_nanos }
    }

    fn all(&self) -> [&AtomicU64; 8] {
        let Self { count, stealable, near, far, depths, deepest, busy_nanos, idle_nanos } = self;
        [count, stealable, near, far, depths, deepest, busy_nanos, idle_nanos]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::LINES;

    #[test]
    fn every_threads_counters_lie_on_lines_of_their_own() {
        let slots = Counters::slots(3);
        let at: Vec<usize> = slots.iter().map(|slot| (&raw const *slot).addr()).collect();
        assert!(at.iter().all(|at| at.is_multiple_of(LINES)), "{at:?}");
        assert!(at[1] - at[0] >= size_of::<Counters>() && at[1] - at[0] >= LINES, "{at:?}");
    }
}
