//! Synthetic strings, with the numbers that hwloc's own test of them expects.

use arclight_topology::topotree::TopoTree;
use arclight_topology::{CpuId, Machine, NodeId};
use proptest::prelude::*;
use std::collections::BTreeSet;

fn machine(text: &str) -> Machine {
    Machine::from_synthetic(text).unwrap_or_else(|e| panic!("{e}"))
}

/// The ids of the CPUs in the order of the tree's first `n` cores.
fn in_order(machine: &Machine, n: usize) -> Vec<Vec<u32>> {
    let mut cores: Vec<Vec<u32>> = vec![];
    let mut known = BTreeSet::new();
    for cpu in machine.cpus() {
        if known.insert(cpu.core) && cores.len() < n {
            let same = machine.cpus().iter().filter(|other| other.core == cpu.core);
            cores.push(same.map(|cpu| cpu.id.0).collect());
        }
    }
    cores
}

#[test]
fn nodes_and_cores() {
    let m = machine("numa:4 core:48");
    assert_eq!((m.nodes().len(), m.cpus().len(), m.usable_cores()), (4, 192, 192));
    assert_eq!(m.nodes()[3].cpus.len(), 48);
    assert_eq!(m.nodes()[3].cpus[0], CpuId(144));
    assert_eq!(m.distance(NodeId(0), NodeId(3)), Some(20));
    assert!(m.notes()[0].contains("10 local, 20 remote assumed"), "{:?}", m.notes());
    // Nothing is known of its memory, which is not the same as none.
    assert_eq!(m.usable_nodes().count(), 4);
    assert!(m.to_string().contains("memory unknown"), "{m}");
}

#[test]
fn all_levels_in_long_and_short() {
    let m = machine("pack:2 numa:4 l3:1 core:8 pu:2");
    assert_eq!((m.nodes().len(), m.usable_cores(), m.cpus().len()), (8, 64, 128));
    let cpu = m.cpu(CpuId(17)).unwrap();
    assert_eq!((cpu.package, cpu.node, cpu.core.0, cpu.smt_rank), (0, NodeId(1), 16, 1));
    assert_eq!(m.cache(cpu.l3.unwrap()).unwrap().cpus.len(), 16);
    let long = "Package:2 NUMANode:4(memory=16GiB) L3Cache:1(size=32MB) Die:1 Group0:2 L2uCache:4 \
                L1dCache:1 L1i:1 Core:1 PU:2";
    let m = machine(long);
    assert_eq!(m.nodes()[7].memory_bytes, 16 << 30);
    let cpu = m.cpu(CpuId(127)).unwrap();
    assert_eq!((cpu.die, cpu.cluster), (Some(7), Some(15)));
    assert_eq!(m.cache(cpu.l3.unwrap()).unwrap().size_bytes, 32_000_000);
    assert_eq!(m.cache(cpu.l2.unwrap()).unwrap().cpus, [CpuId(126), CpuId(127)]);
    assert_eq!(m.caches().len(), 8 + 64);
    let tree = TopoTree::of(&m);
    assert_eq!(tree.to_string(), "machine ×1, package ×2, node ×4, cluster ×2, core ×4, pu ×2");
    for same in ["numa:2 core:3", "NUMA:2 CO:3", "node:2\n core:3 pu:1", "numanode:2 core:3 PU:1"] {
        let json = |m: &Machine| serde_json::to_string(m).unwrap();
        assert_eq!(json(&machine(same)), json(&machine("numa:2 core:3")), "{same}");
    }
    // A group that holds nodes is no cluster.
    assert_eq!(machine("group:2 numa:2 core:2").cpus()[7].cluster, None);
    assert_eq!(machine("group:2 [numa] core:2").cpus()[3].cluster, None);
    assert_eq!(machine("cluster:2 core:2").cpus()[3].cluster, Some(1));
}

#[test]
fn numbers_may_be_given() {
    // By lists: packages 3 and 5; by types and by loops: each package's CPUs in turn.
    let m = machine(
        "pack:2(indexes=3,5) numa:2(memory=256GiB indexes=pack) l3u:1(size=20mib) l2:2 \
         l1i:1(size=16kiB) l1dcache:2 core:1 pu:2(indexes=pack:l2)",
    );
    assert_eq!(m.cpu(CpuId(1)).unwrap().package, 5);
    // The second node of the tree is the first package's, and has number 2.
    let second = m.cpu(CpuId(6)).unwrap();
    assert_eq!((second.node, second.package), (NodeId(2), 3));
    // In the order of the tree, CPUs 12 to 15 are 6, 14, 22, 30 and share an L2.
    let l2 = m.cache(second.l2.unwrap()).unwrap();
    assert_eq!(l2.cpus, [6, 14, 22, 30].map(CpuId));
    let l2 = m.cache(m.cpu(CpuId(1)).unwrap().l2.unwrap()).unwrap();
    assert_eq!(l2.cpus, [1, 9, 17, 25].map(CpuId));

    let by_list = machine("pack:2 core:2 pu:2(indexes=0,4,2,6,1,5,3,7)");
    let by_loops = machine("pack:2 core:2 pu:2(indexes=4*2:2*2:1*2)");
    assert_eq!(in_order(&by_list, 4), [[0, 4], [1, 5], [2, 6], [3, 7]]);
    assert_eq!(in_order(&by_loops, 4), in_order(&by_list, 4));
    // As Linux numbers them on x86: first threads first.
    let linux = machine("numa:2 core:4 pu:2(indexes=2*8:1*2)");
    assert_eq!(in_order(&linux, 2), [[0, 8], [1, 9]]);
    assert_eq!(linux.cpu(CpuId(15)).unwrap().smt_rank, 1);
}

#[test]
fn nodes_may_hang_on_levels() {
    let m = machine(
        "pack:2 [numa(memory=1GiB)] [numa(memory=1MiB)] core:2 \
         [numa(indexes=8,7,5,6,4,3,1,2)] pu:4",
    );
    // As hwloc numbers them: what hangs on the cores of a package, then on the package.
    let nodes: Vec<(u32, u64, usize)> =
        m.nodes().iter().map(|n| (n.id.0, n.memory_bytes, n.cpus.len())).collect();
    let (gib, mib) = (1 << 30, 1 << 20);
    let expected = [
        (1, gib, 0),
        (2, mib, 0),
        (3, 0, 4),
        (4, 0, 4),
        (5, gib, 0),
        (6, mib, 0),
        (7, 0, 4),
        (8, 0, 4),
    ];
    assert_eq!(nodes, expected);
    assert_eq!(m.cpu(CpuId(0)).unwrap().node, NodeId(8));
    assert_eq!(m.cpu(CpuId(15)).unwrap().node, NodeId(3));
    // On the whole machine, beside each other: the first has the CPUs.
    let m = machine("[numa(memory=64GB)] [numa(memory=16GB)] core:4");
    assert_eq!((m.nodes()[0].cpus.len(), m.nodes()[1].cpus.len()), (4, 0));
    assert_eq!(m.nodes()[1].memory_bytes, 16_000_000_000);
}

#[test]
fn faults_name_the_word() {
    for (text, expected) in [
        ("", "\"\": it names no level"),
        ("numa:4 kern:8", "\"kern:8\": \"kern\" is no type"),
        ("numa:4 core", "\"core\": a level is a type, a colon and a number"),
        ("2 3 4", "\"2\": a level is a type"),
        ("numa:0", "\"numa:0\": after the colon stands a number above 0"),
        ("core:-1", "\"core:-1\": after the colon"),
        ("core:1x", "\"core:1x\": after the colon"),
        ("machine:2 core:2", "\"machine:2\": there is one machine"),
        ("numa:2 node:2", "\"node:2\": there is such a level already"),
        ("pu:2 pu:2", "\"pu:2\": nothing can be within a pu"),
        ("core:2 numa:2", "\"numa:2\": only caches and pu can be within a core"),
        ("numa:4096 core:4096", "\"core:4096\": that makes more than 8192"),
        ("core:99999999999999999999", "after the colon"),
        ("core:4(size=1", "\"core:4(size=1\": a bracket is not closed"),
        ("l3:1(size=1QB) core:2", "\"1QB\" is no amount"),
        ("l3:1(size=99999999999TB) core:2", "is no amount"),
        ("l3:1(ways=8) core:2", "\"ways=8\" is none of"),
        ("core:2)", "after the colon"),
        ("[core] core:2", "\"[core]\": only memory nodes hang on a level"),
        ("[numa core:2", "a bracket is not closed"),
        ("[numa]x core:2", "\"[numa]x\": no ] at its end"),
        ("numa:2 [numa] core:2", "\"numa:2\": nodes are a level or hang on levels"),
        ("core:2 pu:2 [numa]", "\"pu:2\": memory nodes do not hang on a pu"),
        ("core:4(indexes=0,1) pu:1(indexes=0,1,1,2)", "3 different indexes, 4 are needed"),
        ("pu:4(indexes=0,1,2)", "3 different indexes, 4 are needed"),
        ("pu:2(indexes=0,9000)", "index 9000 is above 8191"),
        ("pu:2(indexes=0,)", "\"\" in its indexes is no number"),
        ("pu:4(indexes=2*2:1)", "\"1\" in its indexes is not step*count"),
        ("pu:4(indexes=2*0)", "\"2*0\" in its indexes is not step*count"),
        ("pu:4(indexes=1*3)", "its indexes do not make 4"),
        ("pu:4(indexes=1*2:1*2)", "different indexes, 4 are needed"),
        ("core:2 pu:2(indexes=numa)", "\"numa\" in its indexes is no level above"),
        ("pack:8000 [numa] [numa] core:1", "\"[numa]\": 16000 nodes are more than 1024"),
        ("numa:4222", "\"numa:4222\": 4222 nodes are more than 1024"),
    ] {
        let error = Machine::from_synthetic(text).unwrap_err().to_string();
        assert!(error.starts_with("synthetic machine: ") && error.contains(expected), "{error}");
    }
}

proptest! {
    #[test]
    fn any_levels_make_the_tree_they_say(
        packages in 1usize..4, nodes in 1usize..4, l3 in 1usize..4, cores in 1usize..5, pus in 1usize..3,
    ) {
        let text = format!("pack:{packages} numa:{nodes} l3:{l3} core:{cores} pu:{pus}");
        let m = machine(&text);
        prop_assert_eq!(m.nodes().len(), packages * nodes);
        prop_assert_eq!(m.usable_cores(), packages * nodes * l3 * cores);
        let tree = TopoTree::of(&m);
        let arities = tree.arities().unwrap();
        let levels: Vec<usize> =
            [packages, nodes, l3, cores, pus].into_iter().filter(|&n| n > 1).collect();
        // Levels with one child each are one.
        prop_assert_eq!(arities, levels);
    }

    #[test]
    fn any_text_gives_a_machine_or_an_error(
        words in prop::collection::vec(
            prop_oneof![
                "[a-z0-9:(){}\\[\\]=,* ]{0,12}",
                "(pack|numa|l2|l3|core|pu|group|die):[0-9]{1,2}",
                "(numa|pu|core):[1-4]\\((indexes|memory|size)=[0-9*:,a-z]{0,8}\\)",
                "\\[numa(\\(memory=[0-9]GB\\))?\\]",
            ],
            0..6,
        ),
    ) {
        let text = words.join(" ");
        match Machine::from_synthetic(&text) {
            Ok(m) => prop_assert_eq!(TopoTree::of(&m).cpus().len(), m.cpus().len()),
            Err(e) => prop_assert!(e.to_string().starts_with("synthetic machine: "), "{}", e),
        }
    }
}
