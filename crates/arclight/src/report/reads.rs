//! What each node's memory delivers to the threads of a pool.
//!
//! Every thread reads a buffer of its own, which it has touched first, so that it lies beside the
//! thread, on huge pages where the kernel has them; together they are several times as large as the
//! caches, and a thread goes on where it was, so what it reads has left the caches. A pass is many short
//! [`windows`], in each of which all threads of all nodes work until the same moment: what limits several nodes at once
//! is in the figures. The window in which all nodes together read most counts, and nodes have their parts
//! of that one, so they add up. Short windows find quiet moments on a machine where other programs work.
//!
//! Limits: threads that are not pinned may have moved away from their buffers.

use crate::error::Error;
use measure::probe::Buffer;
use memory::{HugePages, Policy};
use serde::Serialize;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use threads::{Pool, Scope};
use topology::Machine;

/// Buffers of at least this many bytes in all, and of four times the caches.
const LEAST_BUFFER: u64 = 256 << 20;
/// Bytes that a thread reads between two looks at the clock: 10 to 30 µs.
const PIECE: usize = 256 << 10;
/// A window, and how many a pass has.
const WINDOW: Duration = Duration::from_millis(1);
const WINDOWS: usize = 16;

/// Bytes read per second.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Reads {
    /// By all threads together.
    pub(crate) all: f64,
    /// By each group in the same window: they add up to `all`.
    pub(crate) groups: Vec<f64>,
    /// By all threads together in the median window of the slowest pass: on a quiet machine nearly as much.
    pub(crate) slowest: f64,
}

/// Measures what threads can read.
pub(crate) struct ReadProbe {
    /// One per thread.
    buffers: Vec<Mutex<Own>>,
    groups: Vec<Range<usize>>,
    best: Reads,
}

/// The buffer of a thread, and how far it has read.
struct Own {
    buffer: Buffer,
    at: usize,
}

impl Own {
    /// Reads the next piece, and says how many bytes that were.
    fn read(&mut self) -> u64 {
        let bytes = self.buffer.bytes();
        let piece = &bytes[self.at..bytes.len().min(self.at + PIECE)];
        keep(measure::probe::read_bytes(piece));
        self.at = (self.at + piece.len()) % bytes.len();
        piece.len() as u64
    }
}

impl ReadProbe {
    /// Has every thread of a pool, which has these groups, write the buffer that it will read.
    pub(crate) fn new(
        pool: &mut Pool,
        groups: Vec<Range<usize>>,
        machine: &Machine,
    ) -> Result<ReadProbe, Error> {
        let share = buffer_bytes(machine) as usize / pool.threads();
        let buffer = || Buffer::new(share, Policy::Default, HugePages::Transparent);
        let buffer = || buffer().map(|buffer| Mutex::new(Own { buffer, at: 0 }));
        let buffers = (0..pool.threads()).map(|_| buffer()).collect::<Result<Vec<_>, _>>();
        let buffers = buffers.map_err(Error::refused)?;
        let ran = pool.run(&|worker| lock(&buffers[worker.thread()]).buffer.words_mut().fill(1));
        ran.map_err(failed)?;
        let slowest = f64::INFINITY;
        let best = Reads { all: 0.0, groups: vec![0.0; groups.len()], slowest };
        Ok(ReadProbe { buffers, groups, best })
    }

    /// A pass.
    pub(crate) fn pass(&mut self, pool: &mut Pool) -> Result<(), Error> {
        let buffers = &self.buffers;
        let windows = windows(pool, &|thread| lock(&buffers[thread]).read())?;
        self.best.note(&windows, &self.groups);
        Ok(())
    }

    /// The best so far.
    pub(crate) fn reads(&self) -> &Reads {
        &self.best
    }
}

impl Reads {
    /// Takes in the windows of a pass.
    fn note(&mut self, windows: &[Vec<f64>], groups: &[Range<usize>]) {
        for window in windows {
            let all: f64 = window.iter().sum();
            if all > self.all {
                self.all = all;
                self.groups =
                    groups.iter().map(|group| window[group.clone()].iter().sum()).collect();
            }
        }
        let all: Vec<f64> = windows.iter().map(|window| window.iter().sum()).collect();
        self.slowest = self.slowest.min(topology::median(&all).unwrap_or(0.0));
    }
}

/// Has all threads of a pool do `piece` after `piece` in some short windows, which they begin and end together. `piece` says
/// how much it did. The result is what each thread did per second: `[window][thread]`.
pub(crate) fn windows(
    pool: &mut Pool,
    piece: &(dyn Fn(usize) -> u64 + Sync),
) -> Result<Vec<Vec<f64>>, Error> {
    let starts: Vec<OnceLock<Instant>> = (0..WINDOWS).map(|_| OnceLock::new()).collect();
    let rates: Vec<Mutex<Vec<f64>>> = (0..pool.threads()).map(|_| Mutex::default()).collect();
    let ran = pool.run(&|worker| {
        let thread = worker.thread();
        let window = |start: &OnceLock<Instant>| {
            worker.wait(Scope::Global);
            // That of the first: a thread that starts after the others has done little in that time.
            let start = start.get_or_init(Instant::now);
            let mut done = 0;
            loop {
                done += piece(thread);
                let took = start.elapsed();
                if took >= WINDOW {
                    return done as f64 / took.as_secs_f64();
                }
            }
        };
        *lock(&rates[thread]) = starts.iter().map(window).collect();
    });
    ran.map_err(failed)?;
    Ok((0..WINDOWS).map(|at| rates.iter().map(|own| lock(own)[at]).collect()).collect())
}

fn failed(error: threads::Panicked) -> Error {
    arclight_engine::Error::from(graph::Error::from(error)).into()
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
    fn the_best_window_counts_and_its_groups_add_up() {
        let mut reads = Reads { slowest: f64::INFINITY, ..Reads::default() };
        let groups = [0..2, 2..3];
        let windows = [vec![1.0, 2.0, 9.0], vec![4.0, 5.0, 6.0], vec![1.0, 1.0, 1.0]];
        reads.note(&windows, &groups);
        // The second group alone did more in the first window.
        let expected = Reads { all: 15.0, groups: vec![9.0, 6.0], slowest: 12.0 };
        assert_eq!(reads, expected);
        reads.note(&vec![vec![1.0; 3]; 3], &groups);
        assert_eq!(reads, Reads { slowest: 3.0, ..expected });
    }

    #[test]
    fn threads_work_side_by_side_in_every_window() {
        let machine = Machine::read().unwrap();
        let layout = topology::layout(&machine, None, Some(2)).unwrap();
        let mut pool = crate::bench_sync::pools::pool(&layout.groups, false).unwrap();
        let pieces: Vec<_> = (0..2).map(|_| std::sync::atomic::AtomicU64::new(0)).collect();
        let piece = |thread: usize| {
            pieces[thread].fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            std::thread::sleep(WINDOW / 4);
            10
        };
        let windows = windows(&mut pool, &piece).unwrap();
        assert_eq!(windows.len(), WINDOWS);
        // Four pieces of ten a window at most, each of which takes a quarter of it or longer.
        let most = 4.0 * 10.0 / WINDOW.as_secs_f64();
        assert!(windows.iter().all(|window| window.len() == 2), "{windows:?}");
        assert!(windows.iter().flatten().all(|&rate| rate > 0.0 && rate <= most), "{windows:?}");
        assert!(pieces.iter().all(|n| n.load(std::sync::atomic::Ordering::Relaxed) >= 16));
    }

    #[test]
    fn a_probe_goes_round_in_its_buffer() {
        let buffer = Buffer::new(PIECE + 128, Policy::Default, HugePages::Transparent).unwrap();
        let (len, mut own) = (buffer.len(), Own { buffer, at: 0 });
        assert_eq!((own.read(), own.at), (PIECE as u64, PIECE));
        assert_eq!((own.read(), own.at), ((len - PIECE) as u64, 0));
    }
}
