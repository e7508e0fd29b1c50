//! Other numbers of groups than the default's, for the quick search: each costs it a load.

use arclight_engine::Group;
use topology::Machine;
use tune::tuner::{Scheme, Start};

/// Half of the default's groups, half of these, and so on to one: memory nodes that are left out cost
/// bandwidth and save waits. Of one group whose CPUs have several last-level caches, a group for each: a
/// group's threads wait for each other more often than groups do.
pub(super) fn others(machine: &Machine, default: &Scheme) -> Vec<Start> {
    let groups = default.groups();
    let mut ways = Vec::new();
    let mut fewer = groups.len() / 2;
    while fewer > 0 {
        ways.push(groups[..fewer].to_vec());
        fewer /= 2;
    }
    if let [group] = groups {
        ways.extend(by_cache(machine, group));
    }
    let start = |groups| {
        let scheme = Scheme::new(groups).ok()?;
        Some(Start { level: scheme.all(), scheme })
    };
    ways.into_iter().filter_map(start).collect()
}

/// The CPUs of a group by their last-level caches, in the group's order; `None` if they share one, some
/// have none, or a cache has a single CPU.
fn by_cache(machine: &Machine, group: &Group) -> Option<Vec<Group>> {
    let mut parts: Vec<(topology::CacheId, Group)> = Vec::new();
    for &cpu in &group.cpus {
        let cache = machine.cpus().iter().find(|c| c.id == cpu)?.l3?;
        match parts.iter_mut().find(|(of, _)| *of == cache) {
            Some((_, part)) => part.cpus.push(cpu),
            None => parts.push((cache, Group { node: group.node, cpus: vec![cpu] })),
        }
    }
    let worth = parts.len() > 1 && parts.iter().all(|(_, part)| part.cpus.len() > 1);
    worth.then(|| parts.into_iter().map(|(_, part)| part).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use arclight_engine::{CpuId, NodeId};

    fn scheme(groups: &[(u32, std::ops::Range<u32>)]) -> Scheme {
        let group = |(node, cpus): &(u32, std::ops::Range<u32>)| Group {
            node: Some(NodeId(*node)),
            cpus: cpus.clone().map(CpuId).collect(),
        };
        Scheme::new(groups.iter().map(group).collect()).unwrap()
    }

    fn sizes(machine: &str, default: &Scheme) -> Vec<Vec<usize>> {
        let machine = Machine::from_synthetic(machine).unwrap();
        let of = |start: &Start| start.scheme.groups().iter().map(|g| g.cpus.len()).collect();
        others(&machine, default).iter().map(of).collect()
    }

    #[test]
    fn nodes_are_halved_down_to_one() {
        let four = scheme(&[(0, 0..4), (1, 4..8), (2, 8..12), (3, 12..16)]);
        assert_eq!(sizes("numa:4 core:4", &four), [vec![4, 4], vec![4]]);
        let two = scheme(&[(0, 0..4), (1, 4..8)]);
        assert_eq!(sizes("numa:2 core:4", &two), [[4]]);
    }

    #[test]
    fn caches_of_one_node_become_groups() {
        let one = scheme(&[(0, 0..8)]);
        assert_eq!(sizes("numa:1 l3:2 core:4", &one), [[4, 4]]);
        assert!(sizes("numa:1 l3:1 core:8", &one).is_empty());
        assert!(sizes("numa:1 l3:8 core:1", &one).is_empty(), "groups of one CPU");
    }
}
