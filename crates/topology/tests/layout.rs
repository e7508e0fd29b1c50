//! Layouts of fake machines: which thread goes to which CPU.

use arclight_topology::fake::FakeMachine;
use arclight_topology::{Error, Layout, NodeId, layout};
use proptest::prelude::*;
use std::collections::BTreeSet;

fn lay(fake: &FakeMachine, groups: Option<usize>, threads: Option<usize>) -> Layout {
    layout(&fake.machine().unwrap(), groups, threads).unwrap()
}

/// Node and CPUs of every group.
fn groups(layout: &Layout) -> Vec<(Option<u32>, Vec<u32>)> {
    let group =
        |g: &arclight_topology::Group| (g.node.map(|n| n.0), g.cpus.iter().map(|c| c.0).collect());
    layout.groups.iter().map(group).collect()
}

fn sizes(layout: &Layout) -> Vec<usize> {
    layout.groups.iter().map(|g| g.cpus.len()).collect()
}

fn nodes(layout: &Layout) -> Vec<u32> {
    layout.groups.iter().map(|g| g.node.unwrap().0).collect()
}

#[test]
fn default_is_one_group_per_node_on_first_siblings() {
    let l = lay(&FakeMachine::uniform(2, 4).smt(2), None, None);
    assert_eq!(groups(&l), [(Some(0), vec![0, 1, 2, 3]), (Some(1), vec![4, 5, 6, 7])]);
    assert_eq!(l.notes, [] as [&str; 0]);
    assert_eq!(
        l.to_string(),
        "group 0: node 0, 4 threads on cpus 0-3\ngroup 1: node 1, 4 threads on cpus 4-7\n"
    );
}

#[test]
fn second_siblings_come_after_all_cores_then_sharing() {
    let fake = FakeMachine::uniform(1, 3).smt(2);
    assert_eq!(groups(&lay(&fake, None, Some(4))), [(Some(0), vec![0, 1, 2, 3])]);
    let l = lay(&fake, None, Some(8));
    assert_eq!(groups(&l), [(Some(0), vec![0, 1, 2, 3, 4, 5, 0, 1])]);
    assert!(l.notes[0].contains("8 threads on 6 allowed cpus"), "{:?}", l.notes);
}

#[test]
fn l3_domains_are_used_evenly() {
    let l = lay(&FakeMachine::uniform(1, 64).smt(2).cores_per_l3(8), None, Some(10));
    assert_eq!(groups(&l)[0].1, [0, 8, 16, 24, 32, 40, 48, 56, 1, 9]);
    // Without an L3 the clusters are spread over.
    let l = lay(&FakeMachine::uniform(1, 8).l3_kib(0).cores_per_cluster(4), None, Some(4));
    assert_eq!(groups(&l)[0].1, [0, 4, 1, 5]);
}

#[test]
fn threads_follow_the_cores_of_unequal_nodes() {
    let fake = FakeMachine::empty().node(0, 12, 64).node(1, 4, 64);
    assert_eq!(sizes(&lay(&fake, None, None)), [12, 4]);
    assert_eq!(sizes(&lay(&fake, None, Some(8))), [6, 2]);
    // Each group gets a thread, however small its share.
    let fake = FakeMachine::empty().node(0, 30, 64).node(1, 1, 64).node(2, 1, 64);
    assert_eq!(sizes(&lay(&fake, Some(3), Some(4))), [2, 1, 1]);
}

#[test]
fn fewer_groups_take_the_nodes_nearest_each_other() {
    let fake = [0, 2, 5, 7].into_iter().fold(FakeMachine::empty(), |m, id| m.node(id, 2, 64));
    let fake = fake.distance(0, 2, 12).distance(5, 7, 11);
    assert_eq!(nodes(&lay(&fake, Some(2), None)), [5, 7]);
    assert_eq!(nodes(&lay(&fake, Some(1), None)), [0]);
    assert_eq!(nodes(&lay(&fake, Some(3), None)), [0, 5, 7]);
    assert_eq!(sizes(&lay(&fake, Some(2), None)), [2, 2]);
    // All alike: the lowest numbers.
    assert_eq!(nodes(&lay(&FakeMachine::uniform(4, 2), Some(2), None)), [0, 1]);
}

#[test]
fn virtual_nodes_part_the_cpus() {
    let l = lay(&FakeMachine::uniform(1, 8).smt(2).cores_per_l3(4), Some(4), None);
    let expected = [vec![0, 1], vec![2, 3], vec![4, 5], vec![6, 7]];
    assert_eq!(groups(&l), expected.map(|cpus| (Some(0), cpus)));
    // Siblings go with their core.
    let l = lay(&FakeMachine::uniform(1, 4).smt(2), Some(2), Some(8));
    assert_eq!(groups(&l), [(Some(0), vec![0, 1, 4, 5]), (Some(0), vec![2, 3, 6, 7])]);
    let l = lay(&FakeMachine::uniform(2, 4), Some(4), None);
    assert_eq!(nodes(&l), [0, 0, 1, 1]);
    assert_eq!(sizes(&l), [2, 2, 2, 2]);
    let l = lay(&FakeMachine::uniform(2, 4), Some(3), None);
    assert_eq!(nodes(&l), [0, 0, 1]);
    assert_eq!(sizes(&l), [2, 2, 4]);
}

#[test]
fn more_groups_than_cpus_share() {
    let l = lay(&FakeMachine::uniform(1, 2), Some(4), None);
    assert_eq!(groups(&l), [0, 1, 0, 1].map(|cpu| (Some(0), vec![cpu])));
    assert!(l.notes[0].contains("4 threads on 2 allowed cpus"));
    // Second siblings before sharing.
    let l = lay(&FakeMachine::uniform(1, 1).smt(2), Some(3), None);
    assert_eq!(groups(&l), [0, 1, 0].map(|cpu| (Some(0), vec![cpu])));
}

#[test]
fn of_nodes_equally_near_those_with_more_cores_are_taken() {
    let uneven = FakeMachine::empty().node(0, 1, 4).node(1, 2, 4).node(2, 3, 4);
    assert_eq!(nodes(&lay(&uneven, Some(2), None)), [1, 2]);
    assert_eq!(nodes(&lay(&uneven, Some(1), None)), [2]);
}

#[test]
fn cpus_without_memory_work_for_the_nearest_node() {
    let fake = FakeMachine::empty().node(0, 2, 64).node(1, 2, 0).node(2, 2, 64).node(3, 0, 99);
    let l = lay(&fake.clone().distance(1, 2, 15).distance(1, 3, 11), None, None);
    // Own cores first. The memory-only node is nearer but has no cores of its own to join.
    assert_eq!(groups(&l), [(Some(0), vec![0, 1]), (Some(2), vec![4, 5, 2, 3])]);
    assert!(l.notes[0].contains("cpus 2-3: node 1 has no memory to use"), "{:?}", l.notes);
    let l = lay(&fake, None, Some(5));
    assert_eq!(groups(&l)[0].1, [0, 1, 2], "equal distances: the lowest node");

    // CPUs here, memory there.
    let l = lay(&FakeMachine::empty().node(0, 2, 0).node(1, 0, 64), None, None);
    assert_eq!(groups(&l), [(Some(1), vec![0, 1])]);
    // While the nodes' own cores suffice, nobody else's are taken.
    let fake = FakeMachine::uniform(4, 4).mems_allowed("0-1");
    let l = lay(&fake, None, Some(8));
    assert_eq!(groups(&l), [(Some(0), vec![0, 1, 2, 3]), (Some(1), vec![4, 5, 6, 7])]);
    assert_eq!(l.notes, [] as [&str; 0]);
    // A node whose memory is forbidden is one without.
    let l = lay(&FakeMachine::uniform(2, 2).mems_allowed("1"), None, None);
    assert_eq!(groups(&l), [(Some(1), vec![2, 3, 0, 1])]);
}

#[test]
fn nothing_to_bind_to() {
    let l = lay(&FakeMachine::uniform(2, 2).without("sys/devices/system/node"), None, None);
    assert_eq!(groups(&l), [(None, vec![0, 2, 1, 3])]);
    let l = lay(&FakeMachine::empty().node(0, 2, 0), None, None);
    assert_eq!(groups(&l), [(None, vec![0, 1])]);
    assert!(l.notes[0].contains("no memory node"));
}

#[test]
fn quota_sets_the_default_and_warns_beyond_it() {
    let fake = FakeMachine::uniform(4, 8).cgroup_v2("/").cgroup_file("cpu.max", "600000 100000");
    let l = lay(&fake, None, None);
    assert_eq!((nodes(&l), sizes(&l)), (vec![0, 1, 2, 3], vec![2, 2, 1, 1]));
    let l = lay(&fake, None, Some(32));
    assert!(l.notes[0].contains("32 threads with a quota of 6 cpus"), "{:?}", l.notes);
    let small = fake.cgroup_file("cpu.max", "250000 100000");
    let l = lay(&small, None, None);
    assert_eq!((nodes(&l), sizes(&l)), (vec![0, 1], vec![1, 1]));
    assert!(l.notes[0].contains("2 of 4 nodes are used"), "{:?}", l.notes);
}

#[test]
fn affinity_to_one_node_gives_one_group() {
    let l = lay(&FakeMachine::uniform(2, 4).affinity("5-6"), None, None);
    assert_eq!(groups(&l), [(Some(1), vec![5, 6])]);
}

#[test]
fn impossible_requests_are_errors() {
    let m = FakeMachine::uniform(2, 4).machine().unwrap();
    let error = |g, t| layout(&m, g, t).unwrap_err();
    assert!(matches!(error(None, Some(0)), Error::ZeroThreads));
    assert!(matches!(error(Some(0), None), Error::ZeroGroups));
    let few = error(Some(4), Some(3)).to_string();
    assert!(few.contains("4 nodes need at least 4 threads, one each, not 3"), "{few}");
    assert!(matches!(error(None, Some(usize::MAX)), Error::TooMany { what: "threads", .. }));
    assert!(matches!(error(Some(usize::MAX), None), Error::TooMany { what: "nodes", .. }));
    // Virtual nodes have copies of their own: more than machines have are a slip of the hand.
    assert!(layout(&m, Some(64), None).is_ok());
    assert_eq!(error(Some(65), None).to_string(), "65 nodes: at most 64 are supported");
}

fn any_machine() -> impl Strategy<Value = FakeMachine> {
    let node = (0u32..6, prop_oneof![Just(0u64), Just(16), Just(64)]);
    let nodes = prop::collection::vec(node, 1..5);
    (nodes, 1u32..3, 1u32..4).prop_filter_map("no cpus", |(nodes, smt, l3)| {
        let cores: u32 = nodes.iter().map(|n| n.0).sum();
        let numbered = nodes.into_iter().zip([0, 1, 4, 6]);
        let machine = numbered
            .fold(FakeMachine::empty(), |m, ((cores, gib), id)| m.node(id, cores, gib))
            .smt(smt)
            .cores_per_l3(l3);
        (cores > 0).then_some(machine)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn every_layout_keeps_its_promises(
        fake in any_machine(),
        asked_groups in prop::option::of(1usize..9),
        asked_threads in prop::option::of(1usize..40),
    ) {
        let m = fake.machine().unwrap();
        let Ok(l) = layout(&m, asked_groups, asked_threads) else {
            prop_assert!(asked_threads.unwrap() < asked_groups.unwrap());
            return Ok(());
        };
        prop_assert_eq!(&l, &layout(&m, asked_groups, asked_threads).unwrap());
        prop_assert!(asked_groups.is_none_or(|n| n == l.groups.len()));
        prop_assert!(asked_threads.is_none_or(|n| n == l.threads()));
        prop_assert!(l.groups.iter().all(|g| !g.cpus.is_empty()));
        let all: Vec<_> = l.groups.iter().flat_map(|g| g.cpus.iter().copied()).collect();
        prop_assert!(all.iter().all(|&c| m.cpu(c).unwrap().allowed));
        let distinct: BTreeSet<_> = all.iter().collect();
        let shared = l.notes.iter().any(|n| n.contains("cpus are shared"));
        prop_assert_eq!(distinct.len() < all.len(), shared);
        prop_assert!(l.groups.is_sorted_by_key(|g| g.node));
        for g in &l.groups {
            let can_bind = |id: NodeId| m.node(id).is_some_and(|n| n.has_memory && n.memory_allowed);
            prop_assert!(g.node.is_none_or(can_bind));
        }
    }
}
