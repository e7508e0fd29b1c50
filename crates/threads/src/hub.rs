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
//!
//! A job is for the threads of a [level](crate::levels). Counters and gates of the barrier are the
//! same at all levels, only the numbers of arrivals differ: between two jobs every counter is zero,
//! and taking up a job is ordered after all that happened in the jobs before it, also after those
//! that the thread had no part in. Only the gates at which threads wait for a job are apart, one
//! for each class of threads, so that whoever is left out neither wakes nor sees a line change.
#![cfg_attr(not(loom), allow(unreachable_pub, reason = "public for the loom models"))]

use std::io;
use std::time::Duration;

use crate::gate::{Gate, Seen};
use crate::levels::Levels;
use crate::page::OwnPage;
use crate::sync::{AtomicU64, AtomicUsize, Ordering, Padded, SettingU64, UnsafeCell};

/// The lines that the members of one group share. They should lie in the group's memory node.
pub struct Lines {
    /// Arrivals at the present barrier.
    arrived: Padded<Arrivals>,
    /// Opens when the barrier is complete. Apart from the counter, so that arrivals do not take
    /// the line away from those who poll it.
    gate: Padded<Gate>,
    /// Threads that are through with the job.
    finished: Padded<AtomicUsize>,
    /// Of each class: opens when there is a job for its threads.
    starts: OwnPage<[Padded<Gate>]>,
}

impl Lines {
    /// Lines for a group whose threads are of so many classes, on pages of the calling thread's node.
    ///
    /// # Errors
    /// Those of `mmap`.
    pub fn new(classes: usize) -> io::Result<Self> {
        Ok(Self {
            arrived: Padded(Arrivals::new()),
            gate: Padded(Gate::new()),
            finished: Padded(AtomicUsize::new(0)),
            starts: OwnPage::slice(classes, |_| Padded(Gate::new()))?,
        })
    }
}

/// Who has arrived at a barrier.
struct Arrivals {
    count: AtomicUsize,
    /// When the latest of them came, if times are told.
    at: AtomicU64,
}

impl Arrivals {
    fn new() -> Self {
        Self { count: AtomicUsize::new(0), at: AtomicU64::new(0) }
    }

    /// Arrives, as [`is_last`] does; the last one hears for how long the others have waited for it alone. Two that come
    /// within nanoseconds of each other may hear of the meeting before.
    fn arrive(&self, size: usize, now: Option<u64>) -> Option<u64> {
        // Before the arrival, after which the line goes to others.
        let before = now.map_or(0, |now| now.saturating_sub(self.at.swap(now, Ordering::Relaxed)));
        is_last(&self.count, size).then_some(before)
    }
}

/// How a thread came to a wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrival {
    /// It went on to the line which the groups share: the last of each group, and nobody when there is only one group.
    pub crossed: bool,
    /// It was the last of all, and not the only one: for how many nanoseconds the others had waited for it alone; 0
    /// if times are not told.
    pub last: Option<u64>,
}

/// Who waits, or is through with a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// The level of the job.
    pub level: usize,
    /// The thread's group.
    pub group: usize,
}

/// A thread of the pool panicked: there is no point in waiting for it.
#[derive(Debug, PartialEq, Eq)]
pub struct Poisoned;

/// See the module. `J` is the job that the leader, the first of group 0, hands out.
pub struct Hub<J> {
    groups: Box<[OwnPage<Lines>]>,
    levels: Levels,
    arrived: Padded<Arrivals>,
    finished: Padded<AtomicUsize>,
    /// Opens for the leader when every thread is through with the job.
    done: Padded<Gate>,
    /// With its level; `None` asks the workers to leave. On lines of its own: it is written for every
    /// job, and what lies beside it is read at every wait.
    job: Padded<UnsafeCell<Option<(J, usize)>>>,
    /// Nanoseconds for which a wait spins before it sleeps.
    spin: SettingU64,
}

// SAFETY: the job is the only cell. The leader writes it before it opens the `start` gates and not
// again before all workers of the job's level have arrived at `finished`; they copy it between the
// two, and others, whose gates stay shut, do not look at it.
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
    /// A hub for these groups, which have as many classes as there are levels, whose waits spin for
    /// `spin` before they sleep.
    pub fn new(groups: Vec<OwnPage<Lines>>, levels: Levels, spin: Duration) -> Self {
        debug_assert_eq!(groups.len(), levels.groups());
        debug_assert!(groups.iter().all(|lines| lines.starts.len() == levels.count()));
        Self {
            groups: groups.into(),
            levels,
            arrived: Padded(Arrivals::new()),
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

    /// The levels that jobs may be of.
    pub fn levels(&self) -> &Levels {
        &self.levels
    }

    /// Sets for how long later waits spin before they sleep.
    pub fn set_spin(&self, spin: Duration) {
        self.spin.store(nanos(spin), Ordering::Relaxed);
    }

    fn spin(&self) -> Duration {
        Duration::from_nanos(self.spin.load(Ordering::Relaxed))
    }

    /// Waits for the members of the group that take part in the job. `now` is in nanoseconds, if times are told.
    pub fn wait_local(&self, me: Member, now: Option<u64>) -> Result<Arrival, Poisoned> {
        let lines = &*self.groups[me.group];
        self.wait(me, now, |held| {
            lines.gate.open();
            Arrival { crossed: false, last: held }
        })
    }

    /// Waits for all threads that take part in the job.
    pub fn wait_global(&self, me: Member, now: Option<u64>) -> Result<Arrival, Poisoned> {
        if self.groups.len() == 1 {
            return self.wait_local(me, now);
        }
        // The last of a group, but not of all, waits with the others, on its group's gate.
        self.wait(me, now, |held| {
            let of_groups = self.arrived.arrive(self.groups.len(), now);
            if of_groups.is_some() {
                for lines in &self.groups {
                    lines.gate.open();
                }
            }
            // All others have waited since the later of two: the last of its group but it, and of the other groups.
            let last =
                of_groups.map(|of_groups| held.map_or(of_groups, |held| held.min(of_groups)));
            Arrival { crossed: true, last }
        })
    }

    /// Waits on the group's lines. The last to arrive does `last`, which hears for how long others of the group have
    /// waited for it alone, if there are any.
    fn wait(
        &self,
        me: Member,
        now: Option<u64>,
        last: impl FnOnce(Option<u64>) -> Arrival,
    ) -> Result<Arrival, Poisoned> {
        let lines = &*self.groups[me.group];
        // Before the arrival: afterwards the gate may open at any moment. A poisoning that this
        // look misses changes the word, and so ends the wait.
        let seen = lines.gate.seen();
        if seen.is_poisoned() {
            return Err(Poisoned);
        }
        let size = self.levels.size(me.level, me.group);
        let held = lines.arrived.arrive(size, now);
        let arrival = held.map(|held| last((size > 1).then_some(held))).unwrap_or_default();
        if lines.gate.wait(seen, self.spin()).is_poisoned() { Err(Poisoned) } else { Ok(arrival) }
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
        self.arrived.count.store(0, Ordering::Relaxed);
        for lines in &self.groups {
            lines.arrived.count.store(0, Ordering::Relaxed);
            lines.gate.clear_poison();
        }
    }

    /// Hands `job` to the workers of the level beside it; `None` sends all workers home.
    ///
    /// # Safety
    /// Only the leader may call this, and only when every worker that the job before it was for has
    /// finished that (after [`Self::finish_as_leader`]), or none has yet come to take its first one. Workers that come
    /// from another hub have [seen](Self::seen) the state of their gate before.
    pub unsafe fn broadcast(&self, job: Option<(J, usize)>) {
        let top = job.map_or(self.levels.all(), |(_, level)| level);
        // SAFETY: no worker reads the job before its gate opens below, by this contract.
        self.job.with_mut(|cell| unsafe { *cell = job });
        // The highest class first: its threads have had fewer jobs, so they are more likely asleep
        // and have the longest way to this one.
        for class in (0..=top).rev() {
            for (group, lines) in self.groups.iter().enumerate() {
                if self.levels.newcomers(class, group) > 0 {
                    lines.starts[class].open();
                }
            }
        }
    }

    /// The state of the gate at which workers of a class wait for jobs, for one that comes from another hub and waits for
    /// the first job from now on. It asks before the leader can hand that out.
    pub fn seen(&self, group: usize, class: usize) -> Seen {
        self.groups[group].starts[class].seen()
    }

    /// A worker waits for the job after the one it saw as `seen` (at first: [`Seen::NEW`]), and gets
    /// it with its level, which is not below the worker's class.
    pub fn next_job(&self, group: usize, class: usize, seen: &mut Seen) -> Option<(J, usize)> {
        *seen = self.groups[group].starts[class].wait(*seen, self.spin());
        // SAFETY: the gate has opened, so the leader has written the job, and it will not write
        // again before this worker finishes.
        self.job.with(|cell| unsafe { *cell })
    }

    /// A worker is through with the job.
    pub fn finish(&self, me: Member) {
        if self.is_last_to_finish(me) {
            self.done.open();
        }
    }

    /// The leader is through with a job of this level too, and waits until all its workers are.
    pub fn finish_as_leader(&self, level: usize) {
        let seen = self.done.seen();
        if !self.is_last_to_finish(Member { level, group: 0 }) {
            self.done.wait(seen, self.spin());
        }
    }

    fn is_last_to_finish(&self, me: Member) -> bool {
        let finished = &self.groups[me.group].finished;
        is_last(finished, self.levels.size(me.level, me.group))
            && is_last(&self.finished, self.groups.len())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sync::{LINES, assert_apart};

    #[test]
    fn what_threads_write_to_lies_on_lines_of_its_own() {
        assert_apart!(Lines: [arrived] [gate] [finished] [starts]);
        assert_apart!(Hub<usize>: [arrived] [finished] [done] [job] [groups, levels, spin]);
        // The lines of two groups are on different pages, and so are their gates.
        let page = || OwnPage::new(Lines::new(3).unwrap()).unwrap();
        let (a, b) = (page(), page());
        let apart = |a: usize, b: usize| a.abs_diff(b) >= 4096;
        assert!(apart((&raw const *a).addr(), (&raw const *b).addr()));
        assert!(apart((&raw const a.starts[2]).addr(), (&raw const b.starts[0]).addr()));
        // Behind the pointer: a gate is on lines that neither those of other classes nor those of the
        // barrier share.
        let starts: Vec<usize> = a.starts.iter().map(|gate| (&raw const *gate).addr()).collect();
        assert!(starts.iter().all(|at| at.is_multiple_of(LINES)), "{starts:?}");
        assert!(starts.windows(2).all(|two| two[1] - two[0] >= LINES), "{starts:?}");
        assert!(apart((&raw const *a).addr(), starts[0]));
    }
}
