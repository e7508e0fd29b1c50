//! The pool: threads made once, jobs broadcast to all of them.

use std::any::Any;
use std::collections::BTreeSet;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use topology::CpuId;

use crate::affinity::{self, CpuSet};
use crate::gate::Seen;
use crate::hub::{Hub, Lines, Poisoned};
use crate::leader::{Leader, Trouble};
use crate::page::OwnPage;
use crate::stats::{Counters, ThreadStats};
use crate::sync::Padded;
use crate::tasks::round::{Desk, Desks};
use crate::worker::Worker;

/// What a pool is to look like.
#[derive(Clone, Debug)]
pub struct PoolSpec {
    /// The groups, in the order of their thread ids; usually one per memory node.
    pub groups: Vec<GroupSpec>,
    /// Pin every thread to its CPU. Otherwise the CPUs only say how many threads there are, and
    /// the threads run wherever the thread that calls [`Pool::new`] may.
    pub pin: bool,
    /// How long a waiting thread spins before it sleeps.
    pub spin: Spin,
    /// Record what threads do with their time ([`Pool::stats`]); two clock readings per wait, per
    /// job and per set of tasks, and one per task.
    pub stats: bool,
    /// `distances[a][b]`: how far it is from the threads of group a to the memory of group b, in any
    /// unit (`topology::Machine::distance`). Tasks are taken over from the nearest group first. Empty
    /// if unknown: groups go round by their numbers then.
    pub distances: Vec<Vec<u32>>,
}

impl Default for PoolSpec {
    /// No groups yet; pinned, [`Spin::Auto`], no statistics, distances unknown.
    fn default() -> Self {
        let (groups, distances) = (Vec::new(), Vec::new());
        Self { groups, pin: true, spin: Spin::Auto, stats: false, distances }
    }
}

/// One group: a thread per entry. A CPU may be named more than once.
#[derive(Clone, Debug)]
pub struct GroupSpec {
    /// The CPU of each thread.
    pub cpus: Vec<CpuId>,
}

/// How long a waiting thread spins before it asks the kernel to put it to sleep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spin {
    /// 50 µs; not at all when threads have to share CPUs, because a spinning thread then holds up
    /// the one that it waits for.
    #[default]
    Auto,
    /// Not at all.
    Never,
    /// For this long.
    For(Duration),
}

/// About what it costs to sleep and to be woken in a virtual machine, so that spinning in vain at
/// most doubles the price of a wait. Two pinned threads on two virtual EPYC 9005 cores, barrier
/// after barrier: 0.63 µs with spinning, 53 µs without.
const AUTO_SPIN: Duration = Duration::from_micros(50);

/// Why a pool could not be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The specification has no groups.
    #[error("a thread pool needs at least one group")]
    NoGroups,
    /// A group has no CPUs, hence no threads.
    #[error("group {group} of the thread pool has no cpus: leave it out or give it at least one")]
    EmptyGroup {
        /// Index of the group.
        group: usize,
    },
    /// The table of distances has another shape than the groups.
    #[error(
        "the distances between the thread pool's {groups} groups are no table of {groups} by {groups}: \
         leave them out or give them all"
    )]
    Distances {
        /// How many groups there are.
        groups: usize,
    },
    /// The operating system refused a thread.
    #[error("cannot start thread {thread} of {threads}: {source}; use fewer threads")]
    Spawn {
        /// The thread's id in the pool.
        thread: usize,
        /// How many were asked for.
        threads: usize,
        /// The system's reason.
        source: io::Error,
    },
    /// The operating system refused the page of memory on which a group meets.
    #[error("cannot map a page for group {group} of the thread pool: {source}")]
    Map {
        /// Index of the group.
        group: usize,
        /// The system's reason.
        source: io::Error,
    },
}

/// Something that makes a pool slower than asked for, but not wrong.
#[derive(Debug, thiserror::Error)]
pub enum Warning {
    /// A thread could not be pinned (the cpuset excludes the CPU, or it is offline) and runs
    /// wherever the system puts it.
    #[error("thread {thread} is not pinned to cpu {cpu}: {source}")]
    NotPinned {
        /// The thread's id in the pool.
        thread: usize,
        /// Its CPU in the specification.
        cpu: CpuId,
        /// The system's reason.
        source: io::Error,
    },
    /// Different threads call [`Pool::run`]. The present caller is pinned now; the one before
    /// stays pinned, because only a thread itself can be given its affinity back.
    #[error("the pool's jobs are run from more than one thread: the one before stays pinned")]
    LeaderMoved,
}

/// A job panicked. The first panic is reported; the other threads were made to leave the job.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("thread {thread} panicked: {message}")]
pub struct Panicked {
    /// The thread's id in the pool.
    pub thread: usize,
    /// What the panic said.
    pub message: String,
}

/// A job whose borrow the pool has hidden from the compiler.
#[derive(Clone, Copy)]
pub(crate) struct Job(*const (dyn Fn(&mut Worker) + Sync));

// SAFETY: the function behind the pointer is `Sync`, and `Pool::run` keeps it borrowed until every
// thread is through with it.
unsafe impl Send for Job {}

/// What all threads of a pool share.
pub(crate) struct Shared {
    pub(crate) hub: Hub<Job>,
    pub(crate) desks: Desks,
    /// Empty unless statistics are wanted.
    pub(crate) stats: Box<[Padded<Counters>]>,
    /// Group g has the threads `first[g]..first[g + 1]`.
    pub(crate) first: Box<[usize]>,
    /// The CPU that each thread is pinned to; [`NOWHERE`] if it is not.
    homes: Box<[AtomicU32]>,
    /// Threads that were pinned, but began a job on another CPU.
    strayed: Box<[AtomicBool]>,
    /// On lines of its own: the leader locks it after every job.
    panicked: Padded<Mutex<Option<Panicked>>>,
}

/// No CPU.
const NOWHERE: u32 = u32::MAX;

impl Shared {
    pub(crate) fn threads(&self) -> usize {
        self.first[self.first.len() - 1]
    }

    pub(crate) fn group_size(&self, group: usize) -> usize {
        self.first[group + 1] - self.first[group]
    }

    /// The group of a thread and its rank there.
    pub(crate) fn place(&self, thread: usize) -> (usize, usize) {
        let group = self.first.partition_point(|&first| first <= thread) - 1;
        (group, thread - self.first[group])
    }

    /// Runs the job on this thread; a panic releases the others from their barriers.
    fn execute(&self, job: Job, worker: &mut Worker) {
        worker.begin();
        let home = self.homes[worker.thread()].load(Relaxed);
        if home != NOWHERE && affinity::current().is_some_and(|cpu| cpu.0 != home) {
            self.strayed[worker.thread()].store(true, Relaxed);
        }
        let start = self.stats.get(worker.thread()).map(|slot| (slot, Instant::now()));
        // SAFETY: `Pool::run` keeps the function borrowed until every thread has finished.
        let job = unsafe { &*job.0 };
        // The data of an interrupted job is its owner's affair: `run` returns an error.
        let ran = catch_unwind(AssertUnwindSafe(|| job(worker)));
        if let Some((slot, start)) = start {
            slot.ran(start.elapsed());
        }
        let Err(payload) = ran else { return };
        if payload.is::<Poisoned>() {
            return;
        }
        let message = message(payload);
        let mut first = self.panicked.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert(Panicked { thread: worker.thread(), message });
        drop(first);
        self.hub.poison();
    }
}

/// The text of a panic.
fn message(payload: Box<dyn Any + Send>) -> String {
    match payload.downcast::<String>() {
        Ok(text) => *text,
        Err(payload) => match payload.downcast_ref::<&str>() {
            Some(text) => (*text).to_owned(),
            None => {
                // Dropping a value of unknown type may panic once more, in the wrong place.
                std::mem::forget(payload);
                "a value that is not text".to_owned()
            }
        },
    }
}

/// Threads in groups, made before inference begins and pinned to their CPUs.
///
/// The thread that calls [`Self::run`] is thread 0, the leader: the others are the pool's own.
/// With [`PoolSpec::pin`] the leader is pinned to the first CPU of the first group on its first
/// `run`, so threads that it starts later inherit that CPU; when the pool is dropped on the same
/// thread, the thread gets its affinity back. If it leads several pools, it is moved between their
/// CPUs, and gets its affinity back with the last of them.
///
/// Without a job the threads sleep and use no CPU. Dropping the pool joins them.
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    leader: Option<Leader>,
    warnings: Vec<Warning>,
}

impl Pool {
    /// Starts the threads and waits until they are pinned.
    ///
    /// # Errors
    /// A specification without threads, or threads or memory that the system refuses. A CPU to
    /// which a thread cannot be pinned is a [warning](Self::warnings).
    pub fn new(spec: &PoolSpec) -> Result<Self, Error> {
        if spec.groups.is_empty() {
            return Err(Error::NoGroups);
        }
        if let Some(group) = spec.groups.iter().position(|group| group.cpus.is_empty()) {
            return Err(Error::EmptyGroup { group });
        }
        let cpus: Vec<CpuId> = spec.groups.iter().flat_map(|g| g.cpus.iter().copied()).collect();
        let threads = cpus.len();
        let first = std::iter::once(0).chain(spec.groups.iter().scan(0, |end, group| {
            *end += group.cpus.len();
            Some(*end)
        }));
        let groups = spec.groups.len();
        let square = |table: &[Vec<u32>]| {
            table.len() == groups && table.iter().all(|row| row.len() == groups)
        };
        if !spec.distances.is_empty() && !square(&spec.distances) {
            return Err(Error::Distances { groups });
        }
        let (mut lines, mut desks) = (Vec::new(), Vec::new());
        for group in 0..groups {
            let (line, desk) = pages(spec, group, threads)?;
            lines.push(line);
            desks.push(desk);
        }
        let shared = Arc::new(Shared {
            hub: Hub::new(lines, Duration::ZERO),
            desks: Desks::new(desks, &spec.distances),
            stats: Counters::slots(if spec.stats { threads } else { 0 }),
            first: first.collect(),
            homes: (0..threads).map(|_| AtomicU32::new(NOWHERE)).collect(),
            strayed: (0..threads).map(|_| AtomicBool::new(false)).collect(),
            panicked: Padded(Mutex::new(None)),
        });

        let warnings = Arc::new(Mutex::new(Vec::new()));
        let mut pool = Self { shared, workers: Vec::new(), leader: None, warnings: Vec::new() };
        for (thread, &cpu) in cpus.iter().enumerate().skip(1) {
            let shared = pool.shared.clone();
            let warnings = warnings.clone();
            let pin = spec.pin;
            let body = move || {
                match pin.then(|| affinity::pin(cpu)) {
                    None => {}
                    Some(Ok(())) => shared.homes[thread].store(cpu.0, Relaxed),
                    Some(Err(source)) => {
                        let mut warnings = warnings.lock().unwrap_or_else(PoisonError::into_inner);
                        warnings.push(Warning::NotPinned { thread, cpu, source });
                    }
                }
                drop(warnings);
                work(&shared, thread);
            };
            let handle = std::thread::Builder::new().name(format!("worker-{thread}")).spawn(body);
            // On an error the drop of `pool` sends the threads made so far home.
            pool.workers.push(handle.map_err(|source| Error::Spawn { thread, threads, source })?);
        }
        pool.shared.hub.finish_as_leader();
        pool.warnings =
            std::mem::take(&mut *warnings.lock().unwrap_or_else(PoisonError::into_inner));

        let distinct: BTreeSet<CpuId> = cpus.iter().copied().collect();
        let everywhere = !spec.pin || !pool.warnings.is_empty();
        let crowded = distinct.len() < threads
            || everywhere && CpuSet::of_this_thread().is_ok_and(|allowed| allowed.len() < threads);
        pool.shared.hub.set_spin(match spec.spin {
            Spin::Auto if crowded => Duration::ZERO,
            Spin::Auto => AUTO_SPIN,
            Spin::Never => Duration::ZERO,
            Spin::For(limit) => limit,
        });
        pool.leader = spec.pin.then(|| Leader::new(cpus[0]));
        Ok(pool)
    }

    /// The number of threads, the leader included.
    pub fn threads(&self) -> usize {
        self.shared.threads()
    }

    /// The number of groups.
    pub fn groups(&self) -> usize {
        self.shared.hub.groups()
    }

    /// What went less well than asked for, so far.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// Runs `job` once on every thread, the caller being thread 0, and returns when all are
    /// through with it. Every job begins in [`View::One`](crate::View).
    ///
    /// # Errors
    /// A thread panicked. The others have left the job at their next wait, so its data may be
    /// incomplete; the pool itself is ready for the next job.
    pub fn run(&mut self, job: &(dyn Fn(&mut Worker) + Sync)) -> Result<(), Panicked> {
        self.take_the_lead();
        let hub = &self.shared.hub;
        // SAFETY: only the lifetime changes, and no thread uses the job after this function: it
        // returns only when all have finished, even if one of them (or this one) panics.
        let job = Job(unsafe {
            std::mem::transmute::<
                *const (dyn Fn(&mut Worker) + Sync + '_),
                *const (dyn Fn(&mut Worker) + Sync + 'static),
            >(job)
        });
        // SAFETY: `&mut self` makes this the only leader, and all workers have finished whatever
        // came before: `new` and every `run` end with `finish_as_leader`.
        unsafe { hub.broadcast(Some(job)) };
        self.shared.execute(job, &mut Worker::new(self.shared.clone(), 0));
        hub.finish_as_leader();
        let panicked = self.shared.panicked.lock().unwrap_or_else(PoisonError::into_inner).take();
        match panicked {
            None => Ok(()),
            Some(panicked) => {
                hub.clear_poison();
                self.shared.desks.reset();
                Err(panicked)
            }
        }
    }

    fn take_the_lead(&mut self) {
        let Some(leader) = &mut self.leader else { return };
        let cpu = leader.cpu();
        match leader.take_part() {
            Ok(()) => self.shared.homes[0].store(cpu.0, Relaxed),
            Err(Trouble::NotPinned(source)) => {
                self.warnings.push(Warning::NotPinned { thread: 0, cpu, source });
            }
            Err(Trouble::Moved) => {
                // Once: two threads that take turns would fill the memory with it.
                if !self.warnings.iter().any(|w| matches!(w, Warning::LeaderMoved)) {
                    self.warnings.push(Warning::LeaderMoved);
                }
            }
        }
    }

    /// Threads that were pinned, but have begun a job on another CPU since: the system has taken
    /// theirs (a cpuset has changed, a CPU went offline) or somebody else has moved them.
    pub fn strayed(&self) -> impl Iterator<Item = usize> {
        let strayed = self.shared.strayed.iter().enumerate();
        strayed.filter(|(_, strayed)| strayed.load(Relaxed)).map(|(thread, _)| thread)
    }

    /// Waiting threads sleep at once from now on: right when several share a CPU.
    pub fn stop_spinning(&mut self) {
        self.shared.hub.set_spin(Duration::ZERO);
    }

    /// What every thread has done since the last reset, by thread id; empty unless
    /// [`PoolSpec::stats`] is set.
    pub fn stats(&self) -> Vec<ThreadStats> {
        self.shared.stats.iter().map(|slot| slot.get()).collect()
    }

    /// Sets all statistics to zero.
    pub fn reset_stats(&mut self) {
        for slot in &self.shared.stats {
            slot.reset();
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: as in `run`; or, after a failed `new`, no worker has taken a job yet.
        unsafe { self.shared.hub.broadcast(None) };
        for worker in self.workers.drain(..) {
            // A worker catches all panics of its jobs; its own code does not panic.
            let _ = worker.join();
        }
    }
}

/// A worker's life.
fn work(shared: &Arc<Shared>, thread: usize) {
    let mut worker = Worker::new(shared.clone(), thread);
    let group = worker.home();
    let mut seen = Seen::NEW;
    shared.hub.finish(group); // being pinned is the first job
    while let Some(job) = shared.hub.next_job(group, &mut seen) {
        shared.execute(job, &mut worker);
        shared.hub.finish(group);
    }
}

/// Where a group meets and where its tasks lie.
type Pages = (OwnPage<Lines>, OwnPage<Desk>);

/// A group's pages, in the memory node of the group.
fn pages(spec: &PoolSpec, group: usize, threads: usize) -> Result<Pages, Error> {
    let cpus = &spec.groups[group].cpus;
    let map = || {
        let lines = OwnPage::new(Lines::new(cpus.len()));
        let desk = Desk::new(cpus.len()).and_then(OwnPage::new);
        let both = lines.and_then(|lines| Ok((lines, desk?)));
        both.map_err(|source| Error::Map { group, source })
    };
    if !spec.pin || spec.groups.len() == 1 {
        return map();
    }
    // A page belongs to the node of the thread that first writes to it, and the caller's own
    // affinity must not change here: so a thread that lives for one page.
    std::thread::scope(|scope| {
        let body = || {
            // What cannot be pinned will be reported by the group's own threads.
            let _ = affinity::pin(cpus[0]);
            map()
        };
        let spawned = std::thread::Builder::new().spawn_scoped(scope, body);
        let handle = spawned.map_err(|source| Error::Spawn { thread: 0, threads, source })?;
        handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sync::assert_apart;

    #[test]
    fn what_threads_write_to_lies_on_lines_of_its_own() {
        // Behind the pointers: `desks` has a test of its own, `homes` is written to when a thread is
        // pinned and `strayed` when the system has moved one.
        assert_apart!(Shared: [hub] [panicked] [desks, stats, first, homes, strayed]);
    }
}
