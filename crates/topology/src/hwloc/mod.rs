//! Machines from hwloc's XML: what `lstopo machine.xml` writes on any machine is enough to plan for
//! it on another. No libhwloc is needed.
//!
//! All three formats are read: that of hwloc 1, where memory nodes are levels of the tree, and
//! those of 2 and 3, where they hang beside it. Devices, page sizes and attributes of memory are
//! passed over. A CPU belongs to the node that holds it and the fewest others, of equal ones to
//! the lowest number, as node numbers begin with the ordinary memory; nodes left without CPUs are
//! memory only.
//!
//! Limits: documents of some million elements, objects nested 64 deep. What a document does not tell (free
//! memory, quotas) is unknown. hwloc leaves out what was offline when it looked, and mostly what
//! was forbidden too: neither can be told from the other, so both count as offline.
//!
//! Source: `hwloc/hwloc2.dtd`, the hwloc 1.11 and 3.0 documentation of the XML back-end, and the
//! exports in hwloc's own tests.

mod distances;
mod element;
mod walk;

use crate::bitmap::Bitmap;
use crate::describe::{self, Description, Pu};
use crate::{CpuId, CpuList, Error, MAX_ID, Machine, Node, NodeId, NodeList, sysfs};
use element::Element;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use walk::{FoundNode, FoundPu, Walk};

/// Most nodes of a document, texts and attributes' elements included; the largest machine has
/// 8192 CPUs with some ten lines each.
const MAX_XML_NODES: u32 = 2_000_000;
/// The newest format known.
const NEWEST: u32 = 3;

impl Machine {
    /// Describes the machine that an hwloc XML document does, such as `lstopo m.xml` writes.
    ///
    /// # Errors
    /// [`Error::HwlocXml`] when the text is no XML, [`Error::Hwloc`] names the line and element
    /// that is missing something or has what it cannot have.
    pub fn from_hwloc_xml(text: &str) -> Result<Self, Error> {
        let broken = |reason: String| Error::HwlocXml { reason };
        // The document type that hwloc names is a file, which nobody opens.
        let options = roxmltree::ParsingOptions {
            allow_dtd: true,
            nodes_limit: MAX_XML_NODES,
            ..Default::default()
        };
        let document = roxmltree::Document::parse_with_options(text, options)
            .map_err(|e| broken(e.to_string()))?;
        let topology = Element::new(document.root_element());
        if topology.tag() != "topology" {
            return Err(topology.fault("the outermost element is no <topology>"));
        }
        let root = topology.children("object").next();
        let root = root.ok_or_else(|| topology.fault("it has no <object>"))?;

        let mut notes = vec![];
        let version = match topology.attr("version") {
            Some(version) => version.split('.').next().unwrap_or(version).parse::<u32>(),
            None => Ok(1),
        };
        let version = version.map_err(|_| topology.fault("version is no number"))?;
        if version > NEWEST {
            notes.push(format!("hwloc's format {version} is newer than {NEWEST}, the last known"));
        }

        let mut found = Walk::new(version);
        found.object(root, walk::Around::default(), 0)?;
        if found.pus.is_empty() {
            return Err(root.fault("no PU in it"));
        }
        let mut distances = found.distances.clone();
        distances.append(&mut distances::beside(topology)?);
        describe(topology, root, found, distances, notes).map(Description::machine)
    }
}

/// The sets at the root that say what of a machine is there and may be used.
struct Sets {
    allowed_cpus: Option<Bitmap>,
    /// Only hwloc 1 describes what is offline.
    online: Option<Bitmap>,
    complete_cpus: Option<Bitmap>,
    allowed_nodes: Option<Bitmap>,
    complete_nodes: Option<Bitmap>,
}

fn describe(
    topology: Element,
    root: Element,
    found: Walk,
    distances: distances::Distances,
    mut notes: Vec<String>,
) -> Result<Description, Error> {
    let sets = Sets {
        allowed_cpus: root.set("allowed_cpuset")?,
        online: root.set("online_cpuset")?,
        complete_cpus: root.set("complete_cpuset")?,
        allowed_nodes: root.set("allowed_nodeset")?,
        complete_nodes: root.set("complete_nodeset")?,
    };
    let (mut nodes, numa) = nodes(root, &found, &sets, &mut notes)?;
    let only = nodes.len() == 1;
    let known = |from, to| match only {
        true => Some(describe::LOCAL),
        false => distances.get(&(from, to)).copied(),
    };
    let assumed: NodeList = describe::set_distances(&mut nodes, known).into_iter().collect();
    if !assumed.is_empty() {
        let (local, remote) = (describe::LOCAL, describe::REMOTE);
        notes.push(format!(
            "not all distances of nodes {assumed} are told: {local} local, {remote} remote assumed"
        ));
    }

    let (online, offline): (Vec<&FoundPu>, Vec<&FoundPu>) = found
        .pus
        .iter()
        .partition(|pu| sets.online.as_ref().is_none_or(|online| online.contains(pu.id)));
    let hidden = hidden(root, &found, &sets)?;
    if !hidden.is_empty() {
        notes.push(format!("cpus {hidden} are not described: offline, or not allowed"));
    }
    let offline = offline.iter().map(|pu| CpuId(pu.id)).chain(hidden.iter()).collect();

    let homes = homes(&found, &nodes, &mut notes);
    let kinds = kinds(topology)?;
    let packages = numbers(found.packages.iter().map(|&index| (0, index)));
    let dies = numbers(found.dies.iter().copied());
    let clusters = numbers(found.clusters.iter().copied());
    let pus: Vec<Pu> = online
        .into_iter()
        .map(|pu| {
            let kind = kinds.iter().filter(|kind| kind.cpus.contains(pu.id));
            Pu {
                id: pu.id,
                node: homes[&pu.id],
                package: pu.around.package.map_or(0, |i| packages[i]),
                die: pu.around.die.map(|i| dies[i]),
                cluster: pu.around.cluster.map(|i| clusters[i]),
                place: pu.around.place,
                allowed: sets.allowed_cpus.as_ref().is_none_or(|set| set.contains(pu.id)),
                max_khz: kind.clone().find_map(|kind| kind.max_khz),
                capacity: kind.clone().find_map(|kind| kind.capacity),
            }
        })
        .collect();
    if !pus.iter().any(|pu| pu.allowed) {
        return Err(root.fault("no PU in it is both online and in allowed_cpuset"));
    }
    let model = model(topology);
    Ok(Description { model, nodes, pus, caches: found.caches, numa, offline, notes })
}

/// The nodes, ascending, without distances, and whether the system has any.
fn nodes(
    root: Element,
    found: &Walk,
    sets: &Sets,
    notes: &mut Vec<String>,
) -> Result<(Vec<Node>, bool), Error> {
    if found.nodes.is_empty() {
        notes.push("no NUMANode: the machine is taken as one memory node".into());
        return Ok((vec![describe::node(0, root.number("local_memory")?)], false));
    }
    // Nothing is written for no memory, and by those who do not know.
    let told = found.nodes.iter().any(|node| node.memory.is_some());
    let mut nodes: Vec<Node> = found
        .nodes
        .iter()
        .map(|node| describe::node(node.id, node.memory.or(told.then_some(0))))
        .collect();
    for node in &mut nodes {
        let allowed = sets.allowed_nodes.as_ref();
        node.memory_allowed = allowed.is_none_or(|set| set.contains(node.id.0));
    }
    // Nodes that exist and may not be used are in this set alone.
    let described: BTreeSet<u32> = found.nodes.iter().map(|node| node.id).collect();
    let complete = sets.complete_nodes.as_ref().and_then(Bitmap::ids).unwrap_or_default();
    for id in complete.into_iter().filter(|id| !described.contains(id)) {
        if id > MAX_ID {
            return Err(root.fault(format!("complete_nodeset has node {id}, above {MAX_ID}")));
        }
        nodes.push(Node { memory_allowed: false, ..describe::node(id, None) });
    }
    let (count, most) = (nodes.len(), describe::MOST_NODES);
    if count > most {
        return Err(root.fault(format!("it has {count} memory nodes, more than {most}")));
    }
    nodes.sort_by_key(|node| node.id);
    Ok((nodes, true))
}

/// The node of every CPU.
fn homes(found: &Walk, nodes: &[Node], notes: &mut Vec<String>) -> BTreeMap<u32, NodeId> {
    let mut homes: Vec<Option<NodeId>> = vec![None; found.pus.len()];
    let mut by_size: Vec<&FoundNode> = found.nodes.iter().collect();
    by_size.sort_by_key(|node| (node.pus.as_ref().map_or(0, Range::len), node.id));
    for node in by_size.into_iter().rev() {
        homes[node.pus.clone().unwrap_or_default()].fill(Some(NodeId(node.id)));
    }
    let mut lost = vec![];
    let home = |(pu, home): (&FoundPu, Option<NodeId>)| {
        // A CPU of a node that may not be used has no such object around it.
        let hint = || pu.node.map(NodeId).filter(|id| nodes.iter().any(|n| n.id == *id));
        let home = home.or_else(hint).unwrap_or_else(|| {
            lost.push(CpuId(pu.id));
            nodes[0].id
        });
        (pu.id, home)
    };
    let homes = found.pus.iter().zip(homes).map(home).collect();
    if nodes.len() > 1 && !lost.is_empty() {
        let cpus: CpuList = lost.into_iter().collect();
        notes.push(format!("cpus {cpus}: in no NUMANode, taken as part of the first"));
    }
    homes
}

/// The CPUs that exist and are not described.
fn hidden(root: Element, found: &Walk, sets: &Sets) -> Result<CpuList, Error> {
    let described: BTreeSet<u32> = found.pus.iter().map(|pu| pu.id).collect();
    let complete = sets.complete_cpus.as_ref().and_then(Bitmap::ids).unwrap_or_default();
    let hidden: Vec<u32> = complete.into_iter().filter(|id| !described.contains(id)).collect();
    match hidden.last() {
        Some(id) if *id > MAX_ID => {
            Err(root.fault(format!("complete_cpuset has cpu {id}, above {MAX_ID}")))
        }
        _ => Ok(hidden.into_iter().map(CpuId).collect()),
    }
}

/// CPUs that are alike, in machines with several kinds.
struct Kind {
    cpus: Bitmap,
    max_khz: Option<u64>,
    capacity: Option<u32>,
}

fn kinds(topology: Element) -> Result<Vec<Kind>, Error> {
    let kind = |element: Element| {
        let number = |name| match element.info(name).map(|text| text.trim().parse::<u32>()) {
            None => Ok(None),
            Some(Ok(n)) => Ok(Some(n)),
            Some(Err(_)) => Err(element.fault(format!("<info> {name} is no number that fits"))),
        };
        Ok(Kind {
            cpus: element.set("cpuset")?.unwrap_or_default(),
            max_khz: number("FrequencyMaxMHz")?.map(|mhz| u64::from(mhz) * 1000),
            capacity: number("LinuxCapacity")?,
        })
    };
    topology.children("cpukind").map(kind).collect()
}

/// The numbers given, where all are and no two in a scope are equal, otherwise positions.
fn numbers(given: impl Iterator<Item = (usize, Option<u32>)> + Clone) -> Vec<u32> {
    let mut seen = BTreeSet::new();
    let distinct = given.clone().all(|(scope, n)| n.is_some() && seen.insert((scope, n)));
    (0..).zip(given).map(|(i, (_, n))| n.filter(|_| distinct).unwrap_or(i)).collect()
}

/// The CPU's name, which stands with the first package or the machine.
fn model(topology: Element) -> Option<String> {
    let info = |name| topology.descendants().find_map(|element| element.info(name));
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let name = info("CPUModel").map(words).filter(|name| !name.is_empty());
    name.or_else(|| Some(sysfs::arm_model(info("CPUImplementer")?, info("CPUPart")?)))
}
