//! How long a cache line takes from one core to another, and what that says of the machine.
//!
//! Two pinned threads hand one line to and fro: each waits for the other's number and writes the next. Of
//! some batches the fastest counts, since whatever disturbs one makes it slower. One pair is measured at a
//! time, one hardware thread of each core.

use super::measure::cores;
use crate::error::Error;
use crate::term;
use serde::Serialize;
use std::collections::BTreeSet;
use std::hint::spin_loop;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Release};
use std::time::{Duration, Instant};
use threads::{Pool, PoolSpec, Scope};
use topology::topotree::{Level, LineTimes, Proposal, TopoTree};
use topology::{CpuId, Group, Machine};

/// Batches of a pair, and times there and back in each.
const BATCHES: usize = 7;
const ROUNDS: u64 = 500;
/// A batch ends at the latest after this, when others use the cores too.
const TOO_MUCH: Duration = Duration::from_millis(20);

/// What tells the other thread that it is over.
const OVER: u64 = u64::MAX;

/// What was measured.
#[derive(Debug, Serialize)]
pub(super) struct Latency {
    pub(super) times: LineTimes,
    pub(super) levels: Vec<Level>,
    /// Groups that no level shows.
    pub(super) proposals: Vec<Proposal>,
    pub(super) seconds: f64,
    /// What makes figures other than they seem.
    pub(super) warnings: Vec<String>,
}

/// Measures all pairs of cores that may be used.
pub(super) fn measure(machine: &Machine) -> Result<Latency, Error> {
    let start = Instant::now();
    let mut warnings = BTreeSet::new();
    let cpus = cores(machine);
    let bar = term::count_bar("pairs", cpus.len() * cpus.len().saturating_sub(1) / 2);
    let times = LineTimes::measure(cpus, |a, b| {
        bar.inc(1);
        pair(a, b, &mut warnings)
    })?;
    bar.finish_and_clear();
    let tree = TopoTree::of(machine);
    Ok(Latency {
        levels: tree.measured_levels(&times),
        proposals: tree.latent(&times),
        times,
        seconds: start.elapsed().as_secs_f64(),
        warnings: warnings.into_iter().collect(),
    })
}

/// A line that both threads write.
#[repr(align(128))]
#[derive(Default)]
struct Line(AtomicU64);

impl Line {
    /// Waits until it holds `number`; whether it does, and is not over.
    fn wait(&self, number: u64) -> bool {
        loop {
            match self.0.load(Acquire) {
                OVER => return false,
                held if held == number => return true,
                _ => spin_loop(),
            }
        }
    }
}

/// Nanoseconds that a line takes from one CPU to another.
fn pair(a: CpuId, b: CpuId, warnings: &mut BTreeSet<String>) -> Result<f64, Error> {
    let groups = vec![Group::unbound(vec![a, b])];
    let mut pool =
        Pool::new(&PoolSpec { groups, ..PoolSpec::default() }).map_err(Error::refused)?;
    let fastest = Mutex::new(f64::INFINITY);
    for _ in 0..BATCHES {
        let line = Line::default();
        let ran = pool.run(&|worker| {
            worker.wait(Scope::Global);
            if worker.thread() == 1 {
                let mut number = 1;
                while line.wait(number) {
                    line.0.store(number + 1, Release);
                    number += 2;
                }
                return;
            }
            let start = Instant::now();
            let (mut rounds, mut took) = (0, Duration::ZERO);
            while rounds < ROUNDS && took < TOO_MUCH {
                line.0.store(2 * rounds + 1, Release);
                line.wait(2 * rounds + 2);
                rounds += 1;
                if rounds.is_multiple_of(64) || rounds == ROUNDS {
                    took = start.elapsed();
                }
            }
            line.0.store(OVER, Release);
            let one_way = took.as_nanos() as f64 / (2 * rounds) as f64;
            let mut fastest = fastest.lock().unwrap_or_else(PoisonError::into_inner);
            *fastest = fastest.min(one_way);
        });
        ran.map_err(Error::refused)?;
    }
    warnings.extend(pool.warnings().iter().map(ToString::to_string));
    Ok(fastest.into_inner().unwrap_or_else(PoisonError::into_inner))
}
