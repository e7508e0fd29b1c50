//! The placement and traffic report: where a model's memory is, what crosses between nodes, how near
//! each node's memory is to its limit, and where the threads' time goes.
//!
//! Four sources are brought together. The *kernel* tells where pages are (`move_pages`), the *book*
//! of the compiled programs what a step streams and exchanges, the *threads* how long they worked
//! and waited and how they shared [tasks], and a *probe* on the same threads what each node's memory can
//! deliver ([`reads`]).
//! What the book says of waits is held against what the threads have counted. The machine's
//! [counters], where they can be had, stand beside it; [phases] has those of the threads, by phase.
//!
//! Limits: bytes are those of the book, so reads that caches serve are in them. Activations are in
//! the book only where nodes exchange them: with one copy for several nodes (mirror, interleave,
//! off) their traffic is not counted, which the report says. Where nodes share a product each is
//! taken to stream its threads' share of it.

mod around;
mod counters;
mod experts;
mod facts;
mod figures;
mod phase;
pub(crate) mod phases;
pub(crate) mod reads;
mod rows;
mod scheduled;
mod shares;
mod table;
mod tasks;
mod verdict;

#[cfg(test)]
mod tests;

pub(crate) use around::Look;
pub(crate) use counters::{Meter, joules};
pub(crate) use figures::NodesReport;
pub(crate) use phase::Phase;
pub(crate) use shares::{no_shares, of_limit};

use crate::error::Error;
use crate::term;
use arclight_engine::{Engine, NodeId, Placement, Plan};
use facts::Facts;
use reads::{ReadProbe, Reads};
use scheduled::Scheduled;
use serde::Serialize;
use tasks::Tasks;
use topology::Machine;
pub(crate) use why::Cause;

/// Passes of the probe after an answer: the best of three is steady, and takes some 20 ms each.
const PASSES: usize = 3;
/// Passes at most, while the answer beats its limit: others had the machine at the time.
const MOST_PASSES: usize = 20;

/// What is asked of the kernel once, after the work: where the pages are. The text says why it is
/// not known.
pub(crate) type Asked = Result<Placement, String>;

/// Asks the kernel.
pub(crate) fn ask(engine: &mut Engine) -> Asked {
    engine.placement().map_err(|e| Error::from(e).line())
}

/// The report of some work, with a node's limits as they were measured beside it, and what took speed from it.
pub(crate) fn of(
    engine: &mut Engine,
    asked: &Asked,
    phase: &Phase,
    causes: &[Cause],
    reads: &Reads,
    machine: &Machine,
    of_peak: Option<f64>,
) -> NodesReport {
    let loaded = engine.report().nodes.clone();
    let weights = engine.streamed_bytes();
    let counts = &phase.activity.counts;
    let tokens = counts.tokens.div_ceil(counts.steps.max(1)) as usize;
    let mut report = NodesReport::of(&Facts {
        plan: engine.plan(),
        loaded: &loaded,
        placement: asked.as_ref().map_err(String::as_str),
        phase,
        weights: &weights,
        of_peak,
        causes,
        tasks: Tasks::of(&phase.activity.threads),
        reads,
        caches: reads::cache_bytes(machine),
    });
    report.scheduled = Scheduled::of(engine, tokens);
    report
}

/// The report after an answer: of the decoding, or of the prompt if nothing was decoded; but tasks of
/// both, because the prompt has most of them. `None` if nothing was computed at all.
pub(crate) fn after(
    engine: &mut Engine,
    phases: &[Phase],
    causes: &[Cause],
) -> Result<Option<NodesReport>, Error> {
    let Some(phase) = phases.iter().rfind(|p| p.activity.counts.tokens > 0) else {
        return Ok(None);
    };
    let asked = ask(engine);
    let machine = Machine::read()?;
    let groups = engine.plan().group_threads();
    let pool = engine.pool();
    let mut probe = ReadProbe::new(pool, groups, &machine)?;
    for _ in 0..PASSES {
        probe.pass(pool)?;
    }
    let look = |engine: &mut Engine, probe: &ReadProbe| {
        of(engine, &asked, phase, causes, probe.reads(), &machine, None)
    };
    let mut report = look(engine, &probe);
    for _ in PASSES..MOST_PASSES {
        if !report.beats_a_limit() {
            break;
        }
        probe.pass(engine.pool())?;
        report = look(engine, &probe);
    }
    let threads = phases.iter().flat_map(|phase| &phase.activity.threads);
    report.tasks = Tasks::of(&threads.copied().collect::<Vec<_>>());
    Ok(Some(report))
}

/// What a node's memory was read in some work.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct NodeRead {
    pub(crate) bytes_per_second: f64,
    /// By its memory controllers, for all programs together; otherwise it is computed, of what steps read.
    pub(crate) counted: bool,
}

/// What each node was read: counted where all nodes have controllers that may be asked.
pub(crate) fn node_reads(plan: &Plan, phase: &Phase) -> Vec<NodeRead> {
    let seconds = phase.time.as_secs_f64();
    let of = |bytes: f64, counted| NodeRead { bytes_per_second: bytes / seconds, counted };
    let nodes: Vec<Option<NodeId>> = plan.groups.iter().map(|group| group.node).collect();
    if let Some(bytes) = phase.counted.reads_of(&nodes) {
        return bytes.into_iter().map(|bytes| of(bytes, true)).collect();
    }
    let computed = |group| {
        let moved = phase.activity.moved(plan, group);
        of(moved.weights + moved.kv, false)
    };
    (0..plan.groups.len()).map(computed).collect()
}

/// What the memory beside each group of an engine's threads delivers to them, in bytes per second: for a server, which
/// has the machine for itself only in idle time.
///
/// # Errors
/// When memory is too full for what is to be read, or the threads cannot run.
pub(crate) fn limits(engine: &mut Engine) -> Result<Vec<f64>, String> {
    let machine = Machine::read().map_err(|e| Error::from(e).line())?;
    let free: u64 = machine.usable_nodes().filter_map(|node| machine.available(node.id)).sum();
    // A control group that has too little left ends the process.
    let left = |limit: u64| limit.saturating_sub(resident().unwrap_or(limit));
    let free = machine.memory_limit().map_or(free, |limit| free.min(left(limit)));
    let need = reads::buffer_bytes(&machine);
    if free < 2 * need {
        let (need, free) = (term::size(need as usize), term::size(free as usize));
        return Err(format!("memory is too full to measure it: {need} are read, {free} are free"));
    }
    let groups = engine.plan().group_threads();
    let pool = engine.pool();
    let measure = || -> Result<Vec<f64>, Error> {
        let mut probe = ReadProbe::new(pool, groups, &machine)?;
        for _ in 0..PASSES {
            probe.pass(pool)?;
        }
        Ok(probe.reads().groups.clone())
    };
    measure().map_err(|e| e.line())
}

/// Bytes of memory that this process has.
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}
