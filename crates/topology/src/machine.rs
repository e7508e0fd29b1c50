//! The description of a machine as values, and the questions the engine asks of it.

use crate::{CpuList, Error, NodeList, room, sysfs};
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

/// A memory node, by the kernel's number. Numbers may have gaps.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
pub struct NodeId(pub u32);

/// A logical CPU (hardware thread), by the kernel's number.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
pub struct CpuId(pub u32);

/// A physical core, unique in the machine: the number of its lowest online CPU.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
pub struct CoreId(pub u32);

/// A cache: its index in [`Machine::caches`].
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
pub struct CacheId(pub u32);

macro_rules! display_as_number {
    ($($id:ty),*) => {$(
        impl fmt::Display for $id {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    )*};
}
display_as_number!(NodeId, CpuId, CoreId, CacheId);

/// A memory node.
#[derive(Clone, Debug, Serialize)]
pub struct Node {
    /// The kernel's number.
    pub id: NodeId,
    /// The node's CPUs that this process may use, ascending.
    pub cpus: Vec<CpuId>,
    /// Memory of the node in bytes; 0 also when unknown.
    pub memory_bytes: u64,
    /// Memory that was free when the machine was read, in bytes.
    pub free_bytes: u64,
    /// Memory that could be had when the machine was read, in bytes: see [`Machine::available`].
    pub available_bytes: Option<u64>,
    /// False for a node of CPUs only. True when the amount is unknown.
    pub has_memory: bool,
    /// Whether this process may allocate on the node.
    pub memory_allowed: bool,
    /// Relative cost of access from this node to every node, itself included: 10 is local.
    pub distances: Vec<(NodeId, u32)>,
}

impl Node {
    /// Whether the node can be a compute group's home: CPUs to run on and memory to bind to.
    pub fn usable(&self) -> bool {
        !self.cpus.is_empty() && self.memory_usable()
    }

    pub(crate) fn memory_usable(&self) -> bool {
        self.has_memory && self.memory_allowed
    }
}

/// An online logical CPU.
#[derive(Clone, Debug, Serialize)]
pub struct Cpu {
    /// The kernel's number.
    pub id: CpuId,
    /// The memory node it belongs to.
    pub node: NodeId,
    /// Socket: the kernel's number, that of its lowest CPU where there is none, 0 when nothing is
    /// known.
    pub package: u32,
    /// Die, unique within the package only.
    pub die: Option<u32>,
    /// Cluster (CPUs sharing an L2 or an interconnect stop), unique within the package only.
    pub cluster: Option<u32>,
    /// The physical core; equal for SMT siblings.
    pub core: CoreId,
    /// Place among the core's online siblings, 0 being the lowest number. It describes the
    /// hardware: with a narrow affinity mask the only allowed sibling may have rank 1.
    pub smt_rank: usize,
    /// Level 1 cache for data, if the system tells it.
    pub l1: Option<FirstCache>,
    /// The L2 cache.
    pub l2: Option<CacheId>,
    /// The L3 cache.
    pub l3: Option<CacheId>,
    /// Whether affinity mask and cpuset let this process run here.
    pub allowed: bool,
    /// Highest frequency in kHz.
    pub max_khz: Option<u64>,
    /// Compute capacity relative to the machine's fastest CPU, which has 1024.
    pub capacity: Option<u32>,
}

/// A level 1 cache for data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct FirstCache {
    /// Size in bytes.
    pub size_bytes: u64,
    /// Bytes of a line, if they are told.
    pub line_bytes: Option<u32>,
}

/// A level 2 or level 3 cache.
#[derive(Clone, Debug, Serialize)]
pub struct Cache {
    /// 2 or 3.
    pub level: u8,
    /// Size in bytes; 0 when unknown.
    pub size_bytes: u64,
    /// The online CPUs that share it, ascending, allowed or not.
    pub cpus: Vec<CpuId>,
}

/// What this process was confined to. `None`: not confined, or not known.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Limits {
    /// CPUs of the affinity mask (the kernel already cuts it down to the cpuset).
    pub(crate) affinity: Option<CpuList>,
    /// CPUs of the cpuset.
    pub(crate) cpuset: Option<CpuList>,
    /// CPU time per wall-clock time, in CPUs.
    pub(crate) quota: Option<f64>,
    /// Memory limit of the control groups, in bytes.
    pub(crate) memory_bytes: Option<u64>,
    /// What a user asked to be left with.
    pub(crate) restriction: Option<Restriction>,
}

/// See [`Machine::restrict`].
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Restriction {
    pub(crate) nodes: Option<NodeList>,
    pub(crate) cpus: Option<CpuList>,
    /// The CPUs that were allowed before.
    #[serde(skip)]
    pub(crate) before: CpuList,
}

/// A machine, as far as this process may use it.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    pub(crate) model: Option<String>,
    pub(crate) nodes: Vec<Node>,
    /// Allowed CPUs first, each part ascending.
    pub(crate) cpus: Vec<Cpu>,
    pub(crate) allowed_cpus: usize,
    pub(crate) caches: Vec<Cache>,
    pub(crate) limits: Limits,
    /// False when the kernel has no memory nodes: `nodes` is then one made up, number 0.
    pub(crate) numa: bool,
    pub(crate) notes: Vec<String>,
    /// CPUs that exist, but are offline.
    pub(crate) offline: CpuList,
    /// Where the files are that it was read from; `None` for a machine that was only described.
    #[serde(skip)]
    pub(crate) root: Option<PathBuf>,
}

impl Machine {
    /// Describes the machine this process runs on. Only Linux is asked: on other systems it is one node with as many
    /// cores as threads can run at once, and a [note](Self::notes) says so.
    ///
    /// # Errors
    /// [`Error::NoCpus`] when not even the list of CPUs can be found.
    pub fn read() -> Result<Self, Error> {
        if cfg!(all(target_os = "linux", not(miri))) {
            Self::read_from(Path::new("/"))
        } else {
            Self::unknown()
        }
    }

    /// The machine of a system that is not asked.
    fn unknown() -> Result<Self, Error> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let mut machine = Self::from_synthetic(&format!("core:{cores}"))?;
        machine.numa = false;
        machine.notes.push(
            "this system is not asked for nodes, caches and free memory: threads are not pinned, and memory lies \
             where the system puts it"
                .to_owned(),
        );
        Ok(machine)
    }

    /// Describes the machine whose `sys` and `proc/self` are under `root`.
    ///
    /// # Errors
    /// [`Error::NoCpus`] when no CPU is found there, or none that is online and allowed.
    pub fn read_from(root: &Path) -> Result<Self, Error> {
        sysfs::read(root)
    }

    /// The CPU's model name, if the kernel gives one.
    pub fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    /// All memory nodes, ascending by number.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The nodes with at least one allowed CPU and memory this process may allocate, ascending.
    pub fn usable_nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().filter(|n| n.usable())
    }

    /// The node with this number.
    pub fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.binary_search_by_key(&id, |n| n.id).ok().map(|i| &self.nodes[i])
    }

    /// Memory of the node that can be had at this moment, in bytes, by the kernel's own rule for
    /// `MemAvailable` applied to the node: what is free above the kernel's reserves, and of page
    /// cache and reclaimable kernel memory that which is not needed to keep the system alive.
    /// `None` when the node does not exist or its files do not tell, and of a machine that was
    /// described and not read.
    ///
    /// Reading takes some hundred µs. It is an estimate: others allocate too, and binding does not
    /// reserve. What swapping could free does not count, nor do huge pages in the pool.
    pub fn available(&self, node: NodeId) -> Option<u64> {
        room::available(self.root.as_ref()?, self.node(node)?, self.numa, self.nodes.len() == 1)
    }

    /// Whether the kernel has memory nodes to bind to. When not, [`Machine::nodes`] is one
    /// made-up node 0 that holds everything.
    pub fn has_nodes(&self) -> bool {
        self.numa
    }

    /// The CPUs this process may run on, ascending.
    pub fn cpus(&self) -> &[Cpu] {
        &self.cpus[..self.allowed_cpus]
    }

    /// All online CPUs: the allowed ones, then the others, each part ascending.
    pub fn all_cpus(&self) -> &[Cpu] {
        &self.cpus
    }

    /// The online CPU with this number, allowed or not.
    pub fn cpu(&self, id: CpuId) -> Option<&Cpu> {
        let (allowed, others) = self.cpus.split_at(self.allowed_cpus);
        let find = |part: &'_ [Cpu]| part.binary_search_by_key(&id, |c| c.id).ok();
        find(allowed).map(|i| &allowed[i]).or_else(|| find(others).map(|i| &others[i]))
    }

    /// The smallest level 1 cache for data of the CPUs that may be used, what any of them has.
    pub fn first_cache(&self) -> Option<FirstCache> {
        self.cpus().iter().filter_map(|cpu| cpu.l1).min_by_key(|l1| l1.size_bytes)
    }

    /// Level 2 and 3 caches; a [`CacheId`] is an index here.
    pub fn caches(&self) -> &[Cache] {
        &self.caches
    }

    /// The cache with this id.
    pub fn cache(&self, id: CacheId) -> Option<&Cache> {
        self.caches.get(id.0 as usize)
    }

    /// CPU time the control groups grant per wall-clock time, in CPUs; `None` without a limit.
    pub fn quota(&self) -> Option<f64> {
        self.limits.quota
    }

    /// Memory limit of the control groups, in bytes.
    pub fn memory_limit(&self) -> Option<u64> {
        self.limits.memory_bytes
    }

    /// Physical cores among the allowed CPUs (SMT siblings count once), cut down to the whole
    /// CPUs of the quota; at least 1.
    pub fn usable_cores(&self) -> usize {
        let cores = self.cpus().iter().map(|c| c.core).collect::<BTreeSet<_>>().len();
        self.within_quota(cores)
    }

    /// `n` threads cut down to what the quota lets run all the time.
    pub(crate) fn within_quota(&self, n: usize) -> usize {
        // A quota below one CPU still needs one thread; `as` saturates, so a huge one is no limit.
        n.min(self.limits.quota.map_or(usize::MAX, |q| q as usize)).max(1)
    }

    /// Relative cost of access from node `from` to node `to`: 10 is local. `None` for a node
    /// that does not exist.
    pub fn distance(&self, from: NodeId, to: NodeId) -> Option<u32> {
        let distances = &self.node(from)?.distances;
        distances.iter().find(|(id, _)| *id == to).map(|&(_, d)| d)
    }

    /// What was missing or odd while reading, and what was assumed instead.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }
}
