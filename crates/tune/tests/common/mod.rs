//! A machine whose optimum is known, because it was planted: hidden clusters of CPUs share a cap on
//! what they read, and crowd each other beyond it. Multiplying scales with cores.
#![allow(dead_code)] // Each test binary uses some of it.

#[path = "../random/mod.rs"]
mod random;

use arclight_tune as tune;
use random::normal;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use topology::topotree::{Configuration, Search, TopoTree};
use topology::{CpuId, Group, Machine};
use tune::tuner::{Candidate, Measure, Outcome, Scheme, StepKind};

/// A model of 1 GB of weights, 10⁹ multiply-accumulates a token.
const WORK: f64 = 1e9;
/// Bytes and multiply-accumulates a second of one core.
const READS: f64 = 10e9;
const MULTIPLIES: f64 = 100e9;
/// Seconds of a step that each thread and each group adds: arrivals at barriers.
const THREAD: f64 = 5e-6;
const GROUP: f64 = 20e-6;

pub(crate) fn tree(synthetic: &str) -> TopoTree {
    TopoTree::of(&Machine::from_synthetic(synthetic).unwrap())
}

/// The default: all CPUs, a group on each node.
pub(crate) fn by_node(synthetic: &str) -> Scheme {
    let machine = Machine::from_synthetic(synthetic).unwrap();
    Scheme::new(topology::layout(&machine, None, None).unwrap().groups).unwrap()
}

pub(crate) struct Planted {
    /// CPUs that share a cap.
    pub(crate) clusters: Vec<Vec<CpuId>>,
    /// Cores of a cluster that read as fast as they can.
    pub(crate) cap: usize,
    /// What each core beyond these costs the cluster: its rate is divided by 1 + crowd · cores.
    pub(crate) crowd: f64,
    /// Standard deviation of the times, as a share.
    pub(crate) noise: f64,
    pub(crate) random: u64,
    pub(crate) calls: usize,
    pub(crate) loads: usize,
    pub(crate) loaded: Option<Scheme>,
}

impl Planted {
    /// Clusters of `size` CPUs, `stride` apart among the children of the tree's last inner level but
    /// `above`.
    pub(crate) fn new(tree: &TopoTree, size: usize, stride: usize, cap: usize) -> Planted {
        let depth = tree.height();
        let clusters = match tree.group(size, stride, depth) {
            Ok(grouped) => grouped.parts(depth),
            // All children of a vertex.
            Err(_) => tree.parts(depth - 1),
        };
        Planted {
            clusters,
            cap,
            crowd: 0.2,
            noise: 0.0,
            random: 1,
            calls: 0,
            loads: 0,
            loaded: None,
        }
    }

    /// Seconds without noise.
    pub(crate) fn exact(&self, groups: &[&[CpuId]], tokens: u32) -> f64 {
        let used: BTreeSet<CpuId> = groups.iter().flat_map(|cpus| cpus.iter().copied()).collect();
        let mut rate: BTreeMap<CpuId, f64> = BTreeMap::new();
        for cluster in &self.clusters {
            let busy: Vec<CpuId> = cluster.iter().copied().filter(|c| used.contains(c)).collect();
            let over = busy.len().saturating_sub(self.cap) as f64;
            let all = READS * busy.len().min(self.cap) as f64 / (1.0 + self.crowd * over);
            rate.extend(busy.iter().map(|&cpu| (cpu, all / busy.len() as f64)));
        }
        let share = WORK / groups.len() as f64;
        let slowest = groups.iter().map(|cpus| {
            // Rows are dealt evenly, so the slowest core decides.
            let core = cpus.iter().map(|cpu| rate[cpu]).fold(f64::INFINITY, f64::min);
            let read = share / (core * cpus.len() as f64);
            let multiply = share * f64::from(tokens) / (MULTIPLIES * cpus.len() as f64);
            read.max(multiply)
        });
        slowest.fold(0.0, f64::max) + THREAD * used.len() as f64 + GROUP * groups.len() as f64
    }

    pub(crate) fn of(&self, configuration: &Configuration, tokens: u32) -> f64 {
        let groups: Vec<&[CpuId]> =
            configuration.groups().iter().map(|part| part.cpus.as_slice()).collect();
        self.exact(&groups, tokens)
    }

    /// Seconds of a trace served by an outcome, without noise.
    pub(crate) fn serves(&self, outcome: &Outcome, kinds: &[StepKind]) -> f64 {
        kinds.iter().map(|kind| kind.weight * self.step(outcome, kind.tokens)).sum()
    }

    /// Seconds of a step.
    pub(crate) fn step(&self, outcome: &Outcome, tokens: u32) -> f64 {
        let groups: Vec<&[CpuId]> = outcome.scheme.cpus(outcome.table.level(tokens)).collect();
        self.exact(&groups, tokens)
    }

    pub(crate) fn default_serves(&self, default: &Scheme, kinds: &[StepKind]) -> f64 {
        let all = default.all();
        let groups: Vec<&[CpuId]> = default.cpus(&all).collect();
        kinds.iter().map(|kind| kind.weight * self.exact(&groups, kind.tokens)).sum()
    }

    /// A number of mean 0 and deviation 1.
    pub(crate) fn normal(&mut self) -> f64 {
        normal(&mut self.random)
    }
}

impl Measure for Planted {
    fn seconds(&mut self, candidate: &Candidate<'_>, kind: &StepKind) -> Option<f64> {
        self.calls += 1;
        if self.loaded.as_ref() != Some(candidate.scheme) {
            self.loaded = Some(candidate.scheme.clone());
            self.loads += 1;
        }
        let groups: Vec<&[CpuId]> = candidate.scheme.cpus(candidate.level).collect();
        let noise = 1.0 + self.noise * self.normal();
        Some(self.exact(&groups, kind.tokens) * noise)
    }

    fn load_seconds(&self) -> f64 {
        0.0
    }
}

/// Whether each group is on one node.
pub(crate) fn on_nodes(configuration: &Configuration) -> bool {
    configuration.layout().is_some()
}

/// All configurations that a model could be loaded for: what an exhaustive search evaluates.
pub(crate) fn everything(tree: &TopoTree) -> Vec<Configuration> {
    let search = Search { prune: false, permit: &on_nodes, keep: 0, ..Search::default() };
    let mut all = vec![];
    search
        .run(tree, |configuration| {
            all.push(configuration.clone());
            ControlFlow::Continue(1.0)
        })
        .unwrap();
    all
}

/// The CPUs of each group.
pub(crate) fn sets(groups: &[Group]) -> Vec<BTreeSet<CpuId>> {
    groups.iter().map(|group| group.cpus.iter().copied().collect()).collect()
}

pub(crate) fn never_stop(_: &tune::tuner::TuneProgress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}
