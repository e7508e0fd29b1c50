//! How long a cache line takes from one core to another, and what that says of the machine.
//!
//! Two pinned threads hand one line to and fro: each waits for the other's number and writes the next. Of
//! some batches the fastest counts, since whatever disturbs one makes it slower. One pair is measured at a
//! time, one hardware thread of each core.

use super::measure::cores;
use crate::error::Error;
use crate::term;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeSet;
use std::hint::spin_loop;
use std::path::Path;
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

/// Times between all pairs of cores that may be used.
pub(crate) fn times(
    machine: &Machine,
    warnings: &mut BTreeSet<String>,
) -> Result<LineTimes, Error> {
    let cpus = cores(machine);
    let bar = term::count_bar("pairs", cpus.len() * cpus.len().saturating_sub(1) / 2);
    let times = LineTimes::measure(cpus, |a, b| {
        bar.inc(1);
        pair(a, b, warnings)
    });
    bar.finish_and_clear();
    times
}

/// Times that `topo --latency -o json` has printed.
pub(crate) fn read(path: &Path) -> Result<LineTimes, Error> {
    let text = std::fs::read_to_string(path).map_err(|e| Error::read(path, e))?;
    let fault = |what: String| Error::in_file(path, what);
    let missing = || fault("no latency.times: print it with topo --latency -o json".to_owned());
    let json: Value = serde_json::from_str(&text).map_err(|e| fault(format!("no JSON: {e}")))?;
    let list = |at: &str| json.pointer(at).and_then(Value::as_array).ok_or_else(missing);
    let cpu = |cpu: &Value| cpu.as_u64().and_then(|n| u32::try_from(n).ok()).map(CpuId);
    let cpus: Option<Vec<CpuId>> = list("/latency/times/cpus")?.iter().map(cpu).collect();
    let row = |row: &Value| row.as_array()?.iter().map(Value::as_f64).collect();
    let rows: Option<Vec<Vec<f64>>> = list("/latency/times/nanoseconds")?.iter().map(row).collect();
    let (cpus, rows) = cpus.zip(rows).ok_or_else(missing)?;
    LineTimes::new(cpus, rows).map_err(|e| fault(e.to_string()))
}

/// Measures all pairs of cores that may be used.
pub(super) fn measure(machine: &Machine) -> Result<Latency, Error> {
    let start = Instant::now();
    let mut warnings = BTreeSet::new();
    let times = times(machine, &mut warnings)?;
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
