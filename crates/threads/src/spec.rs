//! What a pool is to look like, and what the system or a caller can have against it.

use std::io;
use std::time::Duration;

use topology::{CpuId, Group};

use crate::levels::Levels;

/// What a pool is to look like.
#[derive(Clone, Debug)]
pub struct PoolSpec {
    /// The groups, in the order of their thread ids; usually one per memory node. A CPU may be named more
    /// than once. The pool does not read their nodes.
    pub groups: Vec<Group>,
    /// Pin every thread to its CPU, on Linux. Otherwise the CPUs only say how many threads there are, and
    /// the threads run wherever the thread that calls [`Pool::new`](crate::Pool::new) may.
    pub pin: bool,
    /// How long a waiting thread spins before it sleeps.
    pub spin: Spin,
    /// Record what threads do with their time ([`Pool::stats`](crate::Pool::stats)); two clock readings per wait, per
    /// job and per set of tasks, and one per task.
    pub stats: bool,
    /// `distances[a][b]`: how far it is from the threads of group a to the memory of group b, in any
    /// unit (`topology::Machine::distance`). Tasks are taken over from the nearest group first. Empty
    /// if unknown: groups go round by their numbers then.
    pub distances: Vec<Vec<u32>>,
    /// Smaller sets of threads that a job may be run on ([`Pool::run_on`](crate::Pool::run_on)):
    /// `levels[l][g]` is how many threads of group g take part in jobs of level l, its first so many.
    /// At least one of every group does, and no group has fewer at one level than at the one before.
    /// All threads are always one more level, the last. Empty if every job is for all.
    pub levels: Vec<Vec<usize>>,
    /// Bytes of the stack of each thread but the leader, which has its own: [`LEAST_STACK`] to [`MOST_STACK`]. A pool that is
    /// [regrouped](crate::Pool::regroup) keeps its threads, and so their stacks.
    pub stack: usize,
}

/// Stack of a thread: what threads have on Linux by the standard library's default, and by that of other thread pools
/// for models (ZigLlama). The system gives pages to what is used of it, some tens of KiB.
pub const STACK: usize = 2 << 20;

/// Minimum stack of a thread.
pub const LEAST_STACK: usize = 256 << 10;

/// Maximum stack of a thread: address space of many threads still fits, and sizes do not overflow in the C library.
pub const MOST_STACK: usize = 1 << 30;

impl PoolSpec {
    /// The CPUs of all threads.
    pub(crate) fn cpus(&self) -> Vec<CpuId> {
        self.groups.iter().flat_map(|group| group.cpus.iter().copied()).collect()
    }

    /// Checks groups, distances and levels.
    pub(crate) fn check(&self) -> Result<Levels, Error> {
        if self.groups.is_empty() {
            return Err(Error::NoGroups);
        }
        if let Some(group) = self.groups.iter().position(|group| group.cpus.is_empty()) {
            return Err(Error::EmptyGroup { group });
        }
        let groups = self.groups.len();
        let square = |table: &[Vec<u32>]| {
            table.len() == groups && table.iter().all(|row| row.len() == groups)
        };
        if !self.distances.is_empty() && !square(&self.distances) {
            return Err(Error::Distances { groups });
        }
        let sizes: Vec<usize> = self.groups.iter().map(|group| group.cpus.len()).collect();
        Levels::new(&sizes, &self.levels)
    }

    pub(crate) fn pins(&self) -> bool {
        self.pin && crate::affinity::PINS
    }
}

impl Default for PoolSpec {
    /// No groups yet; pinned, [`Spin::Auto`], no statistics, distances unknown, one level, [`STACK`].
    fn default() -> Self {
        let (groups, distances, levels) = (Vec::new(), Vec::new(), Vec::new());
        Self { groups, pin: true, spin: Spin::Auto, stats: false, distances, levels, stack: STACK }
    }
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
pub(crate) const AUTO_SPIN: Duration = Duration::from_micros(50);

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
    /// A level is not one number of threads for each group.
    #[error(
        "level {level} of the thread pool tells the threads of {given} groups, but there are {groups}: \
         give one number for each"
    )]
    LevelShape {
        /// Index of the level.
        level: usize,
        /// For how many groups it has a number.
        given: usize,
        /// How many groups there are.
        groups: usize,
    },
    /// A level has no thread of a group, or more than the group has.
    #[error(
        "level {level} of the thread pool takes {threads} of the {size} threads of group {group}: take \
         at least one and at most all"
    )]
    LevelSize {
        /// Index of the level.
        level: usize,
        /// Index of the group.
        group: usize,
        /// How many threads the level takes of it.
        threads: usize,
        /// How many it has.
        size: usize,
    },
    /// A level has fewer threads of a group than the level before it.
    #[error(
        "level {level} of the thread pool takes {threads} threads of group {group}, fewer than the \
         {below} of the level before it: put the smaller level first"
    )]
    LevelOrder {
        /// Index of the level.
        level: usize,
        /// Index of the group.
        group: usize,
        /// How many threads the level takes of it.
        threads: usize,
        /// How many the level before it takes.
        below: usize,
    },
    /// A stack that threads could overflow, or that no thread can use.
    #[error("a stack of {bytes} bytes for each thread of the pool: use 256 KiB to 1 GiB, as in 2M")]
    Stack {
        /// The requested size.
        bytes: usize,
    },
    /// Regrouping cannot start or end threads.
    #[error(
        "the thread pool's {threads} threads cannot be regrouped to {wanted}: make another pool"
    )]
    OtherThreads {
        /// How many there are.
        threads: usize,
        /// How many the groups want.
        wanted: usize,
    },
    /// Regrouping cannot pin threads that are not pinned, nor free others.
    #[error(
        "regrouping a thread pool does not change whether its threads are pinned: make another pool"
    )]
    OtherPinning,
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
    /// Different threads call [`Pool::run`](crate::Pool::run). The present caller is pinned now; the one before
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
