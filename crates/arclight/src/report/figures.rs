//! The figures of the report.

use super::counters::Counted;
use super::experts::Experts;
use super::scheduled::Scheduled;
use super::tasks::Tasks;
use serde::Serialize;
use why::{Cause, NoShare, beaten_memory, share};

/// The report: per node and for all of them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct NodesReport {
    /// `decode`, or `prompt` if nothing was decoded.
    pub(super) phase: &'static str,
    pub(super) steps: u64,
    pub(super) tokens: u64,
    pub(super) seconds: f64,
    /// How the nodes share the model.
    pub(super) mode: String,
    /// Nodes of the plan that share a real one.
    pub(super) virtual_nodes: bool,
    /// Nodes share activations, whose traffic is not in the book.
    pub(super) shared_activations: bool,
    /// Several threads have the same CPU.
    pub(super) cpus_shared: bool,
    /// Bytes of the machine's caches.
    pub(super) cache_bytes: u64,
    /// Why it is not known where pages are.
    pub(super) pages_unknown: Option<String>,
    /// One for each group of threads.
    pub(super) nodes: Vec<Figures>,
    /// Sums, and means over all threads. What nodes share and cannot be told apart is only here.
    pub(super) all: Figures,
    /// Whether every thread has waited as often as its program says.
    pub(super) waits_as_compiled: bool,
    pub(super) threads: Vec<Thread>,
    /// How threads shared tasks, after an answer those of its prompt too; `None` if there were none.
    pub(super) tasks: Option<Tasks>,
    /// Products that a profile has schedules for; `None` without any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) scheduled: Option<Scheduled>,
    /// Which experts tokens went to; `None` for models without.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) experts: Option<Experts>,
    /// By the machine.
    pub(super) counted: Counted,
    /// Share of the peak of multiplications that was reached, where it was measured.
    pub(super) of_peak: Option<f64>,
    /// What took speed, whatever the model did.
    pub(super) causes: Vec<Cause>,
    /// What bounds the work, in words.
    pub(super) verdict: Vec<Cause>,
}

impl NodesReport {
    /// Whether memory that is no cache was read faster than its probe has read it.
    pub(super) fn beats_a_limit(&self) -> bool {
        let mut all = self.nodes.iter().chain([&self.all]);
        all.any(|figures| figures.traffic.no_share == Some(NoShare::Memory))
    }
}

/// The figures of one node.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Figures {
    /// The real memory node.
    pub(super) node: Option<u32>,
    pub(super) threads: usize,
    pub(super) memory: Memory,
    pub(super) traffic: Traffic,
    pub(super) time: Time,
}

/// Memory of the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Memory {
    pub(super) weights_bytes: u64,
    pub(super) kv_bytes: u64,
    pub(super) activation_bytes: u64,
    /// `None` if the kernel does not tell.
    pub(super) pages: Option<PageCounts>,
}

/// Where pages are, as the kernel says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct PageCounts {
    /// On a node that they were meant for.
    pub(super) right: usize,
    /// On another one.
    pub(super) wrong: usize,
    /// Not written yet: they have no memory.
    pub(super) absent: usize,
    /// Of which the kernel gave another answer.
    pub(super) unknown: usize,
    pub(super) huge_bytes: u64,
    /// Share of the memory that there is.
    pub(super) huge_share: f64,
    pub(super) present_bytes: u64,
}

/// Bytes that a token moves, by the book.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Traffic {
    pub(super) weights_bytes_per_token: f64,
    pub(super) kv_bytes_per_token: f64,
    /// Read from or written to other nodes' buffers.
    pub(super) exchanged_bytes_per_token: f64,
    /// Those, and what is streamed from pages that other nodes have. `None` if that is not known.
    pub(super) remote_bytes_per_token: Option<f64>,
    /// Of all these bytes.
    pub(super) remote_share: Option<f64>,
    pub(super) read_bytes_per_second: f64,
    /// What the threads can read from their own node's memory while all others do.
    pub(super) limit_bytes_per_second: f64,
    pub(super) of_limit: Option<f64>,
    /// Why there is no share.
    pub(super) no_share: Option<NoShare>,
}

impl Traffic {
    /// Compares what is read with the limit. A step of all nodes reads `step_bytes`.
    pub(super) fn compare(&mut self, step_bytes: u64, cache_bytes: u64) {
        let beaten = beaten_memory(step_bytes, cache_bytes);
        let share = share(self.read_bytes_per_second, self.limit_bytes_per_second, beaten);
        (self.of_limit, self.no_share) = (share.ok(), share.err());
    }
}

/// Where the time of the threads goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Time {
    /// Working: neither waiting nor between steps.
    pub(super) fastest: Busy,
    pub(super) slowest: Busy,
    pub(super) local: Waiting,
    pub(super) global: Waiting,
    /// From a step's beginning until a thread hears of it, and from the end of its work to that of
    /// the step. Mean over the threads.
    pub(super) step_ends_us_per_token: f64,
    /// Shares of the time, means over the threads. They add up to one.
    pub(super) working: f64,
    /// In all three ways.
    pub(super) waiting: f64,
    /// When no thread is in a step.
    pub(super) between_steps: f64,
}

/// A thread and how long it works.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Busy {
    pub(super) thread: usize,
    pub(super) us_per_token: f64,
}

/// Waits of one scope.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Waiting {
    /// Of each thread, as compiled.
    pub(super) per_step: f64,
    /// Mean over the threads.
    pub(super) us_per_token: f64,
    /// Of the thread that waited longest.
    pub(super) most_us_per_token: f64,
}

/// What one thread has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Thread {
    /// Index into the report's nodes.
    pub(super) node: usize,
    pub(super) cpu: u32,
    /// Steps.
    pub(super) jobs: u64,
    /// In steps: working and waiting.
    pub(super) jobs_us: f64,
    pub(super) busy_us: f64,
    pub(super) local_waits: u64,
    pub(super) local_us: f64,
    pub(super) global_waits: u64,
    pub(super) global_us: f64,
    /// Global waits in which it was the last of its node.
    pub(super) crossings: u64,
    /// Waits to which it came last of all, and how long the others had waited for it alone.
    pub(super) last_waits: u64,
    pub(super) last_us: f64,
    /// Of the weights that it multiplies in a step of all threads; 0 if that is not known.
    pub(super) weights_bytes: u64,
    /// By the book.
    pub(super) compiled_local_waits: u64,
    pub(super) compiled_global_waits: u64,
}

impl Thread {
    /// Whether it has waited as often as its program says.
    pub(super) fn as_compiled(&self) -> bool {
        (self.local_waits, self.global_waits)
            == (self.compiled_local_waits, self.compiled_global_waits)
    }
}
