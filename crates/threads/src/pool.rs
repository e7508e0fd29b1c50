//! The pool: threads made once, jobs broadcast to all of them or to some.

use std::any::Any;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use topology::CpuId;

use crate::affinity::{self, CpuSet};
use crate::delay::{Accounts, CpuTime};
use crate::gate::Seen;
use crate::hub::{Hub, Lines, Member, Poisoned};
use crate::leader::{Leader, Trouble};
use crate::levels::Levels;
use crate::page::OwnPage;
use crate::spec::{AUTO_SPIN, Error, LEAST_STACK, MOST_STACK, Panicked, PoolSpec, Spin, Warning};
use crate::stats::{Counters, ThreadStats};
use crate::sync::Padded;
use crate::tasks::round::{Desk, Desks};
use crate::worker::{Next, Worker};

/// A job whose borrow the pool has hidden from the compiler.
#[derive(Clone, Copy)]
pub(crate) struct Job(*const (dyn Fn(&mut Worker) + Sync));

// SAFETY: the function behind the pointer is `Sync`, and `Pool::run` keeps it borrowed until every
// thread is through with it.
unsafe impl Send for Job {}

/// What all threads of a pool share.
pub(crate) struct Shared {
    pub(crate) hub: Hub<Job>,
    /// Of each level: queues count the sets of tasks that they have seen, and those who share them
    /// must have seen equally many.
    pub(crate) desks: Box<[Desks]>,
    /// Empty unless statistics are wanted.
    pub(crate) stats: Box<[Padded<Counters>]>,
    /// Before every wait.
    pub(crate) epoch: Instant,
    /// The CPU that each thread is pinned to; [`NOWHERE`] if it is not.
    homes: Box<[AtomicU32]>,
    /// The system's ids of the threads; 0 for the leader, who may change.
    ids: Box<[AtomicI32]>,
    /// Threads that were pinned, but began a job on another CPU.
    strayed: Box<[AtomicBool]>,
    /// On lines of its own: the leader locks it after every job.
    panicked: Padded<Mutex<Option<Panicked>>>,
}

/// No CPU.
const NOWHERE: u32 = u32::MAX;

impl Shared {
    /// For the threads of a specification.
    fn new(spec: &PoolSpec) -> Result<Self, Error> {
        let levels = spec.check()?;
        let (all, threads) = (levels.all(), levels.threads(levels.all()));
        let mut lines = Vec::new();
        let mut desks: Vec<Vec<OwnPage<Desk>>> = (0..=all).map(|_| Vec::new()).collect();
        for group in 0..spec.groups.len() {
            let (line, of_levels) = pages(spec, &levels, group)?;
            lines.push(line);
            desks.iter_mut().zip(of_levels).for_each(|(desks, desk)| desks.push(desk));
        }
        let desks = desks.into_iter().map(|desks| Desks::new(desks, &spec.distances));
        Ok(Self {
            hub: Hub::new(lines, levels, Duration::ZERO),
            desks: desks.collect(),
            stats: Counters::slots(if spec.stats { threads } else { 0 }),
            epoch: Instant::now(),
            homes: (0..threads).map(|_| AtomicU32::new(NOWHERE)).collect(),
            ids: (0..threads).map(|_| AtomicI32::new(0)).collect(),
            strayed: (0..threads).map(|_| AtomicBool::new(false)).collect(),
            panicked: Padded(Mutex::new(None)),
        })
    }

    /// Pins the calling thread, which is this one of the pool.
    fn pin(&self, thread: usize, cpu: CpuId, warnings: &Mutex<Vec<Warning>>) {
        match affinity::pin(cpu) {
            Ok(()) => self.homes[thread].store(cpu.0, Relaxed),
            Err(source) => {
                let mut warnings = warnings.lock().unwrap_or_else(PoisonError::into_inner);
                warnings.push(Warning::NotPinned { thread, cpu, source });
            }
        }
    }

    fn kernel_ids(&self) -> impl Iterator<Item = i32> {
        self.ids.iter().enumerate().map(|(thread, id)| match thread {
            0 => affinity::thread_id(),
            _ => id.load(Relaxed),
        })
    }

    /// Group g has the threads `first[g]..first[g + 1]`.
    fn first(&self) -> &[usize] {
        let levels = self.hub.levels();
        levels.first(levels.all())
    }

    /// The group of a thread and its rank there.
    pub(crate) fn place(&self, thread: usize) -> (usize, usize) {
        let first = self.first();
        let group = first.partition_point(|&first| first <= thread) - 1;
        (group, thread - first[group])
    }

    /// Runs the job on this thread; a panic releases the others from their barriers.
    fn execute(&self, job: Job, level: usize, worker: &mut Worker) {
        worker.begin(level);
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
    cpus: Vec<CpuId>, // [thread]
    workers: Vec<JoinHandle<()>>,
    leader: Option<Leader>,
    accounts: Accounts,
    warnings: Vec<Warning>,
}

/// The groups that a pool's threads were in before ([`Pool::regroup`]).
pub struct Grouping {
    shared: Arc<Shared>,
    cpus: Vec<CpuId>,
}

impl Pool {
    /// Starts the threads and waits until they are pinned.
    ///
    /// # Errors
    /// A specification without threads, with too small or too large a stack, or with tables of distances or levels that do not fit its
    /// groups; threads or memory that the system refuses. A CPU to which a thread cannot be pinned is a [warning](Self::warnings).
    pub fn new(spec: &PoolSpec) -> Result<Self, Error> {
        if !(LEAST_STACK..=MOST_STACK).contains(&spec.stack) {
            return Err(Error::Stack { bytes: spec.stack });
        }
        let shared = Arc::new(Shared::new(spec)?);
        let (cpus, all) = (spec.cpus(), shared.hub.levels().all());
        let threads = cpus.len();
        let warnings = Arc::new(Mutex::new(Vec::new()));
        let leader = spec.pins().then(|| Leader::new(cpus[0]));
        let (workers, accounts) = (Vec::new(), Accounts::default());
        let mut pool = Self { shared, cpus, workers, leader, accounts, warnings: Vec::new() };
        for thread in 1..threads {
            let (cpu, shared, warnings) =
                (pool.cpus[thread], pool.shared.clone(), warnings.clone());
            let pin = spec.pins();
            let body = move || {
                shared.ids[thread].store(affinity::thread_id(), Relaxed);
                if pin {
                    shared.pin(thread, cpu, &warnings);
                }
                drop(warnings);
                // Being pinned is the first job, and one for all.
                let (group, _) = shared.place(thread);
                shared.hub.finish(Member { level: shared.hub.levels().all(), group });
                work((shared, Seen::NEW), thread);
            };
            let builder = std::thread::Builder::new().name(format!("worker-{thread}"));
            let handle = builder.stack_size(spec.stack).spawn(body);
            // On an error the drop of `pool` sends the threads made so far home.
            pool.workers.push(handle.map_err(|source| Error::Spawn { thread, threads, source })?);
        }
        pool.shared.hub.finish_as_leader(all);
        pool.warn(&warnings, spec);
        Ok(pool)
    }

    /// Takes over warnings of threads that were pinned, and lets waiting threads spin unless they share CPUs.
    fn warn(&mut self, warnings: &Mutex<Vec<Warning>>, spec: &PoolSpec) {
        let mut fresh = warnings.lock().unwrap_or_else(PoisonError::into_inner);
        let threads = self.cpus.len();
        let distinct: BTreeSet<CpuId> = self.cpus.iter().copied().collect();
        let everywhere = !spec.pins() || !fresh.is_empty();
        // Others were of CPUs that threads have left.
        self.warnings.retain(|warning| matches!(warning, Warning::LeaderMoved));
        self.warnings.append(&mut fresh);
        let crowded = distinct.len() < threads
            || everywhere && CpuSet::of_this_thread().is_ok_and(|allowed| allowed.len() < threads);
        self.shared.hub.set_spin(match spec.spin {
            Spin::Auto if crowded => Duration::ZERO,
            Spin::Auto => AUTO_SPIN,
            Spin::Never => Duration::ZERO,
            Spin::For(limit) => limit,
        });
    }

    /// Puts the threads into other groups, on other CPUs, with other levels: the same threads, which are not stopped.
    /// Statistics start at zero. The result [puts them back](Self::restore).
    ///
    /// # Errors
    /// Those of [`Self::new`] except threads; another number of threads, or another choice whether they are pinned. Nothing is changed then.
    pub fn regroup(&mut self, spec: &PoolSpec) -> Result<Grouping, Error> {
        let cpus = spec.cpus();
        if cpus.len() != self.threads() {
            return Err(Error::OtherThreads { threads: self.threads(), wanted: cpus.len() });
        }
        if spec.pins() != self.leader.is_some() {
            return Err(Error::OtherPinning);
        }
        let groups = Grouping { shared: Arc::new(Shared::new(spec)?), cpus };
        let (before, warnings) = self.go_to(groups);
        self.warn(&warnings, spec);
        Ok(before)
    }

    /// Puts the threads back into groups that they were in before.
    ///
    /// # Panics
    /// When those were another pool's.
    pub fn restore(&mut self, groups: Grouping) {
        let ids = |shared: &Shared| shared.ids[1..].iter().map(|id| id.load(Relaxed)).collect();
        let own: [Vec<i32>; 2] = [ids(&self.shared), ids(&groups.shared)];
        assert_eq!(own[0], own[1], "groups of this pool's threads");
        let (_, warnings) = self.go_to(groups);
        self.warnings.append(&mut warnings.into_inner().unwrap_or_else(PoisonError::into_inner));
    }

    /// A last job in the present groups: every thread is pinned where it belongs and waits for the next job in the
    /// others. The groups that it leaves live until it has left them.
    fn go_to(&mut self, groups: Grouping) -> (Grouping, Mutex<Vec<Warning>>) {
        let Grouping { shared: next, cpus } = groups;
        for (id, before) in next.ids.iter().zip(&self.shared.ids) {
            id.store(before.load(Relaxed), Relaxed);
        }
        let (pins, warnings) = (self.leader.is_some(), Mutex::new(Vec::new()));
        let went = self.run(&|worker| {
            // The leader goes with the next job.
            if worker.thread() > 0 {
                if pins {
                    next.pin(worker.thread(), cpus[worker.thread()], &warnings);
                }
                worker.go_to(next.clone());
            }
        });
        went.expect("nothing in this job panics");
        if let Some(leader) = &mut self.leader {
            leader.go_to(cpus[0]);
        }
        let shared = std::mem::replace(&mut self.shared, next);
        let cpus = std::mem::replace(&mut self.cpus, cpus);
        (Grouping { shared, cpus }, warnings)
    }

    /// The number of threads, the leader included.
    pub fn threads(&self) -> usize {
        self.shared.hub.levels().threads(self.levels() - 1)
    }

    /// The number of groups.
    pub fn groups(&self) -> usize {
        self.shared.hub.groups()
    }

    /// The number of levels: those of [`PoolSpec::levels`], and all threads as the last.
    pub fn levels(&self) -> usize {
        self.shared.hub.levels().count()
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
        self.run_on(self.levels() - 1, job)
    }

    /// Runs `job` as [`Self::run`] does, but only on the threads of a level: the first
    /// [`PoolSpec::levels`]`[level][g]` of each group g, or all of them if it is the last level. For
    /// the job it is as if there were no others. They are not woken, and nothing that the job does in
    /// this crate writes to a line that they read; having waited for a job of theirs in vain
    /// ([`PoolSpec::spin`]), they sleep.
    ///
    /// # Errors
    /// As for [`Self::run`].
    ///
    /// # Panics
    /// When there is no such level.
    pub fn run_on(
        &mut self,
        level: usize,
        job: &(dyn Fn(&mut Worker) + Sync),
    ) -> Result<(), Panicked> {
        let levels = self.levels();
        assert!(level < levels, "a job of level {level}, but the pool's levels are 0..{levels}");
        self.take_the_lead();
        let hub = &self.shared.hub;
        // SAFETY: only the lifetime changes, and no thread uses the job after this function: it
        // returns only when all that it is for have finished, even if one of them (or this one) panics.
        let job = Job(unsafe {
            std::mem::transmute::<
                *const (dyn Fn(&mut Worker) + Sync + '_),
                *const (dyn Fn(&mut Worker) + Sync + 'static),
            >(job)
        });
        // SAFETY: `&mut self` makes this the only leader, and all workers have finished whatever
        // came before: `new` and every job end with `finish_as_leader`. So does the one by which workers come to these
        // groups: each has seen its gate before it finished that (`Worker::go_to`).
        unsafe { hub.broadcast(Some((job, level))) };
        self.shared.execute(job, level, &mut Worker::new(self.shared.clone(), 0));
        hub.finish_as_leader(level);
        let panicked = self.shared.panicked.lock().unwrap_or_else(PoisonError::into_inner).take();
        match panicked {
            None => Ok(()),
            Some(panicked) => {
                hub.clear_poison();
                self.shared.desks[level].reset();
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

    /// The kernel's numbers of the threads, by thread id; the calling thread is the leader.
    pub fn kernel_ids(&self) -> impl Iterator<Item = i32> {
        self.shared.kernel_ids()
    }

    /// How long the scheduler let each thread run, and how long it did not, by thread id; the calling thread is
    /// the leader. `None` if the kernel does not tell.
    pub fn cpu_times(&mut self) -> Option<Vec<CpuTime>> {
        self.accounts.read(self.shared.kernel_ids())
    }

    /// What every thread has done since the last reset, by thread id; empty unless
    /// [`PoolSpec::stats`] is set.
    pub fn stats(&self) -> Vec<ThreadStats> {
        self.shared.stats.iter().map(|slot| slot.get()).collect()
    }

    /// Sets the statistics to what those of another pool were, which this one follows.
    pub fn set_stats(&mut self, stats: &[ThreadStats]) {
        for (slot, stats) in self.shared.stats.iter().zip(stats) {
            slot.set(stats);
        }
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
        // SAFETY: as in `run`; or, after a failed `new` or in new groups, no worker has taken a job yet.
        unsafe { self.shared.hub.broadcast(None) };
        for worker in self.workers.drain(..) {
            // A worker catches all panics of its jobs; its own code does not panic.
            let _ = worker.join();
        }
    }
}

/// A worker's life, from the first job in these groups on.
fn work(groups: Next, thread: usize) {
    let mut next = Some(groups);
    while let Some((shared, mut seen)) = next.take() {
        let mut worker = Worker::new(shared.clone(), thread);
        let (group, class) = (worker.home(), worker.class());
        while next.is_none() {
            let Some((job, level)) = shared.hub.next_job(group, class, &mut seen) else { return };
            shared.execute(job, level, &mut worker);
            next = worker.take_next();
            shared.hub.finish(Member { level, group });
        }
    }
}

/// Where a group meets and where its tasks lie, at every level.
type Pages = (OwnPage<Lines>, Vec<OwnPage<Desk>>);

/// A group's pages, in the memory node of the group.
fn pages(spec: &PoolSpec, levels: &Levels, group: usize) -> Result<Pages, Error> {
    let desk = |level| Desk::new(levels.size(level, group)).and_then(OwnPage::new);
    let map = || {
        let lines = Lines::new(levels.count()).and_then(OwnPage::new);
        let desks = (0..levels.count()).map(desk).collect::<Result<_, _>>();
        let both = lines.and_then(|lines| Ok((lines, desks?)));
        both.map_err(|source| Error::Map { group, source })
    };
    if !spec.pins() || spec.groups.len() == 1 {
        return map();
    }
    // A page belongs to the node of the thread that first writes to it, and the caller's own
    // affinity must not change here: so a thread that lives for as long as that takes.
    std::thread::scope(|scope| {
        let body = || {
            // What cannot be pinned will be reported by the group's own threads.
            let _ = affinity::pin(spec.groups[group].cpus[0]);
            map()
        };
        let threads = levels.threads(levels.all());
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
        // Behind the pointers: desks have a test of their own, `epoch` is not written to, `homes` and `ids` are when a thread is
        // pinned and `strayed` when the system has moved one.
        assert_apart!(Shared: [hub] [panicked] [desks, stats, epoch, homes, ids, strayed]);
    }
}
