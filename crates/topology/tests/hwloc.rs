//! Machines from hwloc's own tests: XML of all its formats, and copies of sysfs.

use arclight_topology::fake::FakeMachine;
use arclight_topology::topotree::{LevelKind, TopoTree};
use arclight_topology::{CoreId, Cpu, CpuId, Machine, NodeId, layout};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::path::Path;

fn text(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/hwloc").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn machine(name: &str) -> Machine {
    Machine::from_hwloc_xml(&text(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// A machine of the files that a listing holds.
fn files(name: &str) -> Machine {
    let mut fake = FakeMachine::empty();
    // What every fake machine has; these copies do without.
    for path in ["proc/self/status", "proc/self/cgroup", "proc/self/mountinfo"] {
        fake = fake.without(path);
    }
    let mut dir = String::new();
    for line in text(name).lines() {
        if let Some(new) = line.strip_prefix('@') {
            dir = new.to_owned();
            continue;
        }
        let (file, text) = line.split_once('=').expect("a line file=text");
        // No text has a backslash before an n.
        let text = text.replace("\\n", "\n").replace("\\\\", "\\");
        fake = fake.file(&format!("{dir}/{file}"), &format!("{text}\n"));
    }
    fake.machine().unwrap()
}

fn cores(machine: &Machine) -> usize {
    machine.all_cpus().iter().map(|cpu| cpu.core).collect::<BTreeSet<_>>().len()
}

fn packages(machine: &Machine) -> usize {
    machine.all_cpus().iter().map(|cpu| cpu.package).collect::<BTreeSet<_>>().len()
}

fn has_note(machine: &Machine, part: &str) -> bool {
    machine.notes().iter().any(|note| note.contains(part))
}

const DOCUMENTS: [&str; 11] = [
    "16em64t-4s2c2t-offlines.v1.xml",
    "2intel64-1n2c-numaroot.v1.xml",
    "28intel64-2p2g7c-CoDgroups.v1.xml",
    "8intel64-fakeKNL-A2A-hybrid.rootattachednumas.v2tov1.xml",
    "16amd64-8n2c-cpusets.xml",
    "cxlmem+dax.v2.xml",
    "64intel64-heteromem.xml",
    "Intel-RaptorLake-Corei7-1370P.xml",
    "fakecpukinds.xml",
    "fakeheterocpunuma.xml",
    "nvidia-dgx-gb10.xml",
];

#[test]
fn counts_are_those_the_documents_state() {
    // Nodes, packages, cores, CPUs. What is offline or may not be used counts as a node only.
    let stated = [
        (1, 4, 6, 7),
        (1, 2, 2, 2),
        (4, 2, 28, 28),
        (2, 1, 4, 8),
        (8, 6, 10, 10),
        (1, 1, 4, 4),
        (8, 1, 16, 64),
        (1, 1, 14, 20),
        (1, 1, 2, 4),
        (6, 2, 12, 24),
        (1, 1, 20, 20),
    ];
    for (name, stated) in DOCUMENTS.into_iter().zip(stated) {
        let m = machine(name);
        let found = (m.nodes().len(), packages(&m), cores(&m), m.all_cpus().len());
        assert_eq!(found, stated, "{name}");
        // Whatever takes a machine takes these.
        assert!(layout(&m, None, None).unwrap().threads() > 0, "{name}");
        assert!(!m.to_string().contains("free"), "{name}: {m}");
        assert_eq!(m.available(m.nodes()[0].id), None, "{name}");
    }
}

#[test]
fn the_first_format_has_nodes_in_the_tree() {
    let m = machine("28intel64-2p2g7c-CoDgroups.v1.xml");
    assert_eq!(m.model(), Some("Intel(R) Xeon(R) CPU E5-2683 v3 @ 2.00GHz"));
    let node = &m.nodes()[2];
    assert_eq!((node.id, node.cpus.len(), node.memory_bytes), (NodeId(2), 7, 17_179_869_184));
    // Of 1.0, 2.1 and 3.1 times 10.
    let row: Vec<u32> = node.distances.iter().map(|&(_, distance)| distance).collect();
    assert_eq!(row, [31, 31, 10, 21]);
    assert_eq!(TopoTree::of(&m).to_string(), "machine ×1, package ×2, node ×2, core ×7");
    assert!(m.notes().is_empty(), "{:?}", m.notes());

    let m = machine("8intel64-fakeKNL-A2A-hybrid.rootattachednumas.v2tov1.xml");
    assert_eq!(m.usable_nodes().map(|node| node.id).collect::<Vec<_>>(), [NodeId(0)]);
    assert!(m.nodes()[1].cpus.is_empty() && m.nodes()[1].has_memory);
}

#[test]
fn what_is_offline_is_no_cpu() {
    let m = machine("16em64t-4s2c2t-offlines.v1.xml");
    assert!(!m.has_nodes());
    assert!(has_note(&m, "no NUMANode"));
    let offline = "8".parse().unwrap();
    let error = m.restrict(None, Some(&offline)).unwrap_err().to_string();
    assert!(error.starts_with("cpu 8 is offline"), "{error}");
    // Of the other cores one sibling is left.
    let second: Vec<&Cpu> = m.cpus().iter().filter(|cpu| cpu.smt_rank == 1).collect();
    assert_eq!((second.len(), second[0].id, second[0].core), (1, CpuId(12), CoreId(4)));
}

#[test]
fn what_may_not_be_used_is_told() {
    let m = machine("16amd64-8n2c-cpusets.xml");
    let usable: Vec<u32> = m.usable_nodes().map(|node| node.id.0).collect();
    assert_eq!(usable, [1, 2, 3]);
    // CPUs 0 and 1 are on node 0, whose memory is not allowed.
    assert_eq!(m.cpu(CpuId(1)).unwrap().node, NodeId(0));
    let node = m.node(NodeId(0)).unwrap();
    assert!(!node.memory_allowed && node.cpus == [CpuId(0), CpuId(1)]);
    assert!(has_note(&m, "cpus 4,7-11 are not described"));

    // Were they described, `allowed_cpuset` would tell.
    let text = text("fakecpukinds.xml");
    let some = text.replace("allowed_cpuset=\"0x0000000f\"", "allowed_cpuset=\"0x00000006\"");
    let m = Machine::from_hwloc_xml(&some).unwrap();
    assert_eq!(m.cpus().iter().map(|cpu| cpu.id.0).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(m.all_cpus().len(), 4);
    assert!(m.to_string().contains("cpuset allows cpus 1-2"), "{m}");
}

#[test]
fn nodes_that_hang_side_by_side() {
    let m = machine("64intel64-heteromem.xml");
    // The DRAM nodes have the lower numbers, and the CPUs.
    let with_cpus: Vec<u32> = m.usable_nodes().map(|node| node.id.0).collect();
    assert_eq!(with_cpus, [0, 1, 2, 3]);
    assert_eq!(m.nodes()[0].cpus.len(), 16);
    assert!(m.nodes()[4..].iter().all(|node| node.has_memory && node.cpus.is_empty()));
    let tree = TopoTree::of(&m);
    assert_eq!(tree.to_string(), "machine ×1, node ×4, l2 ×2, core ×2, pu ×4");

    // Nodes within nodes: a CPU is on the innermost. Four are in none.
    let m = machine("fakeheterocpunuma.xml");
    let of = |cpu| m.cpu(CpuId(cpu)).unwrap().node.0;
    assert_eq!([0, 8, 12, 16, 20].map(of), [0, 1, 5, 4, 3]);
    assert!(m.node(NodeId(2)).unwrap().cpus.is_empty());
    assert!(has_note(&m, "cpus 4-7: in no NUMANode"));
    assert_eq!(m.distance(NodeId(0), NodeId(5)), Some(50));
}

#[test]
fn cores_of_several_kinds() {
    let m = machine("Intel-RaptorLake-Corei7-1370P.xml");
    assert_eq!(m.model(), Some("13th Gen Intel(R) Core(TM) i7-1370P"));
    assert_eq!(TopoTree::of(&m).to_string(), "machine ×1, l2 ×8, core ×1–4, pu ×1–2");
    let l1 = |cpu| m.cpu(CpuId(cpu)).unwrap().l1.map(|l1| (l1.size_bytes >> 10, l1.line_bytes));
    assert_eq!((l1(0), l1(19)), (Some((48, Some(64))), Some((32, Some(64)))));
    assert_eq!(m.first_cache().map(|l1| l1.size_bytes), Some(32 << 10));
    // Second-level caches by their size: of six fast cores, and of two clusters of four.
    let text = m.to_string();
    assert!(text.contains("  L2 6 × 1.2 MiB\n") && text.contains("  L2 2 × 2 MiB\n"), "{text}");
    let m = machine("fakecpukinds.xml");
    assert_eq!(m.cpu(CpuId(1)).unwrap().max_khz, Some(1_000_000));
    assert_eq!(m.cpu(CpuId(3)).unwrap().max_khz, Some(2_000_000));
    let m = machine("nvidia-dgx-gb10.xml");
    assert_eq!(m.cpu(CpuId(0)).unwrap().capacity, Some(718));
    assert_eq!(m.cpu(CpuId(19)).unwrap().capacity, Some(997));
}

/// What sysfs shows of two Kunpeng 920 on a kernel that knows clusters, against the structure
/// that is found where nothing shows them.
#[test]
fn grouping_reveals_the_clusters_that_newer_kernels_show() {
    let m = files("128arm-2pa2n8cluster4co.files");
    assert_eq!((m.nodes().len(), cores(&m), packages(&m)), (4, 128, 2));
    assert_eq!(m.model(), Some("HiSilicon TSV110 (Kunpeng 920)"));
    let shown = TopoTree::of(&m);
    assert_eq!(shown.to_string(), "machine ×1, package ×2, node ×2, cluster ×8, core ×4");
    assert_eq!(shown.levels()[2], [LevelKind::Node, LevelKind::L3]);

    let plain = TopoTree::of(&Machine::from_synthetic("pack:2 numa:2 l3:1 core:32").unwrap());
    let grouped = plain.group(4, 1, 3).unwrap();
    assert_eq!(grouped.parts(3), shown.parts(3));
    assert_eq!(grouped.remove(1, 3).unwrap().cpus(), shown.remove(1, 3).unwrap().cpus());
}

#[test]
fn masks_and_an_old_cpuset_are_read_from_sysfs() {
    let m = files("16amd64-8n2c-cpusets.files");
    // As in hwloc's own description of the same files.
    let described = machine("16amd64-8n2c-cpusets.xml");
    assert_eq!(m.cpus().len(), described.cpus().len());
    for (read, described) in m.cpus().iter().zip(described.cpus()) {
        assert_eq!((read.id, read.node), (described.id, described.node));
        assert_eq!((read.core, read.package), (described.core, described.package));
    }
    let usable = |m: &Machine| m.usable_nodes().map(|node| node.id).collect::<Vec<_>>();
    assert_eq!(usable(&m), usable(&described));
    assert_eq!((m.nodes().len(), m.all_cpus().len()), (8, 15));
}

fn fault(document: &str) -> String {
    Machine::from_hwloc_xml(document).unwrap_err().to_string()
}

#[test]
fn faults_name_the_element() {
    let with = |objects: &str| {
        format!(
            "<topology version=\"3.0\">\n<object type=\"Machine\">{objects}</object></topology>"
        )
    };
    let pu = |attributes: &str| with(&format!("\n<object type=\"PU\" {attributes}/>"));
    for (document, expected) in [
        (String::new(), "hwloc document: "),
        ("<topology>".into(), "hwloc document: "),
        ("<html/>".into(), "line 1, <html>: the outermost element is no <topology>"),
        ("<topology/>".into(), "line 1, <topology>: it has no <object>"),
        ("<topology version=\"x\"><object/></topology>".into(), "version is no number"),
        ("<topology><object/></topology>".into(), "line 1, <object>: it has no type"),
        (with(""), "line 2, <object Machine>: no PU in it"),
        (pu(""), "line 3, <object PU>: it has no os_index"),
        (pu("os_index=\"4294967295\""), "it has no os_index"),
        (pu("os_index=\"one\""), "os_index=\"one\" is no number that fits"),
        (pu("os_index=\"9000\""), "os_index 9000 is above the highest id, 8191"),
        (pu("os_index=\"-7\""), "os_index=\"-7\" is no number that fits"),
        (pu("os_index=\"1\" complete_nodeset=\"0xz\""), "complete_nodeset=\"0xz\" is no set: "),
        (
            with("<object type=\"PU\" os_index=\"1\"/>\n<object type=\"PU\" os_index=\"1\"/>"),
            "line 3, <object PU>: there is another PU with os_index 1",
        ),
        (
            with("<object type=\"NUMANode\" os_index=\"0\" local_memory=\"-1\"/>"),
            "<object NUMANode>: local_memory=\"-1\" is no number that fits",
        ),
        (
            "<topology><object type=\"System\"/></topology>".into(),
            "<object System>: several machines as one; export one of them alone",
        ),
        (
            "<topology><object type=\"Machine\" allowed_cpuset=\"0x2\"><object type=\"PU\" \
             os_index=\"0\"/></object></topology>"
                .into(),
            "no PU in it is both online and in allowed_cpuset",
        ),
        (
            with(&format!("{}{}", "<object type=\"Group\">".repeat(90), "</object>".repeat(90))),
            "<object Group>: it is within more than 64 objects",
        ),
    ] {
        let error = fault(&document);
        assert!(error.contains(expected), "{document}\n{error}");
    }
    let two = |distances: &str| {
        format!(
            "<topology version=\"2.0\"><object type=\"Machine\"><object type=\"Group\"><object \
             type=\"NUMANode\" os_index=\"0\"/><object type=\"PU\" os_index=\"0\"/></object>\
             <object type=\"NUMANode\" os_index=\"3\"/></object>\n<distances2 type=\"NUMANode\" \
             kind=\"5\" indexing=\"os\" {distances}</distances2></topology>"
        )
    };
    for (distances, expected) in [
        ("nbobjs=\"0\">", "line 2, <distances2 NUMANode>: nbobjs is missing, zero or too large"),
        ("nbobjs=\"2\"><indexes>0 x</indexes>", "<indexes> has 1 numbers, not 2"),
        ("nbobjs=\"2\"><indexes>0 3</indexes>", "<u64values> has 0 numbers, not 4"),
        (
            "nbobjs=\"2\"><indexes>0 3</indexes><u64values>1 2 3 5000000000</u64values>",
            "<u64values>: 5000000000 is no distance",
        ),
    ] {
        let error = fault(&two(distances));
        assert!(error.contains(expected), "{distances}\n{error}");
    }
    let good = "nbobjs=\"2\"><indexes>0 3</indexes><u64values>10 17</u64values>\
                <u64values>18 10</u64values>";
    let m = Machine::from_hwloc_xml(&two(good)).unwrap();
    assert_eq!(m.distance(NodeId(0), NodeId(3)), Some(17));
    assert_eq!(m.distance(NodeId(3), NodeId(0)), Some(18));
}

#[test]
fn hostile_documents_end_soon() {
    // Nesting that would overflow a stack, a set of a million words, entities that multiply.
    let deep = format!("<topology>{}", "<object type=\"Group\">".repeat(300_000));
    assert!(fault(&deep).starts_with("hwloc document: "));
    let wide = format!("0x1{}", ",".repeat(1_000_000));
    let set = format!(
        "<topology><object type=\"Machine\" complete_cpuset=\"{wide}\"><object type=\"PU\" \
         os_index=\"0\"/></object></topology>"
    );
    assert!(fault(&set).contains("complete_cpuset has cpu 32000000, above 8191"));
    let entities = "<!DOCTYPE t [<!ENTITY a \"aaaaaaaaaa\"><!ENTITY b \"&a;&a;&a;&a;&a;&a;&a;\">\
        <!ENTITY c \"&b;&b;&b;&b;&b;&b;&b;\"><!ENTITY d \"&c;&c;&c;&c;&c;&c;&c;\">\
        <!ENTITY e \"&d;&d;&d;&d;&d;&d;&d;\"><!ENTITY f \"&e;&e;&e;&e;&e;&e;&e;\">]>\
        <topology version=\"&f;&f;&f;&f;\"/>";
    assert!(fault(entities).starts_with("hwloc document"));
}

/// A change to a document.
#[derive(Clone, Debug)]
enum Change {
    /// The text between two of the document's quotes.
    Value(prop::sample::Index, String),
    /// A line less.
    Drop(prop::sample::Index),
    /// A line twice.
    Repeat(prop::sample::Index, prop::sample::Index),
    /// The rest of the text.
    Cut(prop::sample::Index),
}

fn change() -> impl Strategy<Value = Change> {
    let junk = prop::sample::select(vec![
        "",
        "-1",
        "0",
        "1",
        "4294967295",
        "18446744073709551616",
        "1e9",
        "nan",
        "0xf...f",
        "0x0",
        "0xf...f,0x1",
        "PU",
        "Core",
        "NUMANode",
        "Package",
        "Machine",
        "Group",
        "L3Cache",
        "Cache",
        "os",
        "5",
        "222",
        "é",
    ]);
    let any = any::<prop::sample::Index>;
    prop_oneof![
        8 => (any(), junk).prop_map(|(at, value)| Change::Value(at, value.to_owned())),
        2 => (any(), "[0-9a-fx,.-]{0,20}").prop_map(|(at, value)| Change::Value(at, value)),
        3 => any().prop_map(Change::Drop),
        2 => (any(), any()).prop_map(|(from, to)| Change::Repeat(from, to)),
        1 => any().prop_map(Change::Cut),
    ]
}

fn changed(text: &str, changes: &[Change]) -> String {
    let mut text = text.to_owned();
    for change in changes {
        let mut lines: Vec<&str> = text.lines().collect();
        text = match change {
            Change::Value(at, value) => {
                let mut parts: Vec<&str> = text.split('"').collect();
                let at = 2 * at.index(parts.len().div_ceil(2)) + 1;
                if let Some(part) = parts.get_mut(at) {
                    *part = value;
                }
                parts.join("\"")
            }
            Change::Drop(at) if lines.len() > 1 => {
                lines.remove(at.index(lines.len()));
                lines.join("\n")
            }
            Change::Repeat(from, to) if !lines.is_empty() => {
                let line = lines[from.index(lines.len())];
                lines.insert(to.index(lines.len()), line);
                lines.join("\n")
            }
            Change::Cut(at) if !text.is_empty() => {
                let at = at.index(text.len());
                text.chars().take(at).collect()
            }
            _ => text.clone(),
        };
    }
    text
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn changed_documents_give_a_machine_or_an_error(
        document in prop::sample::select(DOCUMENTS.to_vec()),
        changes in prop::collection::vec(change(), 1..6),
    ) {
        match Machine::from_hwloc_xml(&changed(&text(document), &changes)) {
            Err(error) => prop_assert!(error.to_string().starts_with("hwloc document"), "{error}"),
            Ok(m) => {
                // Nothing that is made of it fails either.
                prop_assert!(!m.cpus().is_empty() && !m.to_string().is_empty());
                prop_assert!(layout(&m, None, None).is_ok());
                prop_assert!(m.cpus().iter().all(|cpu| m.node(cpu.node).is_some()));
                let tree = TopoTree::of(&m);
                prop_assert_eq!(tree.cpus().len(), m.cpus().len());
                prop_assert!(tree.evened().arities().is_ok());
            }
        }
    }
}
