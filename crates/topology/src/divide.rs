//! Dividing a machine into parts that work on their own, such as replicas of a model.
//!
//! A part is a machine again, cut down to its nodes and CPUs, so whatever takes a machine takes a
//! part. Up to as many parts as there are nodes are groups of whole nodes, with as even a number of
//! cores as can be and, among such divisions, the nearest nodes together. More parts than that
//! share nodes, each on whole cores of one node.
//!
//! Limits: evenness counts cores, not memory, and all cores alike. The grouping is a local optimum:
//! no node that changes its group, and no two that change places, would better it. On distances
//! that are hierarchical, as those of packages and boards are, and equal nodes it is the best.

use crate::layout::{Home, apportion, homes, pools};
use crate::{Cpu, CpuId, CpuList, Error, Group, Machine, NodeId, NodeList};

impl Machine {
    /// Divides what may be used of the machine into `parts`, each at least one core with all its
    /// SMT siblings. Parts ascend by their lowest node, and on a node by their CPUs.
    ///
    /// CPUs whose own node has no memory to use go with the nearest node that has, as in
    /// [`layout`](crate::layout). A quota of CPU time is dealt in whole CPUs. Equal machines and
    /// arguments give equal parts.
    ///
    /// # Errors
    /// [`Error::BadParts`] for 0 parts and for more than [`Machine::usable_cores`].
    pub fn divide(&self, parts: usize) -> Result<Vec<Machine>, Error> {
        let cores = self.usable_cores();
        if parts == 0 || parts > cores {
            return Err(Error::BadParts { parts, cores });
        }
        if parts == 1 {
            return Ok(vec![self.clone()]);
        }
        let homes = homes(self, &mut vec![]);
        let groups: Vec<Vec<Home>> = if parts < homes.len() {
            let cores: Vec<u64> = homes.iter().map(|h| h.cores.len() as u64).collect();
            let groups = group(parts, &cores, &|a, b| between(self, &homes[a], &homes[b]));
            let mut homes: Vec<Option<Home>> = homes.into_iter().map(Some).collect();
            groups.iter().map(|g| g.iter().filter_map(|&i| homes[i].take()).collect()).collect()
        } else {
            pools(homes, parts).into_iter().map(|home| vec![home]).collect()
        };
        let sizes: Vec<usize> =
            groups.iter().map(|g| g.iter().map(|h| h.cores.len()).sum()).collect();
        // Each part has a CPU of it, as there are no more parts than the quota has CPUs.
        let quota = self.quota().map(|quota| {
            let beyond = (quota as usize).min(sizes.iter().sum()) - parts;
            let spare: Vec<usize> = sizes.iter().map(|n| n - 1).collect();
            apportion(beyond, &spare)
        });
        let mut machines = Vec::with_capacity(parts);
        for (at, group) in groups.iter().enumerate() {
            let mut part = self.part(group)?;
            part.limits.quota = quota.as_ref().map(|dealt| (dealt[at] + 1) as f64);
            machines.push(part);
        }
        Ok(machines)
    }

    /// Where groups of threads of this machine are on another that is like it, such as another
    /// [part](Machine::divide) of the same: on the CPUs and nodes in the same places, counted by their
    /// numbers. `None` where CPUs in the same places are on other nodes or cores, or a CPU or node of
    /// the groups is not here.
    pub fn groups_on(&self, groups: &[Group], other: &Machine) -> Option<Vec<Group>> {
        let (here, there) = (self.places(), other.places());
        let alike = here.len() == there.len()
            && here.iter().zip(&there).all(|(a, b)| (a.1, a.2) == (b.1, b.2));
        let nodes: Vec<NodeId> = self.usable_nodes().map(|node| node.id).collect();
        let theirs: Vec<NodeId> = other.usable_nodes().map(|node| node.id).collect();
        if !alike || nodes.len() != theirs.len() {
            return None;
        }
        let cpu = |cpu: &CpuId| Some(there[here.iter().position(|place| place.0 == *cpu)?].0);
        let node = |id: NodeId| Some(theirs[nodes.iter().position(|node| *node == id)?]);
        let group = |group: &Group| {
            let node = match group.node {
                None => None,
                Some(id) => Some(node(id)?),
            };
            Some(Group { node, cpus: group.cpus.iter().map(cpu).collect::<Option<_>>()? })
        };
        groups.iter().map(group).collect()
    }

    /// The CPUs by their numbers, each with its node and its core as places among those that there are.
    fn places(&self) -> Vec<(CpuId, usize, usize)> {
        let mut cpus: Vec<&Cpu> = self.cpus().iter().collect();
        cpus.sort_unstable_by_key(|cpu| cpu.id);
        let (mut nodes, mut cores) = (vec![], vec![]);
        let at = |seen: &mut Vec<u32>, id: u32| {
            seen.iter().position(|&known| known == id).unwrap_or_else(|| {
                seen.push(id);
                seen.len() - 1
            })
        };
        let place = |cpu: &&Cpu| (cpu.id, at(&mut nodes, cpu.node.0), at(&mut cores, cpu.core.0));
        cpus.iter().map(place).collect()
    }

    /// This machine with the CPUs and the memory of `homes` only.
    fn part(&self, homes: &[Home]) -> Result<Machine, Error> {
        let cores = homes.iter().flat_map(|h| &h.cores);
        let cpus: CpuList = cores.flat_map(|c| c.cpus.iter().copied()).collect();
        let mut part = self.restrict(None, Some(&cpus))?;
        let nodes: NodeList = homes.iter().filter_map(|h| h.node).collect();
        if !nodes.is_empty() {
            for node in &mut part.nodes {
                node.memory_allowed &= nodes.contains(node.id);
            }
            if let Some(restriction) = &mut part.limits.restriction {
                restriction.nodes = Some(nodes);
            }
        }
        Ok(part)
    }
}

/// Distance there and back; homes without a node are all the same to each other.
fn between(machine: &Machine, a: &Home, b: &Home) -> u64 {
    let one_way = |a: NodeId, b| u64::from(machine.distance(a, b).unwrap_or(u32::MAX));
    match (a.node, b.node) {
        (Some(a), Some(b)) => one_way(a, b) + one_way(b, a),
        _ => 0,
    }
}

/// Puts nodes with these numbers of cores into groups, none empty: indices, ascending, the groups
/// by their first.
fn group(groups: usize, cores: &[u64], distance: &dyn Fn(usize, usize) -> u64) -> Vec<Vec<usize>> {
    // Numbers mostly run along packages: the usual machine needs no bettering.
    let mut nodes = 0..cores.len();
    let mut found: Vec<Vec<usize>> = apportion(cores.len(), &vec![1; groups])
        .into_iter()
        .map(|size| nodes.by_ref().take(size).collect())
        .collect();
    // The sum of squares is least where sizes are even. Then the distances within groups.
    let cost = |group: &[usize]| {
        let size: u64 = group.iter().map(|&i| cores[i]).sum();
        let pairs = group
            .iter()
            .enumerate()
            .flat_map(|(at, &a)| group[..at].iter().map(move |&b| distance(a, b)));
        (size * size, pairs.sum::<u64>())
    };
    let both = |a: &[usize], b: &[usize]| {
        let (a, b) = (cost(a), cost(b));
        (a.0 + b.0, a.1 + b.1)
    };
    // Every change lowers the cost over all groups, so this ends.
    while let Some((a, b, new)) = better(&found, &both) {
        (found[a], found[b]) = new;
    }
    found.iter_mut().for_each(|group| group.sort_unstable());
    found.sort_unstable();
    found
}

type Cost = (u64, u64);
type Pair = (Vec<usize>, Vec<usize>);

/// Two groups that are better off when a node of one goes to the other or two nodes change places,
/// and what they are then.
fn better(
    groups: &[Vec<usize>],
    cost: &dyn Fn(&[usize], &[usize]) -> Cost,
) -> Option<(usize, usize, Pair)> {
    for a in 0..groups.len() {
        for b in 0..groups.len() {
            if a == b {
                continue;
            }
            let now = cost(&groups[a], &groups[b]);
            for i in 0..groups[a].len() {
                // Beyond the end: nothing comes back.
                for j in 0..=groups[b].len() {
                    let (mut from, mut to) = (groups[a].clone(), groups[b].clone());
                    match to.get_mut(j) {
                        Some(back) => std::mem::swap(&mut from[i], back),
                        None => to.push(from.swap_remove(i)),
                    }
                    if !from.is_empty() && cost(&from, &to) < now {
                        return Some((a, b, (from, to)));
                    }
                }
            }
        }
    }
    None
}
