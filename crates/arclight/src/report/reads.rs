//! What each node's memory delivers to the threads of a pool.
//!
//! Every thread reads a buffer of its own, which it has touched first, so that it lies beside the
//! thread, on huge pages where the kernel has them; together they are several times as large as the
//! caches. All threads of all nodes begin together, and each node is timed by its last thread: what
//! limits several nodes at once is in the figures. Of several passes the best counts.
//!
//! Limits: threads that are not pinned may have moved away from their buffers.

use crate::error::Error;
use measure::probe::Buffer;
use memory::{HugePages, Policy};
use serde::Serialize;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use threads::{Pool, Scope};
use topology::Machine;

/// Buffers of at least this many bytes in all, and of four times the caches.
const LEAST_BUFFER: u64 = 256 << 20;

/// Bytes read per second.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Reads {
    /// By all threads together.
    pub(crate) all: f64,
    /// By each group, all groups at the same time.
    pub(crate) groups: Vec<f64>,
    /// By all threads together in the slowest pass: on a quiet machine nearly as much.
    pub(crate) slowest: f64,
}

/// Measures what threads can read.
pub(crate) struct ReadProbe {
    /// One per thread.
    buffers: Vec<Mutex<Buffer>>,
    groups: Vec<Range<usize>>,
    best: Reads,
}

impl ReadProbe {
    /// Has every thread of a pool, which has these groups, write the buffer that it will read.
    pub(crate) fn new(
        pool: &mut Pool,
        groups: Vec<Range<usize>>,
        machine: &Machine,
    ) -> Result<ReadProbe, Error> {
        let share = buffer_bytes(machine) as usize / pool.threads();
        let buffer = || Buffer::new(share, Policy::Default, HugePages::Transparent).map(Mutex::new);
        let buffers = (0..pool.threads()).map(|_| buffer()).collect::<Result<Vec<_>, _>>();
        let buffers = buffers.map_err(Error::refused)?;
        run(pool, &|thread| lock(&buffers[thread]).words_mut().fill(1))?;
        let slowest = f64::INFINITY;
        let best = Reads { all: 0.0, groups: vec![0.0; groups.len()], slowest };
        Ok(ReadProbe { buffers, groups, best })
    }

    /// Reads everything once.
    pub(crate) fn pass(&mut self, pool: &mut Pool) -> Result<(), Error> {
        let buffers = &self.buffers;
        let times = run(pool, &|thread| {
            keep(measure::probe::read_bytes(lock(&buffers[thread]).bytes()));
        })?;
        let rate = |threads: Range<usize>| {
            let bytes: usize = buffers[threads.clone()].iter().map(|b| lock(b).len()).sum();
            bytes as f64 / times.of(threads).as_secs_f64()
        };
        let all = rate(0..buffers.len());
        self.best.all = self.best.all.max(all);
        self.best.slowest = self.best.slowest.min(all);
        for (best, threads) in self.best.groups.iter_mut().zip(&self.groups) {
            *best = best.max(rate(threads.clone()));
        }
        Ok(())
    }

    /// The best so far.
    pub(crate) fn reads(&self) -> &Reads {
        &self.best
    }
}

/// When each thread began a job and when it was done.
pub(crate) struct Times(Vec<(Instant, Instant)>);

impl Times {
    /// From the beginning of the first thread of all to the end of the last of `threads`. (A thread
    /// that shares its CPU may begin when others are done.)
    fn of(&self, threads: Range<usize>) -> Duration {
        let first = self.0.iter().map(|t| t.0).min();
        let last = self.0[threads].iter().map(|t| t.1).max();
        first.zip(last).map_or(Duration::ZERO, |(first, last)| last - first)
    }

    /// From first to last.
    pub(crate) fn all(&self) -> Duration {
        self.of(0..self.0.len())
    }
}

/// Runs a job on all threads at the same time.
pub(crate) fn run(pool: &mut Pool, job: &(dyn Fn(usize) + Sync)) -> Result<Times, Error> {
    let now = Instant::now();
    let times: Vec<Mutex<(Instant, Instant)>> =
        (0..pool.threads()).map(|_| Mutex::new((now, now))).collect();
    let ran = pool.run(&|worker| {
        worker.wait(Scope::Global);
        let start = Instant::now();
        job(worker.thread());
        *lock(&times[worker.thread()]) = (start, Instant::now());
    });
    ran.map_err(|e| arclight_engine::Error::from(graph::Error::from(e)))?;
    Ok(Times(times.iter().map(|t| *lock(t)).collect()))
}

/// Makes sure that a result is computed.
pub(crate) fn keep(result: u64) {
    std::hint::black_box(result);
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Bytes of all caches.
pub(crate) fn cache_bytes(machine: &Machine) -> u64 {
    machine.caches().iter().map(|c| c.size_bytes).sum()
}

/// Four times the caches, within an eighth of the memory.
pub(crate) fn buffer_bytes(machine: &Machine) -> u64 {
    let memory: u64 = machine.nodes().iter().map(|n| n.memory_bytes).sum();
    let most = if memory == 0 { LEAST_BUFFER } else { memory / 8 };
    (4 * cache_bytes(machine)).max(LEAST_BUFFER).min(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_timed_by_its_last_thread_from_the_common_start() {
        let zero = Instant::now();
        let at = |from, to| (zero + Duration::from_millis(from), zero + Duration::from_millis(to));
        let times = Times(vec![at(1, 5), at(2, 4), at(6, 9), at(3, 7)]);
        assert_eq!(times.of(0..2), Duration::from_millis(4));
        assert_eq!(times.of(3..4), Duration::from_millis(6));
        assert_eq!(times.all(), Duration::from_millis(8));
    }
}
