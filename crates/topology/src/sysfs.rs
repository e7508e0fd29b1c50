//! Reading a machine: nodes, CPUs and caches from `sys/devices/system`, the affinity mask from
//! `proc/self/status`, then everything cut down to what the process may use.
//!
//! What is absent (containers, old kernels, firmware without tables) is noted and replaced by
//! the coarsest description that is still true: one node, one package, one core per CPU.

use crate::describe::{LOCAL, REMOTE};
use crate::files::{Tree, field_kib};
use crate::machine::Limits;
use crate::{
    Cache, CacheId, CoreId, Cpu, CpuId, CpuList, Error, FirstCache, Machine, Node, NodeId, cgroup,
    room,
};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const NODE: &str = "sys/devices/system/node";
const CPU: &str = "sys/devices/system/cpu";

pub(crate) fn read(root: &Path) -> Result<Machine, Error> {
    let mut tree = Tree::new(root);
    let status = read_status(&mut tree);
    let groups = cgroup::read(&mut tree);

    let online = online_cpus(&mut tree, status.cpus.as_deref());
    if online.is_empty() {
        return Err(no_cpus(
            root,
            "neither /sys/devices/system/cpu nor /proc/self/status names one; are sysfs and \
             procfs mounted?",
        ));
    }
    let allowed = allowed_cpus(&mut tree, &online, status.cpus.as_deref(), groups.cpus.as_deref());
    if allowed.is_empty() {
        return Err(no_cpus(
            root,
            "the affinity mask and the online cpus have none in common; check taskset and the \
             cpuset",
        ));
    }

    let mut offline = tree.numbered(CPU, "cpu");
    offline.retain(|id| online.binary_search(id).is_err());
    let (mut nodes, node_of, numa) = read_nodes(&mut tree, &online);
    let memory_allowed = allowed_mems(&mut tree, &nodes, status.mems, groups.mems);
    let mut caches = Caches::default();
    let mut cpus: Vec<Cpu> = online
        .iter()
        .map(|&id| {
            let node = node_of.get(&id).copied().unwrap_or(nodes[0].id);
            read_cpu(&mut tree, &mut caches, &online, id, node, allowed.contains(&id))
        })
        .collect();
    cpus.sort_by_key(|c| (!c.allowed, c.id));

    let only = nodes.len() == 1;
    for node in &mut nodes {
        let own = cpus.iter().filter(|c| c.allowed && c.node == node.id);
        node.cpus = own.map(|c| c.id).collect();
        node.memory_allowed = memory_allowed.contains(&node.id.0);
        node.available_bytes = room::available(root, node, numa, only);
    }

    let list = |ids: Vec<u32>| ids.into_iter().map(CpuId).collect::<CpuList>();
    Ok(Machine {
        model: read_model(&mut tree),
        nodes,
        allowed_cpus: allowed.len(),
        cpus,
        caches: caches.list,
        limits: Limits {
            affinity: status.cpus.map(list),
            cpuset: groups.cpus.map(list),
            quota: groups.quota,
            memory_bytes: groups.memory_bytes,
            restriction: None,
        },
        numa,
        notes: tree.into_notes(),
        offline: list(offline),
        root: Some(root.to_owned()),
    })
}

fn no_cpus(root: &Path, reason: &str) -> Error {
    Error::NoCpus { root: root.to_owned(), reason: reason.to_owned() }
}

struct Status {
    cpus: Option<Vec<u32>>,
    mems: Option<Vec<u32>>,
}

fn read_status(tree: &mut Tree) -> Status {
    const PATH: &str = "proc/self/status";
    let text = tree.text(PATH).unwrap_or_default();
    let mut list = |key: &str| {
        let Some(value) = text.lines().find_map(|l| l.strip_prefix(key)) else {
            tree.note(format!("/{PATH} has no {key} all are taken as allowed"));
            return None;
        };
        tree.checked(PATH, crate::idlist::parse_ids(value))
    };
    Status { cpus: list("Cpus_allowed_list:"), mems: list("Mems_allowed_list:") }
}

/// The online CPUs, ascending.
fn online_cpus(tree: &mut Tree, affinity: Option<&[u32]>) -> Vec<u32> {
    if let Some(ids) = tree.ids(&format!("{CPU}/online")).filter(|ids| !ids.is_empty()) {
        return ids;
    }
    let mut ids = tree.numbered(CPU, "cpu");
    // cpu0 usually cannot go offline and then has no such file.
    ids.retain(|id| tree.number(&format!("{CPU}/cpu{id}/online")) != Some(0));
    if !ids.is_empty() {
        tree.note(format!("/{CPU}/online is missing: cpus taken from the directory"));
        return ids;
    }
    let ids = affinity.unwrap_or_default().to_vec();
    tree.note(format!("/{CPU} lists no cpu: those of the affinity mask are used"));
    ids
}

/// The online CPUs that affinity mask and cpuset permit.
fn allowed_cpus(
    tree: &mut Tree,
    online: &[u32],
    affinity: Option<&[u32]>,
    cpuset: Option<&[u32]>,
) -> BTreeSet<u32> {
    let within = |set: Option<&[u32]>, id: &u32| set.is_none_or(|s| s.binary_search(id).is_ok());
    let mask: BTreeSet<u32> = online.iter().copied().filter(|id| within(affinity, id)).collect();
    let both: BTreeSet<u32> = mask.iter().copied().filter(|id| within(cpuset, id)).collect();
    if both.is_empty() && !mask.is_empty() {
        // The kernel keeps the mask inside the cpuset, so this cpuset is not the process's own:
        // cgroupfs of another namespace, say.
        tree.note("the cpuset excludes every cpu of the affinity mask: the mask is believed");
        return mask;
    }
    both
}

/// The numbers of the nodes this process may allocate on.
fn allowed_mems(
    tree: &mut Tree,
    nodes: &[Node],
    status: Option<Vec<u32>>,
    cpuset: Option<Vec<u32>>,
) -> BTreeSet<u32> {
    let mut allowed: BTreeSet<u32> = nodes.iter().map(|n| n.id.0).collect();
    for (source, set) in [("Mems_allowed_list", status), ("the cpuset's mems", cpuset)] {
        let Some(set) = set else { continue };
        let common: BTreeSet<u32> = set.into_iter().filter(|id| allowed.contains(id)).collect();
        if common.is_empty() {
            tree.note(format!("{source} permits no known memory node: it is ignored"));
        } else {
            allowed = common;
        }
    }
    allowed
}

/// The nodes without their CPUs, the node of each online CPU, and whether the kernel told them.
fn read_nodes(tree: &mut Tree, online: &[u32]) -> (Vec<Node>, BTreeMap<u32, NodeId>, bool) {
    let ids = tree.numbered(NODE, "node");
    if ids.is_empty() {
        tree.note(format!("/{NODE} is missing: the machine is taken as one memory node"));
        let (memory, free) = read_meminfo(tree, "proc/meminfo");
        let node = new_node(NodeId(0), memory, free, vec![(NodeId(0), LOCAL)]);
        return (vec![node], online.iter().map(|&id| (id, NodeId(0))).collect(), false);
    }

    let mut node_of = BTreeMap::new();
    let mut nodes = vec![];
    for &id in &ids {
        let dir = format!("{NODE}/node{id}");
        let (memory, free) = read_meminfo(tree, &format!("{dir}/meminfo"));
        let distances = read_distances(tree, &format!("{dir}/distance"), id, &ids);
        nodes.push(new_node(NodeId(id), memory, free, distances));
        let cpus = tree.mask_or_ids(&format!("{dir}/cpumap"), &format!("{dir}/cpulist"));
        let cpus = cpus.unwrap_or_else(|| {
            tree.note(format!("/{dir}/cpulist is missing: node {id} is taken as memory only"));
            vec![]
        });
        for cpu in cpus {
            node_of.entry(cpu).or_insert(NodeId(id));
        }
    }
    for &cpu in online.iter().filter(|id| !node_of.contains_key(id)) {
        tree.cpu_fault("in no node's cpulist: taken as part of the first node", cpu);
    }
    (nodes, node_of, true)
}

fn new_node(
    id: NodeId,
    memory: Option<u64>,
    free: Option<u64>,
    distances: Vec<(NodeId, u32)>,
) -> Node {
    Node {
        id,
        cpus: vec![],
        memory_bytes: memory.unwrap_or(0),
        free_bytes: free.unwrap_or(0),
        available_bytes: None,
        has_memory: memory != Some(0),
        memory_allowed: true,
        distances,
    }
}

/// `MemTotal` and `MemFree` in bytes, from a node's or the machine's meminfo.
fn read_meminfo(tree: &mut Tree, path: &str) -> (Option<u64>, Option<u64>) {
    let text = tree.text(path).unwrap_or_default();
    let (total, free) = (field_kib(&text, "MemTotal:"), field_kib(&text, "MemFree:"));
    if total.is_none() || free.is_none() {
        tree.note(format!("/{path} does not tell MemTotal and MemFree: amounts of memory unknown"));
    }
    (total, free)
}

/// The row of the distance matrix: one number per node of `ids`, in that order.
fn read_distances(tree: &mut Tree, path: &str, from: u32, ids: &[u32]) -> Vec<(NodeId, u32)> {
    let text = tree.text(path).unwrap_or_default();
    let row: Vec<u32> = text.split_whitespace().map_while(|d| d.parse().ok()).collect();
    if row.len() == ids.len() {
        return ids.iter().map(|&id| NodeId(id)).zip(row).collect();
    }
    tree.note(format!(
        "/{path} has no distance for each of {} nodes: {LOCAL} local, {REMOTE} remote assumed",
        ids.len()
    ));
    ids.iter().map(|&to| (NodeId(to), if to == from { LOCAL } else { REMOTE })).collect()
}

fn read_cpu(
    tree: &mut Tree,
    caches: &mut Caches,
    online: &[u32],
    id: u32,
    node: NodeId,
    allowed: bool,
) -> Cpu {
    let dir = format!("{CPU}/cpu{id}");
    let id_of = |tree: &mut Tree, file: &str| {
        let number = tree.number(&format!("{dir}/topology/{file}"))?;
        // -1 and 65535 are what kernels print for "the firmware does not say".
        u32::try_from(number).ok().filter(|&n| n != 0xffff && n != u32::MAX)
    };
    let package = id_of(tree, "physical_package_id").or_else(|| {
        // Firmware without numbers (POWER, s390) still tells who is together.
        let together = cpus_of(tree, &dir, ["package_cpus", "core_siblings"])?;
        together.first().copied()
    });
    let package = package.unwrap_or_else(|| {
        tree.cpu_fault("no physical_package_id: taken as one package", id);
        0
    });

    // `core_cpus` since Linux 5.3; the older name lives on, deprecated.
    let siblings = cpus_of(tree, &dir, ["core_cpus", "thread_siblings"]);
    let siblings = online_with(siblings, online, id).unwrap_or_else(|| {
        tree.cpu_fault("no list of SMT siblings: each taken as a core of its own", id);
        vec![id]
    });

    let mut l1 = None;
    let mut l2_l3 = [None, None];
    // Four or five on real machines.
    for index in tree.numbered(&format!("{dir}/cache"), "index").into_iter().take(16) {
        let cache = format!("{dir}/cache/index{index}");
        let Some(level) = tree.number(&format!("{cache}/level")) else { continue };
        let kind = tree.text(&format!("{cache}/type"));
        let data = kind.as_deref().is_none_or(|k| k.trim() != "Instruction");
        if level == 1 && data {
            let size = tree.text(&format!("{cache}/size")).and_then(|text| parse_size(&text));
            let line = tree.number(&format!("{cache}/coherency_line_size"));
            let line_bytes = line.and_then(|n| u32::try_from(n).ok()).filter(|&n| n > 0);
            l1 = size.map(|size_bytes| FirstCache { size_bytes, line_bytes });
        }
        if !matches!(level, 2 | 3) || !data {
            continue;
        }
        let (mask, list) = (format!("{cache}/shared_cpu_map"), format!("{cache}/shared_cpu_list"));
        let shared = tree.mask_or_ids(&mask, &list);
        let Some(cpus) = online_with(shared, online, id) else {
            tree.cpu_fault("a cache without shared_cpu_list is left out", id);
            continue;
        };
        l2_l3[level as usize - 2] = Some(caches.intern(tree, &cache, level as u8, cpus));
    }

    let max_khz = tree.number(&format!("{dir}/cpufreq/cpuinfo_max_freq"));
    let capacity = tree.number(&format!("{dir}/cpu_capacity"));
    Cpu {
        id: CpuId(id),
        node,
        package,
        die: id_of(tree, "die_id"),
        cluster: id_of(tree, "cluster_id"),
        core: CoreId(siblings[0]),
        smt_rank: siblings.iter().position(|&s| s == id).unwrap_or(0),
        l1,
        l2: l2_l3[0],
        l3: l2_l3[1],
        allowed,
        max_khz: max_khz.and_then(|n| u64::try_from(n).ok()),
        capacity: capacity.and_then(|n| u32::try_from(n).ok()),
    }
}

/// The CPUs in the file of the first of these names, in the two forms such files have.
fn cpus_of(tree: &mut Tree, cpu: &str, names: [&str; 2]) -> Option<Vec<u32>> {
    names.iter().find_map(|name| {
        let mask = format!("{cpu}/topology/{name}");
        tree.mask_or_ids(&mask, &format!("{mask}_list"))
    })
}

/// The online part of a CPU's sibling list, the CPU itself included whatever the list says.
fn online_with(list: Option<Vec<u32>>, online: &[u32], id: u32) -> Option<Vec<u32>> {
    let mut list = list?;
    list.push(id);
    list.retain(|cpu| online.binary_search(cpu).is_ok());
    list.sort_unstable();
    list.dedup();
    Some(list)
}

/// Caches seen so far. Each CPU lists the caches it shares; equal level and CPUs is one cache.
#[derive(Default)]
struct Caches {
    list: Vec<Cache>,
    known: BTreeMap<(u8, Vec<u32>), CacheId>,
}

impl Caches {
    fn intern(&mut self, tree: &mut Tree, dir: &str, level: u8, cpus: Vec<u32>) -> CacheId {
        if let Some(&id) = self.known.get(&(level, cpus.clone())) {
            return id;
        }
        let path = format!("{dir}/size");
        let size = tree.text(&path).and_then(|text| parse_size(&text));
        if size.is_none() {
            tree.note(format!("/{path} is missing or no size: size of the L{level} cache unknown"));
        }
        let id = CacheId(self.list.len() as u32);
        self.list.push(Cache {
            level,
            size_bytes: size.unwrap_or(0),
            cpus: cpus.iter().map(|&cpu| CpuId(cpu)).collect(),
        });
        self.known.insert((level, cpus), id);
        id
    }
}

/// `32768K` → bytes.
fn parse_size(text: &str) -> Option<u64> {
    let text = text.trim();
    let (digits, unit) = match text.as_bytes().last()? {
        b'K' => (&text[..text.len() - 1], 1 << 10),
        b'M' => (&text[..text.len() - 1], 1 << 20),
        b'G' => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1),
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

/// The CPU's name. x86 and others write it out; Arm gives two numbers.
fn read_model(tree: &mut Tree) -> Option<String> {
    // The first CPU's paragraph is enough of a file that has one for each.
    let text = tree.head("proc/cpuinfo")?;
    let field = |key: &str| {
        let mut pairs = text.lines().filter_map(|l| l.split_once(':'));
        pairs.find(|(k, _)| k.trim() == key).map(|(_, v)| v.trim())
    };
    let named = ["model name", "cpu model", "uarch", "cpu", "Hardware"];
    if let Some(name) = named.iter().find_map(|key| field(key)).filter(|n| !n.is_empty()) {
        return Some(name.split_whitespace().collect::<Vec<_>>().join(" "));
    }
    Some(arm_model(field("CPU implementer")?, field("CPU part")?))
}

/// What to call an Arm core, known or not.
pub(crate) fn arm_model(implementer: &str, part: &str) -> String {
    arm_name(implementer, part).map_or_else(
        || format!("Arm CPU (implementer {implementer}, part {part})"),
        ToOwned::to_owned,
    )
}

/// Server cores by the identification register MIDR_EL1, as listed in the kernel's
/// `arch/arm64/include/asm/cputype.h`.
fn arm_name(implementer: &str, part: &str) -> Option<&'static str> {
    Some(match (implementer, part) {
        ("0x41", "0xd0c") => "Arm Neoverse N1",
        ("0x41", "0xd40") => "Arm Neoverse V1",
        ("0x41", "0xd49") => "Arm Neoverse N2",
        ("0x41", "0xd4f") => "Arm Neoverse V2",
        ("0x41", "0xd84") => "Arm Neoverse V3",
        ("0x41", "0xd8e") => "Arm Neoverse N3",
        ("0x46", "0x001") => "Fujitsu A64FX",
        ("0x48", "0xd01") => "HiSilicon TSV110 (Kunpeng 920)",
        ("0xc0", "0xac3") => "Ampere-1",
        ("0xc0", "0xac4") => "Ampere-1A",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::parse_size;

    #[test]
    fn cache_sizes() {
        assert_eq!(parse_size("32768K\n"), Some(32 << 20));
        assert_eq!(parse_size("2M"), Some(2 << 20));
        assert_eq!(parse_size("512"), Some(512));
        for bad in ["", "K", "-1K", "é", "99999999999999999999K", "18446744073709551615K"] {
            assert_eq!(parse_size(bad), None, "{bad:?}");
        }
    }
}
