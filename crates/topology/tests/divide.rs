//! Machines divided into parts: who gets which nodes and cores.

use arclight_topology::fake::FakeMachine;
use arclight_topology::{CpuId, CpuList, Error, Group, Machine, NodeId, NodeList, layout};
use proptest::prelude::*;
use std::collections::BTreeSet;

/// Nodes and CPUs of every part.
fn parts(fake: &FakeMachine, n: usize) -> Vec<(String, String)> {
    let machine = fake.machine().unwrap();
    let list = |part: &Machine| {
        let nodes: NodeList = part.usable_nodes().map(|n| n.id).collect();
        let cpus: CpuList = part.cpus().iter().map(|c| c.id).collect();
        (nodes.to_string(), cpus.to_string())
    };
    machine.divide(n).unwrap().iter().map(list).collect()
}

fn nodes(fake: &FakeMachine, n: usize) -> Vec<String> {
    parts(fake, n).into_iter().map(|(nodes, _)| nodes).collect()
}

/// `nodes` nodes of 4 cores, `near` to each other (12) when in the same row of `packages`.
fn packages(packages: &[&[u32]]) -> FakeMachine {
    let ids: BTreeSet<u32> = packages.iter().flat_map(|p| p.iter().copied()).collect();
    let machine = ids.iter().fold(FakeMachine::empty(), |m, &id| m.node(id, 4, 64));
    packages.iter().fold(machine, |m, package| {
        let pairs = package.iter().flat_map(|&a| package.iter().map(move |&b| (a, b)));
        pairs.filter(|(a, b)| a < b).fold(m, |m, (a, b)| m.distance(a, b, 12))
    })
}

#[test]
fn neighbours_stay_together() {
    let machine = packages(&[&[0, 1], &[2, 3]]);
    assert_eq!(nodes(&machine, 1), ["0-3"]);
    assert_eq!(nodes(&machine, 2), ["0-1", "2-3"]);
    assert_eq!(nodes(&machine, 3), ["0-1", "2", "3"]);
    assert_eq!(nodes(&machine, 4), ["0", "1", "2", "3"]);
    // However they are numbered.
    let machine = packages(&[&[0, 5], &[2, 7]]);
    assert_eq!(nodes(&machine, 2), ["0,5", "2,7"]);
    // Runs of neighbours are not always even: 2 and 3 must part.
    let machine = packages(&[&[0, 1, 2], &[3, 4, 5]]);
    let four = nodes(&machine, 4);
    assert_eq!(four.iter().filter(|part| ["0-1", "0,2", "1-2"].contains(&&***part)).count(), 1);
    assert_eq!(four.iter().filter(|part| ["3-4", "3,5", "4-5"].contains(&&***part)).count(), 1);
}

#[test]
fn unequal_nodes_make_even_parts() {
    let machine = FakeMachine::empty().node(0, 1, 8).node(1, 2, 8).node(2, 3, 8).node(3, 0, 64);
    assert_eq!(nodes(&machine, 2), ["0-1", "2"]);
    assert_eq!(nodes(&machine, 3), ["0", "1", "2"]);
    // More than nodes: the largest is cut.
    let four = [("0", "0"), ("1", "1-2"), ("2", "3-4"), ("2", "5")];
    assert_eq!(parts(&machine, 4), four.map(|(n, c)| (n.to_owned(), c.to_owned())));
    let large_first = FakeMachine::empty().node(0, 8, 8).node(1, 2, 8).node(4, 5, 8).node(6, 1, 8);
    assert_eq!(nodes(&large_first, 2), ["0", "1,4,6"]);
}

#[test]
fn a_shared_node_is_cut_between_cores() {
    let machine = FakeMachine::uniform(1, 8).smt(2).cores_per_l3(4);
    let expect = [("0", "0-3,8-11"), ("0", "4-7,12-15")].map(|(n, c)| (n.into(), c.into()));
    assert_eq!(parts(&machine, 2), expect);
    assert_eq!(parts(&machine, 8)[7], ("0".into(), "7,15".into()));
    let two = FakeMachine::uniform(2, 3).machine().unwrap().divide(4).unwrap();
    let cores: Vec<usize> = two.iter().map(Machine::usable_cores).collect();
    assert_eq!(cores, [2, 1, 2, 1]);
}

#[test]
fn cores_without_memory_go_with_the_nearest_node() {
    let fake = FakeMachine::empty().node(0, 2, 64).node(3, 2, 64).node(8, 2, 0).node(9, 0, 64);
    let fake = fake.distance(8, 3, 12).distance(8, 9, 11);
    let expect = [("0", "0-1"), ("3", "2-5")].map(|(n, c)| (n.into(), c.into()));
    assert_eq!(parts(&fake, 2), expect);
    // A part of nothing but such cores still works on its own share's node.
    let four = fake.machine().unwrap().divide(6).unwrap();
    let homes = four.iter().map(|m| layout(m, None, None).unwrap().groups[0].node.unwrap().0);
    assert_eq!(homes.collect::<Vec<_>>(), [0, 0, 3, 3, 3, 3]);
}

#[test]
fn a_quota_is_dealt_in_whole_cpus() {
    let quota = |us: &str| {
        FakeMachine::uniform(2, 8).cgroup_v2("/").cgroup_file("cpu.max", &format!("{us} 100000"))
    };
    let threads = |fake: &FakeMachine, n| {
        let parts = fake.machine().unwrap().divide(n).unwrap();
        parts.iter().map(|p| layout(p, None, None).unwrap().threads()).collect::<Vec<_>>()
    };
    assert_eq!(threads(&quota("650000"), 4), [2, 2, 1, 1]);
    assert_eq!(threads(&quota("2000000"), 2), [8, 8]);
    let error = quota("350000").machine().unwrap().divide(4).unwrap_err().to_string();
    assert!(error.contains("4 replicas: 3 usable cores make from 1 to 3"), "{error}");
}

#[test]
fn groups_of_a_part_have_their_places_on_another() {
    let group = |node: u32, cpus: &[u32]| Group {
        node: Some(NodeId(node)),
        cpus: cpus.iter().map(|&cpu| CpuId(cpu)).collect(),
    };
    let machine = packages(&[&[0, 1], &[2, 3]]).machine().unwrap();
    let parts = machine.divide(2).unwrap();
    let groups = [group(0, &[2, 0]), group(1, &[4, 7, 5])];
    let there = parts[0].groups_on(&groups, &parts[1]);
    assert_eq!(there, Some(vec![group(2, &[10, 8]), group(3, &[12, 15, 13])]));
    assert_eq!(parts[0].groups_on(&groups, &parts[0]), Some(groups.to_vec()));
    assert_eq!(parts[1].groups_on(&there.unwrap(), &parts[0]), Some(groups.to_vec()));
    // CPUs of others, and parts that are not alike.
    assert_eq!(parts[1].groups_on(&groups, &parts[0]), None);
    let uneven = machine.divide(3).unwrap();
    assert_eq!(uneven[0].groups_on(&groups, &uneven[1]), None);
    // On one node parts have the same memory.
    let one = FakeMachine::uniform(1, 4).machine().unwrap().divide(2).unwrap();
    let there = one[0].groups_on(&[group(0, &[1, 0])], &one[1]);
    assert_eq!(there, Some(vec![group(0, &[3, 2])]));
}

#[test]
fn impossible_numbers_are_errors() {
    let machine = FakeMachine::uniform(2, 2).smt(2).machine().unwrap();
    for parts in [0, 5, usize::MAX] {
        let error = machine.divide(parts).unwrap_err();
        assert!(matches!(error, Error::BadParts { cores: 4, .. }), "{error}");
    }
}

#[test]
fn a_part_of_a_restricted_machine_stays_within_it() {
    let machine = FakeMachine::uniform(4, 4).machine().unwrap();
    let cpus: CpuList = "4-7,9-10".parse().unwrap();
    let some = machine.restrict(Some(&[NodeId(1), NodeId(2)]), Some(&cpus)).unwrap();
    let two = some.divide(2).unwrap();
    let left = |m: &Machine| m.cpus().iter().map(|c| c.id.0).collect::<Vec<_>>();
    assert_eq!((left(&two[0]), left(&two[1])), (vec![4, 5, 6, 7], vec![9, 10]));
    assert!(two[0].to_string().contains("as asked only nodes 1 and cpus 4-7"), "{}", two[0]);
}

fn any_machine() -> impl Strategy<Value = FakeMachine> {
    let node = (0u32..6, prop_oneof![Just(0u64), Just(16), Just(64)]);
    let nodes = prop::collection::vec(node, 1..6);
    let distances = prop::collection::vec(11u32..30, 10);
    (nodes, 1u32..3, 1u32..4, distances).prop_filter_map("no cpus", |(nodes, smt, l3, far)| {
        const IDS: [u32; 5] = [0, 1, 4, 6, 11];
        let cores: u32 = nodes.iter().map(|n| n.0).sum();
        let pairs = (0..nodes.len()).flat_map(|b| (0..b).map(move |a| (IDS[a], IDS[b])));
        let pairs: Vec<_> = pairs.zip(far).collect();
        let machine = nodes
            .into_iter()
            .zip(IDS)
            .fold(FakeMachine::empty(), |m, ((cores, gib), id)| m.node(id, cores, gib))
            .smt(smt)
            .cores_per_l3(l3);
        let machine = pairs.into_iter().fold(machine, |m, ((a, b), d)| m.distance(a, b, d));
        (cores > 0).then_some(machine)
    })
}

/// Every way to put `k` nodes into `n` groups, as the group of each node.
fn groupings(k: usize, n: usize) -> Vec<Vec<usize>> {
    let all = (0..n.pow(k as u32)).map(|code| (0..k).map(|i| code / n.pow(i as u32) % n).collect());
    all.filter(|of: &Vec<usize>| (0..n).all(|g| of.contains(&g))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn every_division_keeps_its_promises(fake in any_machine(), n in 1usize..13) {
        let whole = fake.machine().unwrap();
        let Ok(parts) = whole.divide(n) else {
            prop_assert!(n > whole.usable_cores());
            return Ok(());
        };
        prop_assert_eq!(parts.len(), n);
        // Every CPU is in one part, with its siblings.
        let cpus = |m: &Machine| m.cpus().iter().map(|c| c.id).collect::<Vec<CpuId>>();
        let mut all: Vec<CpuId> = parts.iter().flat_map(cpus).collect();
        all.sort_unstable();
        prop_assert_eq!(all, cpus(&whole));
        for part in &parts {
            let cores: BTreeSet<_> = part.cpus().iter().map(|c| c.core).collect();
            let siblings = whole.cpus().iter().filter(|c| cores.contains(&c.core)).count();
            prop_assert_eq!(siblings, part.cpus().len());
        }
        // Nodes are shared or grouped, never both, and a shared one is the only one of its parts.
        let homes = |m: &Machine| {
            layout(m, None, None).unwrap().groups.iter().map(|g| g.node).collect::<Vec<_>>()
        };
        let of: Vec<_> = parts.iter().map(homes).collect();
        let distinct: BTreeSet<_> = of.iter().flatten().collect();
        let all: BTreeSet<_> = homes(&whole).into_iter().collect();
        prop_assert_eq!(&distinct, &all.iter().collect::<BTreeSet<_>>());
        if n >= all.len() {
            prop_assert!(of.iter().all(|nodes| nodes.len() == 1));
        } else {
            prop_assert_eq!(of.iter().flatten().count(), all.len());
        }
        // Parts of a shared node differ by a core at most.
        for node in distinct {
            let sizes = || parts.iter().zip(&of).filter(|(_, o)| **o == [*node]).map(|(p, _)| p.usable_cores());
            if let (Some(least), Some(most)) = (sizes().min(), sizes().max()) {
                prop_assert!(sizes().count() == 1 || most - least <= 1);
            }
        }
    }

    /// Equal nodes in packages: no other division of the same evenness has nearer nodes together.
    #[test]
    fn packages_are_divided_as_well_as_can_be(
        order in Just((0..6).collect::<Vec<u32>>()).prop_shuffle(),
        per_package in 1u32..4,
        count in 1u32..4,
        n in 1usize..6,
    ) {
        let ids: Vec<u32> = order.into_iter().filter(|&id| id < per_package * count).collect();
        let rows: Vec<&[u32]> = ids.chunks(per_package as usize).collect();
        let machine = packages(&rows).machine().unwrap();
        let k = ids.len();
        prop_assume!(n <= k && k <= 6);
        let cost = |of: &[usize]| {
            let sizes = (0..n).map(|g| of.iter().filter(|&&x| x == g).count().pow(2)).sum::<usize>();
            let pairs = (0..k).flat_map(|b| (0..b).map(move |a| (a, b)));
            let inside = pairs.filter(|&(a, b)| of[a] == of[b]);
            let far = |(a, b): (usize, usize)| machine.distance(NodeId(a as u32), NodeId(b as u32)).unwrap();
            (sizes, inside.map(far).sum::<u32>())
        };
        let parts = machine.divide(n).unwrap();
        let home = |i: usize| parts.iter().position(|p| p.usable_nodes().any(|x| x.id.0 as usize == i));
        let got: Vec<usize> = (0..k).map(|i| home(i).unwrap()).collect();
        let best = groupings(k, n).iter().map(|of| cost(of)).min().unwrap();
        prop_assert_eq!(cost(&got), best);
    }
}
