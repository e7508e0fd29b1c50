//! From the description of a machine that is elsewhere, or nowhere, to a [`Machine`]: what hwloc
//! documents and synthetic strings have in common.
//!
//! A description lists CPUs and says of each which node, package, core and cache it belongs to, by
//! position in the lists of those. Cores and caches are then known by their online CPUs, as they
//! are when the kernel is asked.

use crate::machine::Limits;
use crate::{Cache, CacheId, CoreId, Cpu, CpuId, CpuList, FirstCache, Machine, Node, NodeId};
use std::collections::BTreeMap;

/// Distances the firmware convention (ACPI SLIT) fixes: local, and the usual remote.
pub(crate) const LOCAL: u32 = 10;
pub(crate) const REMOTE: u32 = 20;

/// Most memory nodes of a described machine, which is Linux' own bound: every pair has a distance.
pub(crate) const MOST_NODES: usize = 1024;

/// A machine in words, complete but not yet ordered.
#[derive(Default)]
pub(crate) struct Description {
    pub(crate) model: Option<String>,
    /// In any order, without CPUs; at least one.
    pub(crate) nodes: Vec<Node>,
    /// Online CPUs, in any order; at least one that is allowed.
    pub(crate) pus: Vec<Pu>,
    /// Level and size in bytes.
    pub(crate) caches: Vec<(u8, u64)>,
    /// False when there is one node that was made up.
    pub(crate) numa: bool,
    pub(crate) offline: CpuList,
    pub(crate) notes: Vec<String>,
}

/// An online CPU.
#[derive(Clone, Debug)]
pub(crate) struct Pu {
    pub(crate) id: u32,
    pub(crate) node: NodeId,
    pub(crate) package: u32,
    pub(crate) die: Option<u32>,
    pub(crate) cluster: Option<u32>,
    pub(crate) place: Place,
    pub(crate) allowed: bool,
    pub(crate) max_khz: Option<u64>,
    pub(crate) capacity: Option<u32>,
}

/// What of a CPU's surroundings has no number of its own: positions in lists.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Place {
    pub(crate) core: Option<usize>,
    pub(crate) l1: Option<FirstCache>,
    pub(crate) l2: Option<usize>,
    pub(crate) l3: Option<usize>,
}

impl Description {
    pub(crate) fn machine(mut self) -> Machine {
        self.pus.sort_by_key(|pu| pu.id);
        // A CPU that is in no core is one, told apart from the others by its number.
        let core_of = |pu: &Pu| pu.place.core.ok_or(pu.id);
        let mut cores: BTreeMap<_, Vec<u32>> = BTreeMap::new();
        for pu in &self.pus {
            cores.entry(core_of(pu)).or_default().push(pu.id);
        }

        let mut caches = vec![];
        let mut known = BTreeMap::new();
        let mut cache_of = |position: Option<usize>, cpu: CpuId| {
            let position = position?;
            let id = *known.entry(position).or_insert_with(|| {
                let (level, size_bytes) = self.caches[position];
                caches.push(Cache { level, size_bytes, cpus: vec![] });
                CacheId(caches.len() as u32 - 1)
            });
            caches[id.0 as usize].cpus.push(cpu);
            Some(id)
        };
        let mut cpus: Vec<Cpu> = self
            .pus
            .iter()
            .map(|pu| {
                let siblings = &cores[&core_of(pu)];
                let id = CpuId(pu.id);
                Cpu {
                    id,
                    node: pu.node,
                    package: pu.package,
                    die: pu.die,
                    cluster: pu.cluster,
                    core: CoreId(siblings[0]),
                    smt_rank: siblings.iter().position(|&s| s == pu.id).unwrap_or(0),
                    l1: pu.place.l1,
                    l2: cache_of(pu.place.l2, id),
                    l3: cache_of(pu.place.l3, id),
                    allowed: pu.allowed,
                    max_khz: pu.max_khz,
                    capacity: pu.capacity,
                }
            })
            .collect();
        cpus.sort_by_key(|c| (!c.allowed, c.id));

        let allowed: CpuList = cpus.iter().filter(|c| c.allowed).map(|c| c.id).collect();
        self.nodes.sort_by_key(|n| n.id);
        for node in &mut self.nodes {
            let own = cpus.iter().filter(|c| c.allowed && c.node == node.id);
            node.cpus = own.map(|c| c.id).collect();
        }
        Machine {
            model: self.model,
            nodes: self.nodes,
            allowed_cpus: allowed.len(),
            limits: Limits {
                cpuset: (allowed.len() < cpus.len()).then_some(allowed),
                ..Limits::default()
            },
            cpus,
            caches,
            numa: self.numa,
            notes: self.notes,
            offline: self.offline,
            root: None,
        }
    }
}

/// A node of a described machine; `memory` in bytes, `None` when not told.
pub(crate) fn node(id: u32, memory: Option<u64>) -> Node {
    Node {
        id: NodeId(id),
        cpus: vec![],
        memory_bytes: memory.unwrap_or(0),
        free_bytes: 0,
        available_bytes: None,
        has_memory: memory != Some(0),
        memory_allowed: true,
        distances: vec![],
    }
}

/// Gives every node the distances to all, as `known` tells them or as firmware usually does, and
/// the nodes that had to be given some so.
pub(crate) fn set_distances(
    nodes: &mut [Node],
    known: impl Fn(NodeId, NodeId) -> Option<u32>,
) -> Vec<NodeId> {
    let ids: Vec<NodeId> = nodes.iter().map(|n| n.id).collect();
    let mut assumed = vec![];
    for node in nodes {
        let from = node.id;
        let usual = |to| if to == from { LOCAL } else { REMOTE };
        node.distances = ids.iter().map(|&to| (to, known(from, to).unwrap_or(usual(to)))).collect();
        if ids.iter().any(|&to| known(from, to).is_none()) {
            assumed.push(from);
        }
    }
    assumed
}
