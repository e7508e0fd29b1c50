//! Machines that are not at hand, as something to measure: the model of time for any groups of CPUs.
//!
//! [`predict`](crate::predict()) knows nodes and how many of their cores work. A [`Search`] asks which: so here a
//! group of threads is a place of the compiled program, on the memory of its node, and a stage takes as long as
//! the busiest of its cores, of what cores share below a node ([`Sharing`]), of memories and of links. Groups on
//! the same node share its memory. With one group for each node, nothing shared below it and one CPU of each
//! core the result is that of `predict` (a test holds that).
//!
//! Work is dealt evenly over the threads of a group, so a core that is slower than the others makes all wait. Two
//! hardware threads of a core share what it reads and multiplies.
//!
//! Limits: as of `predict`; only reads are shared, caches are not; no noise. What cores share is known of few
//! machines; on others it is planted, to see what a search makes of it.
//!
//! [`Search`]: topology::topotree::Search

mod measure;
mod sharing;

pub use measure::{Laboratory, Operators};
pub use sharing::{Fill, Sharing};

use crate::error::positive;
use crate::step::{Stage, StepModel, Waits};
use crate::{Error, MachineModel};
use kernels::ActKind;
use std::collections::{BTreeMap, BTreeSet};
use topology::topotree::{LevelKind, TopoTree};
use topology::{CpuId, Machine, NodeId};

/// A machine: where its CPUs are, and how fast they are.
#[derive(Clone, Debug)]
pub struct Simulated {
    model: MachineModel,
    /// The nodes with CPUs, in the order of the model's.
    nodes: Vec<NodeId>,
    seats: BTreeMap<CpuId, Seat>,
    ways: Vec<Way>,
    /// Replicas that share each node's memory.
    replicas: usize,
}

/// Where a CPU is.
#[derive(Clone, Debug, Default)]
struct Seat {
    core: usize,
    ways: Vec<usize>,
}

/// A way to memory that some cores share.
#[derive(Clone, Debug)]
struct Way {
    /// Bytes a second.
    read: f64,
    /// Cores that fill it.
    fill: usize,
    crowd: f64,
}

/// A group of threads: the node of its memory, by the model's order, and its CPUs.
type Group<'a> = (usize, &'a [CpuId]);

impl Simulated {
    /// A machine with the CPUs of `machine` and the times of `model`, which has as many nodes.
    ///
    /// # Errors
    /// [`Error::NodeCount`]; [`Error::BadSharing`] when its cores cannot be grouped so.
    pub fn new(
        machine: &Machine,
        model: MachineModel,
        shared: &[Sharing],
    ) -> Result<Simulated, Error> {
        let tree = TopoTree::of(machine);
        let root = tree.cross_section(tree.height());
        let of_cpu = root.groups().iter().map(|part| (part.cpus[0], part.nodes.first().copied()));
        let homes: Vec<(CpuId, Option<NodeId>)> = of_cpu.collect();
        let nodes: BTreeSet<Option<NodeId>> = homes.iter().map(|&(_, node)| node).collect();
        if nodes.len() != model.nodes() {
            let (what, got) = ("the topology", nodes.len());
            return Err(Error::NodeCount { what, got, nodes: model.nodes() });
        }
        let order: Vec<Option<NodeId>> = nodes.into_iter().collect();
        let mut seats = BTreeMap::new();
        for (cpu, _) in homes {
            let core = machine.cpu(cpu).map_or(cpu.0, |cpu| cpu.core.0) as usize;
            seats.insert(cpu, Seat { core, ways: vec![] });
        }
        let mut simulated = Simulated {
            model,
            nodes: order.into_iter().flatten().collect(),
            seats,
            ways: vec![],
            replicas: 1,
        };
        for sharing in shared {
            simulated.share(&tree, sharing)?;
        }
        Ok(simulated)
    }

    /// The same with so many replicas of a model on each node's memory, all of which do the same.
    #[must_use]
    pub fn with_replicas(self, replicas: usize) -> Simulated {
        Simulated { replicas: replicas.max(1), ..self }
    }

    /// How fast it is.
    pub fn model(&self) -> &MachineModel {
        &self.model
    }

    fn share(&mut self, tree: &TopoTree, sharing: &Sharing) -> Result<(), Error> {
        let fault = |reason: String| Error::BadSharing { reason };
        let depth = tree.depth_of(LevelKind::Core).unwrap_or(tree.height());
        let cores = tree.parts(depth).len();
        // Where they are all of their parent's there is nothing to group.
        let above = tree.parts(depth - 1);
        let all = sharing.stride == 1 && above.len() * sharing.cores == cores;
        let parts = match sharing.cores {
            1 => tree.parts(depth),
            _ if all => above,
            n => {
                let grouped = tree.group(n, sharing.stride, depth);
                grouped.map_err(|e| fault(e.to_string()))?.parts(depth)
            }
        };
        let core = self.model.core(0, 0);
        let read = positive("what cores share", sharing.read(core))?;
        // What is less than a core reads is filled by one.
        let fill = (read / core).ceil().max(1.0) as usize;
        for part in parts {
            for cpu in &part {
                let seat = self.seats.get_mut(cpu).expect("a CPU of the tree");
                seat.ways.push(self.ways.len());
            }
            self.ways.push(Way { read, fill, crowd: sharing.crowd });
        }
        Ok(())
    }

    /// The place of a node in the model.
    fn place(&self, node: Option<NodeId>) -> usize {
        node.and_then(|node| self.nodes.iter().position(|&n| n == node)).unwrap_or(0)
    }

    /// Seconds of a step whose places are these groups, all on CPUs of the machine.
    fn seconds(&self, groups: &[Group<'_>], step: &StepModel) -> f64 {
        let crew = Crew::new(self, groups);
        let alone = |elements: f64| elements / self.model.math().elements * crew.slowest();
        let mut seconds = crew.waits(&step.meetings) + alone(step.sampling);
        for stage in step.stages() {
            let once = crew.working(stage) + alone(stage.alone) + crew.waits(&stage.waits);
            seconds += stage.times as f64 * once;
        }
        seconds
    }
}

/// The threads of a step.
struct Crew<'a> {
    machine: &'a Simulated,
    groups: &'a [Group<'a>],
    /// Of each group the most threads that any of its cores has.
    per_core: Vec<f64>,
    /// What each way with busy cores lets through, and the threads of each group on it.
    ways: Vec<(f64, Vec<(usize, f64)>)>,
}

impl<'a> Crew<'a> {
    fn new(machine: &'a Simulated, groups: &'a [Group<'a>]) -> Crew<'a> {
        let mut cores: BTreeMap<usize, f64> = BTreeMap::new();
        let mut ways: BTreeMap<usize, (BTreeSet<usize>, BTreeMap<usize, f64>)> = BTreeMap::new();
        for (at, (_, cpus)) in groups.iter().enumerate() {
            for seat in cpus.iter().map(|cpu| &machine.seats[cpu]) {
                *cores.entry(seat.core).or_default() += 1.0;
                for &way in &seat.ways {
                    let (busy, threads) = ways.entry(way).or_default();
                    busy.insert(seat.core);
                    *threads.entry(at).or_default() += 1.0;
                }
            }
        }
        let most = |(_, cpus): &Group<'_>| {
            cpus.iter().map(|cpu| cores[&machine.seats[cpu].core]).fold(1.0, f64::max)
        };
        let way = |(way, (busy, threads)): (usize, (BTreeSet<usize>, BTreeMap<usize, f64>))| {
            let Way { read, fill, crowd } = &machine.ways[way];
            let beyond = busy.len().saturating_sub(*fill) as f64;
            (read / (1.0 + crowd * beyond), threads.into_iter().collect())
        };
        let per_core = groups.iter().map(most).collect();
        Crew { machine, groups, per_core, ways: ways.into_iter().map(way).collect() }
    }

    /// How many times as long as on a core of its own the slowest thread takes.
    fn slowest(&self) -> f64 {
        self.per_core.iter().copied().fold(1.0, f64::max)
    }

    /// Seconds of the busiest resource.
    fn working(&self, stage: &Stage) -> f64 {
        let Simulated { model, replicas, .. } = self.machine;
        let rates = [ActKind::F32, ActKind::Bf16, ActKind::Q8].map(|kind| model.math().rate(kind));
        let nodes = model.nodes();
        let mut of_thread = vec![0.0; self.groups.len()];
        let mut links = vec![vec![0.0; nodes]; nodes];
        let mut busiest: f64 = 0.0;
        for (at, &(cpu, cpus)) in self.groups.iter().enumerate() {
            let threads = cpus.len() as f64;
            let (mut reading, mut bytes) = (0.0, 0.0);
            for (from, read) in stage.reads[at].iter().enumerate() {
                let memory = self.groups[from].0;
                links[cpu][memory] += read;
                reading += read / model.core(cpu, memory);
                bytes += read;
            }
            of_thread[at] = bytes / threads;
            let multiplying: f64 = stage.macs[at].iter().zip(rates).map(|(n, rate)| n / rate).sum();
            busiest = busiest.max(reading.max(multiplying) / threads * self.per_core[at]);
        }
        for (read, threads) in &self.ways {
            let bytes: f64 = threads.iter().map(|&(group, n)| n * of_thread[group]).sum();
            busiest = busiest.max(bytes / read);
        }
        for (cpu, row) in links.iter().enumerate() {
            for (memory, bytes) in row.iter().enumerate().filter(|&(memory, _)| memory != cpu) {
                busiest = busiest.max(bytes / model.link(cpu, memory));
            }
        }
        for memory in 0..nodes {
            let bytes: f64 = links.iter().map(|row| row[memory]).sum();
            busiest = busiest.max(bytes * *replicas as f64 / model.memory(memory));
        }
        busiest
    }

    /// Seconds of the waits after a stage.
    fn waits(&self, waits: &Waits) -> f64 {
        let model = self.machine.model.waits();
        let widest = self.groups.iter().map(|(_, cpus)| cpus.len()).max().unwrap_or(0);
        let local = model.local(widest);
        let among = self.groups.len();
        let first = self.groups.first().map(|(node, _)| *node);
        let together = self.groups.iter().all(|(node, _)| Some(*node) == first);
        let global = match (among, together) {
            (0 | 1, _) => local,
            // The line that they meet on stays in their node.
            (n, true) => local + n as f64 * model.arrival + 2.0 * model.line,
            (n, false) => local + n as f64 * model.remote_arrival + 2.0 * model.remote_line,
        };
        waits.local as f64 * local + waits.global as f64 * global
    }
}
