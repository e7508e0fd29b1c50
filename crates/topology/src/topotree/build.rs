//! From a machine to its tree.
//!
//! Everything CPUs can share parts them: packages, nodes, dies, caches, clusters, cores. From the
//! coarsest to the finest, each that only divides the parts of the one before becomes a level.

use super::{Leaf, LevelKind, TopoTree, Vertex};
use crate::layout::homes;
use crate::{Cpu, Machine};
use std::collections::BTreeMap;

/// For each leaf the first leaf of the same part.
type Partition = Vec<usize>;

impl TopoTree {
    /// The tree of what may be used of a machine. CPUs whose own node has no memory to use are
    /// under the node nearest to them, as in [`layout`](crate::layout()). What crosses something
    /// coarser, such as a cache that is shared by parts of two nodes, is no level.
    pub fn of(machine: &Machine) -> Self {
        let mut leaves = vec![];
        for home in homes(machine, &mut vec![]) {
            let cpus = home.cores.iter().flat_map(|core| core.cpus.iter().copied());
            leaves.extend(cpus.map(|cpu| Leaf { cpu, node: home.node }));
        }
        leaves.sort_by_key(|leaf| leaf.cpu);

        let mut levels = vec![vec![LevelKind::Machine]];
        let mut partitions: Vec<Partition> = vec![vec![0; leaves.len()]];
        for (kind, partition) in partitions_of(machine, &leaves) {
            let last = partitions.len() - 1;
            if partition == partitions[last] {
                levels[last].push(kind);
            } else if divides(&partition, &partitions[last]) {
                levels.push(vec![kind]);
                partitions.push(partition);
            }
        }
        let all: Vec<usize> = (0..leaves.len()).collect();
        let root = vertex(&all, &partitions[1..], &leaves);
        TopoTree { levels, root }
    }
}

/// What parts the CPUs, from the fewest parts to the most; of equally many in the order of kinds.
/// CPUs are last.
fn partitions_of(machine: &Machine, leaves: &[Leaf]) -> Vec<(LevelKind, Partition)> {
    let cpus: Vec<Option<&Cpu>> = leaves.iter().map(|leaf| machine.cpu(leaf.cpu)).collect();
    // A CPU that shares no such thing is a part with the rest of its core.
    let by = |key: &dyn Fn(&Cpu) -> Option<(u32, u32)>| -> Option<Partition> {
        let keys = cpus.iter().map(|cpu| cpu.and_then(key));
        keys.clone().any(|key| key.is_some()).then(|| {
            let alone = |i: usize| (u32::MAX, cpus[i].map_or(i as u32, |cpu| cpu.core.0));
            first_equal(keys.enumerate().map(|(i, key)| key.unwrap_or(alone(i))))
        })
    };
    let kinds = [
        (LevelKind::Package, by(&|cpu| Some((0, cpu.package)))),
        (LevelKind::Node, Some(first_equal(leaves.iter().map(|leaf| leaf.node)))),
        (LevelKind::Die, by(&|cpu| Some((cpu.package, cpu.die?)))),
        (LevelKind::L3, by(&|cpu| Some((0, cpu.l3?.0)))),
        (LevelKind::Cluster, by(&|cpu| Some((cpu.package, cpu.cluster?)))),
        (LevelKind::L2, by(&|cpu| Some((0, cpu.l2?.0)))),
        (LevelKind::Core, by(&|cpu| Some((0, cpu.core.0)))),
        (LevelKind::Pu, Some((0..leaves.len()).collect())),
    ];
    let mut partitions: Vec<(LevelKind, Partition)> =
        kinds.into_iter().filter_map(|(kind, partition)| Some((kind, partition?))).collect();
    let parts = |p: &Partition| p.iter().enumerate().filter(|(i, first)| i == *first).count();
    partitions.sort_by_key(|(kind, partition)| (parts(partition), *kind));
    partitions
}

fn first_equal<K: Ord>(keys: impl Iterator<Item = K>) -> Partition {
    let mut first = BTreeMap::new();
    keys.enumerate().map(|(i, key)| *first.entry(key).or_insert(i)).collect()
}

/// Whether every part of `fine` is within one of `coarse`.
fn divides(fine: &Partition, coarse: &Partition) -> bool {
    fine.iter().zip(coarse).all(|(&first, &part)| coarse[first] == part)
}

/// The vertex of some leaves, which the first partition divides into its children.
fn vertex(of: &[usize], partitions: &[Partition], leaves: &[Leaf]) -> Vertex {
    let Some((partition, finer)) = partitions.split_first() else {
        return Vertex::Leaf(leaves[of[0]]);
    };
    let mut children: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for &leaf in of {
        children.entry(partition[leaf]).or_default().push(leaf);
    }
    Vertex::Inner(children.values().map(|child| vertex(child, finer, leaves)).collect())
}
