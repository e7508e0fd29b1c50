//! Cutting a machine down to chosen nodes and CPUs, and the memory that can be had on a node.

use arclight_topology::fake::FakeMachine;
use arclight_topology::{CpuList, Error, Machine, NodeId, NodeList, layout};
use proptest::prelude::*;

fn nodes(list: &str) -> NodeList {
    list.parse().unwrap()
}

fn cpus(list: &str) -> CpuList {
    list.parse().unwrap()
}

/// The CPUs that are left, as a list.
fn left(machine: &Machine) -> String {
    machine.cpus().iter().map(|c| c.id).collect::<CpuList>().to_string()
}

fn usable(machine: &Machine) -> String {
    machine.usable_nodes().map(|n| n.id).collect::<NodeList>().to_string()
}

fn refused(machine: &Machine, node_list: &str, cpu_list: &str) -> String {
    let nodes = (!node_list.is_empty()).then(|| nodes(node_list));
    let cpus = (!cpu_list.is_empty()).then(|| cpus(cpu_list));
    let nodes = nodes.as_ref().map(NodeList::as_slice);
    machine.restrict(nodes, cpus.as_ref()).unwrap_err().to_string()
}

#[test]
fn nodes_and_cpus_cut_the_machine_down() {
    let machine = FakeMachine::uniform(4, 4).smt(2).machine().unwrap();
    let two = machine.restrict(Some(&[NodeId(3), NodeId(1)]), None).unwrap();
    assert_eq!((usable(&two), left(&two)), ("1,3".into(), "4-7,12-15,20-23,28-31".into()));
    assert_eq!((two.usable_cores(), two.nodes().len(), two.all_cpus().len()), (8, 4, 32));
    let threads = layout(&two, None, None).unwrap();
    let homes: Vec<_> = threads.groups.iter().map(|g| (g.node, g.cpus.len())).collect();
    assert_eq!(homes, [(Some(NodeId(1)), 4), (Some(NodeId(3)), 4)]);

    let some = machine.restrict(None, Some(&cpus("0-1,6,16"))).unwrap();
    assert_eq!((usable(&some), left(&some)), ("0-1".into(), "0-1,6,16".into()));
    assert_eq!(some.usable_cores(), 3);
    // A node that was asked for and has no CPU left is told.
    let both = machine.restrict(Some(&[NodeId(0), NodeId(1)]), Some(&cpus("1"))).unwrap();
    assert_eq!((usable(&both), left(&both)), ("0".into(), "1".into()));
    assert!(both.nodes()[1].memory_allowed && !both.nodes()[2].memory_allowed);
    assert!(both.notes()[0].starts_with("node 1: asked for, but without a cpu"), "{both}");
    // Nothing asked, nothing changed.
    let all = machine.restrict(None, None).unwrap();
    assert_eq!(all.to_string(), machine.to_string());
}

#[test]
fn numbers_with_gaps_and_nodes_of_memory_or_cpus_only() {
    let fake = FakeMachine::empty().node(0, 2, 64).node(3, 2, 64).node(5, 0, 512).node(8, 2, 0);
    let machine = fake.distance(8, 3, 12).machine().unwrap();
    assert_eq!(usable(&machine), "0,3");
    let with_memory = machine.restrict(Some(&[NodeId(3), NodeId(5)]), None).unwrap();
    assert_eq!((usable(&with_memory), left(&with_memory)), ("3".into(), "2-3".into()));
    assert!(with_memory.node(NodeId(5)).unwrap().memory_allowed);
    assert!(with_memory.notes()[0].starts_with("node 5: asked for"), "{with_memory}");
    // CPUs without memory work on the nearest node that is left.
    let beside = machine.restrict(Some(&[NodeId(0), NodeId(8)]), None).unwrap();
    let groups = layout(&beside, None, None).unwrap().groups;
    assert_eq!((groups.len(), groups[0].node, groups[0].cpus.len()), (1, Some(NodeId(0)), 4));

    assert_eq!(refused(&machine, "1,3-4", ""), "no node 1,4: this machine has nodes 0,3,5,8");
    assert_eq!(
        refused(&machine, "5", ""),
        "node 5: no cpu to run on; add a node that has some: 0,3,8"
    );
    assert_eq!(refused(&machine, "", "4-9"), "no cpu 6-9: this machine has cpus 0-5");
    assert_eq!(
        refused(&machine, "0,5", "1-2"),
        "cpu 2: not on node 0,5, which was asked for too; name cpus of these nodes"
    );
}

#[test]
fn what_is_offline_or_forbidden_is_named_with_the_reason() {
    let machine = FakeMachine::uniform(2, 4).offline("3,6").machine().unwrap();
    assert_eq!(refused(&machine, "", "0-3"), "cpu 3 is offline; online are 0-2,4-5,7");
    // What does not exist at all comes first.
    assert_eq!(refused(&machine, "", "3,9"), "no cpu 9: this machine has cpus 0-2,4-5,7");

    let taskset = FakeMachine::uniform(2, 4).affinity("0-2").machine().unwrap();
    assert_eq!(
        refused(&taskset, "", "2-3"),
        "cpu 3: not allowed by the affinity mask; allowed are 0-2"
    );
    assert_eq!(
        refused(&taskset, "0-1", ""),
        "node 1: not allowed by the affinity mask; allowed are 0"
    );
    let boxed = FakeMachine::uniform(2, 4)
        .cgroup_v2("/box")
        .cgroup_file("box/cpuset.cpus.effective", "0-5")
        .cgroup_file("box/cpuset.mems.effective", "0");
    let boxed = boxed.machine().unwrap();
    assert_eq!(refused(&boxed, "1", ""), "node 1: not allowed by the cpuset; allowed are 0");
    assert_eq!(refused(&boxed, "", "6"), "cpu 6: not allowed by the cpuset; allowed are 0-5");

    let machine = FakeMachine::uniform(2, 4).machine().unwrap();
    let first = machine.restrict(Some(&[NodeId(0)]), None).unwrap();
    assert_eq!(
        refused(&first, "1", ""),
        "node 1: not allowed by the earlier choice; allowed are 0"
    );
    let error = machine.restrict(Some(&[]), None).unwrap_err();
    assert!(matches!(error, Error::BadList { what: "node", .. }), "{error}");
    let error = machine.restrict(None, Some(&CpuList::default())).unwrap_err();
    assert!(matches!(error, Error::BadList { what: "cpu", .. }), "{error}");
}

#[test]
fn the_overview_tells_what_was_left_out() {
    let machine = FakeMachine::uniform(2, 4).affinity("0-6").machine().unwrap();
    let text = machine.restrict(Some(&[NodeId(1)]), Some(&cpus("4-5"))).unwrap().to_string();
    let limits = "limits   affinity mask allows cpus 0-6; as asked only nodes 1 and cpus 4-5\n";
    assert!(text.contains(limits), "{text}");
    assert!(text.contains("usable   2 cores on 1 node\n"), "{text}");
    assert!(text.contains("node 0   64 GiB (56 GiB available); left out\n"), "{text}");
    let json = serde_json::to_value(machine.restrict(None, Some(&cpus("4-5"))).unwrap()).unwrap();
    assert_eq!(json["limits"]["restriction"]["cpus"], "4-5");
}

#[test]
fn available_memory_is_read_afresh() {
    let dir = std::env::temp_dir().join(format!("arclight-room-{}", std::process::id()));
    let meminfo = |free: u64| {
        format!(
            "Node 1 MemTotal: 4000 kB\nNode 1 MemFree: {free} kB\nNode 1 Active(file): 100 kB\n\
             Node 1 Inactive(file): 300 kB\n"
        )
    };
    let path = "sys/devices/system/node/node1/meminfo";
    let zones = "Node 1, zone   Normal\n  pages free 7\n   low 10\n   high 20\n  managed 1000\n";
    let fake = FakeMachine::uniform(2, 2).file("proc/zoneinfo", zones);
    fake.clone().file(path, &meminfo(2000)).write(&dir).unwrap();
    let machine = Machine::read_from(&dir).unwrap();
    // 2000 - 20 pages of 4 KiB, and the cache but for 10 pages.
    assert_eq!(machine.available(NodeId(1)), Some((2000 - 80 + 400 - 40) << 10));
    assert_eq!(machine.nodes()[1].available_bytes, machine.available(NodeId(1)));
    assert_eq!(machine.available(NodeId(7)), None);
    std::fs::write(dir.join(path), meminfo(1000)).unwrap();
    assert_eq!(machine.available(NodeId(1)), Some((1000 - 80 + 400 - 40) << 10));
    std::fs::remove_dir_all(&dir).unwrap();
    assert_eq!(machine.available(NodeId(1)), None);

    // Without nodes, and with one only, the kernel's own estimate.
    let meminfo = "MemTotal: 900 kB\nMemFree: 100 kB\nMemAvailable: 700 kB\n";
    let one = FakeMachine::uniform(1, 2).file("proc/meminfo", meminfo);
    assert_eq!(one.machine().unwrap().nodes()[0].available_bytes, Some(700 << 10));
    // But never more than the node has, whatever a balloon makes the kernel believe.
    let small = FakeMachine::uniform(1, 2)
        .file("proc/meminfo", "MemAvailable: 99999999999 kB\n")
        .machine()
        .unwrap();
    assert_eq!(small.available(NodeId(0)), None, "its files are gone");
    assert_eq!(small.nodes()[0].available_bytes, Some(64 << 30));
    let none = one.without("sys/devices/system/node").machine().unwrap();
    assert_eq!(none.nodes()[0].available_bytes, Some(700 << 10));
    // This machine has some memory left.
    let here = Machine::read().unwrap();
    assert!(here.available(here.nodes()[0].id).unwrap() > 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Any request is refused, or leaves just what was asked for and something to run on.
    #[test]
    fn a_restriction_leaves_what_was_asked_for(
        asked_nodes in prop::option::of(prop::collection::vec(0u32..9, 1..5)),
        asked_cpus in prop::option::of(prop::collection::vec(0u32..26, 1..24)),
    ) {
        let fake = FakeMachine::empty().node(0, 3, 8).node(2, 0, 8).node(3, 2, 8).node(7, 6, 0);
        let machine = fake.smt(2).offline("20").affinity("0-17,20-21").machine().unwrap();
        let nodes = asked_nodes.map(|ids| ids.into_iter().map(NodeId).collect::<NodeList>());
        let cpus: Option<CpuList> = asked_cpus.map(|ids| ids.into_iter().map(Into::into).collect());
        match machine.restrict(nodes.as_ref().map(NodeList::as_slice), cpus.as_ref()) {
            Ok(cut) => {
                prop_assert!(!cut.cpus().is_empty());
                for cpu in cut.all_cpus() {
                    let was = machine.cpu(cpu.id).unwrap().allowed;
                    let named = cpus.as_ref().is_none_or(|c| c.contains(cpu.id))
                        && nodes.as_ref().is_none_or(|n| n.contains(cpu.node));
                    prop_assert_eq!(cpu.allowed, was && named);
                }
                prop_assert!(cpus.is_none_or(|c| c.iter().all(|id| cut.cpu(id).unwrap().allowed)));
                prop_assert!(layout(&cut, None, None).unwrap().threads() >= 1);
                prop_assert!(cut.cpus().windows(2).all(|w| w[0].id < w[1].id));
            }
            Err(error) => prop_assert!(error.to_string().len() < 200, "{}", error),
        }
    }
}
