//! Reading fake machines: what is found, what is allowed, and what happens when files are odd.

use arclight_topology::fake::FakeMachine;
use arclight_topology::{CoreId, CpuId, Error, FirstCache, Machine, NodeId};
use proptest::prelude::*;

fn ids(cpus: &[CpuId]) -> Vec<u32> {
    cpus.iter().map(|c| c.0).collect()
}

fn allowed(machine: &Machine) -> Vec<u32> {
    machine.cpus().iter().map(|c| c.id.0).collect()
}

fn usable(machine: &Machine) -> Vec<u32> {
    machine.usable_nodes().map(|n| n.id.0).collect()
}

/// The machine, which must have been read without anything to remark.
fn clean(fake: &FakeMachine) -> Machine {
    let machine = fake.machine().unwrap();
    assert_eq!(machine.notes(), [] as [&str; 0]);
    machine
}

fn has_note(machine: &Machine, part: &str) -> bool {
    machine.notes().iter().any(|n| n.contains(part))
}

#[test]
fn one_node_two_cpus() {
    let m = clean(&FakeMachine::uniform(1, 2));
    assert_eq!(m.nodes().len(), 1);
    assert_eq!(ids(&m.nodes()[0].cpus), [0, 1]);
    assert_eq!(m.nodes()[0].memory_bytes, 64 << 30);
    assert_eq!(m.nodes()[0].free_bytes, 56 << 30);
    assert_eq!(m.usable_cores(), 2);
    assert_eq!(m.quota(), None);
    assert!(m.has_nodes());
    assert_eq!(m.model(), Some("Fake CPU @ 2.0GHz"));
}

#[test]
fn two_sockets_with_smt() {
    let m = clean(&FakeMachine::uniform(2, 16).smt(2));
    assert_eq!(m.cpus().len(), 64);
    assert_eq!(m.usable_cores(), 32);
    assert_eq!(m.nodes()[1].cpus.len(), 32);
    let sibling = m.cpu(CpuId(50)).unwrap();
    assert_eq!((sibling.core, sibling.smt_rank, sibling.node), (CoreId(18), 1, NodeId(1)));
    assert_eq!((sibling.package, sibling.die), (1, Some(0)));
    let l3 = m.cache(sibling.l3.unwrap()).unwrap();
    assert_eq!((l3.level, l3.size_bytes, l3.cpus.len()), (3, 32 << 20, 32));
    let l2 = m.cache(sibling.l2.unwrap()).unwrap();
    assert_eq!((l2.level, ids(&l2.cpus)), (2, vec![18, 50]));
    // 32 private L2 and 2 L3, each once.
    assert_eq!(m.caches().len(), 34);
}

#[test]
fn node_numbers_with_gaps() {
    let fake = [0, 2, 5, 7].into_iter().fold(FakeMachine::empty(), |m, id| m.node(id, 4, 32));
    let m = clean(&fake.distance(2, 7, 12));
    assert_eq!(usable(&m), [0, 2, 5, 7]);
    assert_eq!(ids(&m.node(NodeId(5)).unwrap().cpus), [8, 9, 10, 11]);
    assert!(m.node(NodeId(1)).is_none());
    assert_eq!(m.distance(NodeId(7), NodeId(2)), Some(12));
    assert_eq!(m.distance(NodeId(5), NodeId(5)), Some(10));
    assert_eq!(m.distance(NodeId(5), NodeId(3)), None);
}

#[test]
fn memory_only_and_cpu_only_nodes() {
    let m = clean(&FakeMachine::empty().node(0, 4, 64).node(1, 4, 0).node(2, 0, 256));
    assert_eq!(usable(&m), [0]);
    assert!(!m.nodes()[1].has_memory && m.nodes()[2].has_memory);
    assert_eq!(m.nodes()[2].cpus, []);
    assert_eq!(m.usable_cores(), 8);
}

#[test]
fn eight_l3_domains() {
    let m = clean(&FakeMachine::uniform(1, 64).smt(2).cores_per_l3(8));
    let l3: Vec<_> = m.caches().iter().filter(|c| c.level == 3).collect();
    assert_eq!(l3.len(), 8);
    assert_eq!(ids(&l3[1].cpus), (8..16).chain(72..80).collect::<Vec<_>>());
}

#[test]
fn arm_like_clusters_without_dies() {
    let fake = FakeMachine::uniform(1, 8).l3_kib(0).cores_per_cluster(4).without_die_id();
    let fake = fake.cpuinfo("processor\t: 0\nCPU implementer\t: 0x48\nCPU part\t: 0xd01\n");
    let m = clean(&fake);
    let cpu = m.cpu(CpuId(5)).unwrap();
    assert_eq!((cpu.die, cpu.cluster, cpu.l3), (None, Some(1), None));
    assert_eq!(m.model(), Some("HiSilicon TSV110 (Kunpeng 920)"));
    // Firmware that does not know prints 65535 or -1.
    let m = FakeMachine::uniform(1, 2)
        .file("sys/devices/system/cpu/cpu0/topology/cluster_id", "65535\n")
        .file("sys/devices/system/cpu/cpu0/topology/die_id", "-1\n")
        .file("sys/devices/system/cpu/cpu0/topology/physical_package_id", "-1\n")
        .machine()
        .unwrap();
    let cpu = m.cpu(CpuId(0)).unwrap();
    assert_eq!((cpu.package, cpu.die, cpu.cluster), (0, None, None));
    assert!(has_note(&m, "cpus 0: no physical_package_id"));
}

#[test]
fn frequency_and_capacity() {
    let m = clean(
        &FakeMachine::uniform(1, 2)
            .file("sys/devices/system/cpu/cpu1/cpufreq/cpuinfo_max_freq", "2600000\n")
            .file("sys/devices/system/cpu/cpu1/cpu_capacity", "512\n"),
    );
    assert_eq!((m.cpus()[0].max_khz, m.cpus()[0].capacity), (None, None));
    assert_eq!((m.cpus()[1].max_khz, m.cpus()[1].capacity), (Some(2_600_000), Some(512)));
}

#[test]
fn offline_cpus_are_skipped() {
    let m = clean(&FakeMachine::uniform(1, 4).smt(2).offline("1,6"));
    assert_eq!(allowed(&m), [0, 2, 3, 4, 5, 7]);
    // 1 is gone: its sibling 5 is now the core's first. 6 is gone: 2 is alone.
    let cpu = m.cpu(CpuId(5)).unwrap();
    assert_eq!((cpu.core, cpu.smt_rank), (CoreId(5), 0));
    assert_eq!(m.usable_cores(), 4);

    // Lists of siblings that still name an offline CPU.
    let cpu0 = "sys/devices/system/cpu/cpu0";
    let m = clean(
        &FakeMachine::uniform(1, 2)
            .smt(2)
            .offline("2")
            .file(&format!("{cpu0}/topology/core_cpus_list"), "0,2")
            .file(&format!("{cpu0}/cache/index2/shared_cpu_list"), "0,2"),
    );
    assert_eq!(ids(&m.cache(m.cpus()[0].l2.unwrap()).unwrap().cpus), [0]);

    // Without the summary file, each CPU's own file tells.
    let m = FakeMachine::uniform(1, 4)
        .offline("3")
        .affinity("0-3")
        .without("sys/devices/system/cpu/online")
        .machine()
        .unwrap();
    assert_eq!(allowed(&m), [0, 1, 2]);
    assert!(has_note(&m, "cpu/online is missing"));
}

#[test]
fn affinity_may_exclude_a_node() {
    let m = clean(&FakeMachine::uniform(2, 4).smt(2).affinity("4-7"));
    assert_eq!(usable(&m), [1]);
    assert_eq!(allowed(&m), [4, 5, 6, 7]);
    assert_eq!(m.nodes()[0].cpus, []);
    assert_eq!(m.all_cpus().len(), 16);
    assert!(!m.cpu(CpuId(0)).unwrap().allowed && m.cpu(CpuId(7)).unwrap().allowed);
    // Second siblings alone are cores too.
    let m = clean(&FakeMachine::uniform(1, 4).smt(2).affinity("2,6,7"));
    assert_eq!(m.usable_cores(), 2);
}

#[test]
fn mems_allowed_may_exclude_a_node() {
    let m = clean(&FakeMachine::uniform(2, 4).mems_allowed("1"));
    assert_eq!(usable(&m), [1]);
    assert_eq!(m.nodes()[0].cpus.len(), 4);
    assert!(!m.nodes()[0].memory_allowed);
}

#[test]
fn cgroup_v2_cpuset() {
    let fake = FakeMachine::uniform(2, 4)
        .cgroup_v2("/box/inner")
        .cgroup_file("box/cpuset.cpus.effective", "0-1,5\n")
        .cgroup_file("box/cpuset.mems.effective", "0\n")
        // A cpuset partition: the top has lost the CPUs that it gave away.
        .cgroup_file("cpuset.cpus.effective", "2-4,6-7\n");
    let m = clean(&fake);
    assert_eq!(allowed(&m), [0, 1, 5]);
    assert_eq!(m.usable_cores(), 3);
    assert_eq!(usable(&m), [0]);
    let text = m.to_string();
    assert!(text.contains("cpuset allows cpus 0-1,5; memory of node 1 not allowed"), "{text}");
}

#[test]
fn nearest_cgroup_with_a_cpuset_counts() {
    let fake = FakeMachine::uniform(1, 8)
        .cgroup_v2("/a/b")
        .cgroup_file("a/cpuset.cpus.effective", "0-5\n")
        .cgroup_file("a/b/cpuset.cpus.effective", "2-3\n");
    assert_eq!(allowed(&clean(&fake)), [2, 3]);
}

#[test]
fn cgroup_v1_cpuset_and_quota() {
    let fake = FakeMachine::uniform(1, 8)
        .cgroup_v1("cpu,cpuacct", "/docker/1")
        .cgroup_file("cpu,cpuacct/docker/1/cpu.cfs_quota_us", "250000\n")
        .cgroup_file("cpu,cpuacct/docker/1/cpu.cfs_period_us", "100000\n")
        .cgroup_file("cpu,cpuacct/cpu.cfs_quota_us", "-1\n")
        .cgroup_v1("cpuset", "/docker/1")
        .cgroup_file("cpuset/docker/1/cpuset.cpus", "0-5\n")
        .cgroup_v1("memory", "/docker/1")
        .cgroup_file("memory/docker/1/memory.limit_in_bytes", "8589934592\n")
        .cgroup_file("memory/memory.limit_in_bytes", "9223372036854771712\n");
    let m = clean(&fake);
    assert_eq!(m.quota(), Some(2.5));
    assert_eq!(allowed(&m).len(), 6);
    assert_eq!(m.usable_cores(), 2);
    assert_eq!(m.memory_limit(), Some(8 << 30));

    let fake = FakeMachine::uniform(1, 8).cgroup_v1("memory", "/");
    let m = clean(&fake.cgroup_file("memory/memory.limit_in_bytes", "9223372036854771712\n"));
    assert_eq!(m.memory_limit(), None);
}

#[test]
fn instruction_caches_are_left_out() {
    let kind = "sys/devices/system/cpu/cpu0/cache/index2/type";
    let m = clean(&FakeMachine::uniform(1, 1).file(kind, "Instruction\n"));
    assert_eq!(m.cpus()[0].l2, None);
}

#[test]
fn first_caches_are_those_of_data() {
    let fake = FakeMachine::uniform(1, 2);
    let cache =
        |index: u32, name: &str| format!("sys/devices/system/cpu/cpu1/cache/index{index}/{name}");
    let l1 = |fake: FakeMachine| clean(&fake).cpu(CpuId(1)).unwrap().l1;
    let plain = FirstCache { size_bytes: 32 << 10, line_bytes: Some(64) };
    assert_eq!(l1(fake.clone()), Some(plain));
    // That of instructions is another size.
    assert_eq!(l1(fake.clone().file(&cache(1, "size"), "64K\n")), Some(plain));
    let other = fake
        .clone()
        .file(&cache(0, "size"), "48K\n")
        .file(&cache(0, "coherency_line_size"), "128\n");
    assert_eq!(l1(other.clone()), Some(FirstCache { size_bytes: 48 << 10, line_bytes: Some(128) }));
    // The machine's is what every core has.
    assert_eq!(clean(&other).first_cache(), Some(plain));
    let silent = fake.clone().without(&cache(0, "coherency_line_size"));
    assert_eq!(l1(silent), Some(FirstCache { line_bytes: None, ..plain }));
    assert_eq!(l1(fake.without(&cache(0, "size"))), None);
}

#[test]
fn nested_cpu_max_takes_the_least() {
    let fake = FakeMachine::uniform(1, 16)
        .cgroup_v2("/a/b/c")
        .cgroup_file("a/cpu.max", "300000 100000\n")
        .cgroup_file("a/b/cpu.max", "800000 100000\n")
        .cgroup_file("a/b/c/cpu.max", "max 100000\n")
        .cgroup_file("a/memory.max", "max\n");
    let m = clean(&fake);
    assert_eq!(m.quota(), Some(3.0));
    assert_eq!(m.usable_cores(), 3);
    assert_eq!(m.memory_limit(), None);
    let small = fake.clone().cgroup_file("a/b/c/cpu.max", "5000 10000\n");
    assert_eq!(clean(&small).quota(), Some(0.5));
    assert_eq!(clean(&small).usable_cores(), 1);
    let odd = fake.cgroup_file("a/cpu.max", "lots 0\n").machine().unwrap();
    assert_eq!(odd.quota(), Some(8.0));
    assert!(has_note(&odd, "/sys/fs/cgroup/a/cpu.max is ignored"));
}

#[test]
fn no_node_directory() {
    let m = FakeMachine::uniform(2, 4).without("sys/devices/system/node").machine().unwrap();
    assert_eq!(usable(&m), [0]);
    assert!(!m.has_nodes());
    assert_eq!(m.nodes()[0].cpus.len(), 8);
    assert_eq!(m.nodes()[0].memory_bytes, 128 << 30);
    assert!(has_note(&m, "taken as one memory node"));
}

#[test]
fn missing_files_make_it_coarser_and_are_noted() {
    let m = FakeMachine::uniform(1, 4).smt(2).without("sys").machine().unwrap();
    assert_eq!(m.usable_cores(), 8);
    assert!(has_note(&m, "cpus 0-7: no list of SMT siblings"));
    assert!(has_note(&m, "those of the affinity mask are used"));

    let m = FakeMachine::uniform(2, 2).without("proc").machine().unwrap();
    assert_eq!(m.usable_cores(), 4);
    for part in ["Cpus_allowed_list", "Mems_allowed_list", "/proc/self/cgroup is missing"] {
        assert!(has_note(&m, part), "{part}: {:?}", m.notes());
    }
    assert_eq!(m.model(), None);

    let node = "sys/devices/system/node/node1";
    let m = FakeMachine::uniform(2, 2)
        .without(&format!("{node}/distance"))
        .without(&format!("{node}/meminfo"))
        .machine()
        .unwrap();
    assert_eq!(m.distance(NodeId(1), NodeId(0)), Some(20));
    assert_eq!(usable(&m), [0, 1]);
    assert!(has_note(&m, "no distance for each of 2 nodes"));
    assert!(m.to_string().contains("memory unknown"));
}

#[test]
fn nothing_there_is_an_error() {
    let error = Machine::read_from("/nonexistent/machine".as_ref()).unwrap_err();
    assert!(error.to_string().contains("/nonexistent/machine"), "{error}");
    let error = FakeMachine::uniform(1, 2).affinity("6-7").machine().unwrap_err();
    assert!(matches!(error, Error::NoCpus { .. }), "{error}");
    assert!(error.to_string().contains("affinity"), "{error}");
}

#[test]
fn a_cpuset_that_is_not_ours_is_not_believed() {
    let fake = FakeMachine::uniform(1, 4).affinity("0-1").cgroup_v2("/x");
    let m = fake
        .cgroup_file("x/cpuset.cpus.effective", "2-3\n")
        .cgroup_file("x/cpuset.mems.effective", "9\n")
        .machine()
        .unwrap();
    assert_eq!(allowed(&m), [0, 1]);
    assert_eq!(usable(&m), [0]);
    assert!(has_note(&m, "the mask is believed") && has_note(&m, "cpuset's mems permits no"));
}

#[test]
fn large_and_odd_files_are_bounded() {
    let status = format!("{}\nCpus_allowed_list:\t0\n", "x".repeat(1 << 20));
    // A directory where a file should be.
    let online = "sys/devices/system/cpu/cpu3/cpu_capacity";
    let m = FakeMachine::uniform(1, 4).file(&format!("{online}/x"), "").machine().unwrap();
    assert!(has_note(&m, "cpu_capacity cannot be read (not a regular file)"));

    let m = FakeMachine::uniform(1, 4)
        .file("proc/self/status", &status)
        .file("sys/devices/system/cpu/cpu1/cache/index3/shared_cpu_list", "0-4294967295\n")
        .machine()
        .unwrap();
    assert!(has_note(&m, "/proc/self/status is longer than"));
    assert!(has_note(&m, "above the highest id"));
    assert_eq!(m.cpu(CpuId(1)).unwrap().l3, None);
    assert_eq!(m.cpus().len(), 4);
}

#[test]
fn overview() {
    let fake = FakeMachine::uniform(2, 16).smt(2).cores_per_l3(8).cgroup_v2("/box");
    let text = clean(&fake.cgroup_file("box/cpu.max", "400000 100000")).to_string();
    let expected = "\
Fake CPU @ 2.0GHz
  machine  2 sockets × 16 cores × 2 threads = 64 cpus, 2 memory nodes, 128 GiB memory
  limits   quota of 4 cpus
  usable   4 cores on 2 nodes
  caches   L1 32 KiB of data, lines of 64 B

  node 0   64 GiB (56 GiB available); 16 cores, cpus 0-15,32-47
           L2 16 × 1 MiB
           L3 2 × 32 MiB: 0-7,32-39 | 8-15,40-47
  node 1   64 GiB (56 GiB available); 16 cores, cpus 16-31,48-63
           L2 16 × 1 MiB
           L3 2 × 32 MiB: 16-23,48-55 | 24-31,56-63

  distance    0    1
         0   10   20
         1   20   10
";
    assert_eq!(text, expected);
}

#[test]
fn overview_names_the_cause_and_wraps() {
    let fake = FakeMachine::uniform(1, 96).smt(2).cores_per_l3(8).cgroup_v2("/box");
    let fake = fake.cgroup_file("box/cpuset.cpus.effective", "0-95,100");
    let text = clean(&fake).to_string();
    assert!(text.contains("limits   cpuset allows cpus 0-95,100\n"), "{text}");
    assert!(text.lines().all(|l| l.chars().count() <= 100), "{text}");
    let text = clean(&fake.clone().affinity("0-3")).to_string();
    assert!(text.contains("affinity mask within the cpuset allows cpus 0-3\n"), "{text}");
    let text = clean(&FakeMachine::uniform(1, 4).affinity("2")).to_string();
    assert!(text.contains("limits   affinity mask allows cpus 2\n"), "{text}");
    let text = FakeMachine::uniform(1, 1).without("sys").without("proc/meminfo").machine().unwrap();
    assert!(text.to_string().contains("1 memory node, memory unknown\n"), "{text}");
}

#[test]
fn serializes_with_plain_numbers() {
    let m = clean(&FakeMachine::uniform(1, 2).affinity("1"));
    let json = serde_json::to_value(&m).unwrap();
    assert_eq!(json["nodes"][0]["cpus"][0], 1);
    assert_eq!(json["limits"]["affinity"], "1");
    assert_eq!(json["cpus"][0]["id"], 1);
    assert_eq!(json["cpus"][1]["allowed"], false);
}

#[test]
fn this_machine() {
    let m = Machine::read().unwrap();
    assert!(m.usable_cores() >= 1 && m.usable_cores() <= m.cpus().len());
    assert!(m.cpus().windows(2).all(|w| w[0].id < w[1].id));
    assert!(!m.to_string().is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Whatever one file says, reading and laying out end in a value or an error.
    #[test]
    fn no_file_content_panics(file in 0usize..FILES.len(), text in "[0-9a-zA-Z:,\\-/ \n]{0,60}|0::/|0-7") {
        let fake = FakeMachine::uniform(2, 2).smt(2).cgroup_v2("/a").file(FILES[file], &text);
        if let Ok(m) = fake.machine() {
            prop_assert!(!m.cpus().is_empty() && !m.nodes().is_empty());
            prop_assert!(!m.to_string().is_empty());
            let layout = arclight_topology::layout(&m, None, None).unwrap();
            prop_assert!(layout.threads() >= 1);
        }
    }
}

const FILES: &[&str] = &[
    "proc/self/status",
    "proc/self/cgroup",
    "proc/self/mountinfo",
    "proc/cpuinfo",
    "sys/devices/system/cpu/online",
    "sys/devices/system/cpu/cpu1/topology/physical_package_id",
    "sys/devices/system/cpu/cpu1/topology/die_id",
    "sys/devices/system/cpu/cpu1/topology/core_cpus_list",
    "sys/devices/system/cpu/cpu1/cache/index3/level",
    "sys/devices/system/cpu/cpu1/cache/index3/type",
    "sys/devices/system/cpu/cpu1/cache/index3/size",
    "sys/devices/system/cpu/cpu1/cache/index3/shared_cpu_list",
    "sys/devices/system/cpu/cpu1/cpu_capacity",
    "sys/devices/system/node/node1/cpulist",
    "sys/devices/system/node/node1/distance",
    "sys/devices/system/node/node1/meminfo",
    "sys/fs/cgroup/a/cpu.max",
    "sys/fs/cgroup/a/memory.max",
    "sys/fs/cgroup/a/cpuset.cpus.effective",
    "sys/fs/cgroup/a/cpuset.mems.effective",
];
