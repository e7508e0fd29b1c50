//! Through the objects of a document, from the machine down to its CPUs.
//!
//! CPUs are met in the order of the document, so those below an object are a range of the list.

use super::distances::{self, Distances};
use super::element::Element;
use crate::describe::Place;
use crate::{Error, FirstCache, MAX_ID};
use std::collections::BTreeSet;
use std::ops::Range;

/// Deepest nesting of objects; real documents have some 15.
const MAX_DEPTH: usize = 64;

/// Kinds of `Group` in which CPUs share an L2 or an interconnect stop: Intel's modules and tiles,
/// AMD's compute units, the clusters of Linux.
const CLUSTERS: [u32; 4] = [102, 103, 120, 222];
/// hwloc's number for caches of instructions alone.
const INSTRUCTIONS: u32 = 2;

/// The objects around one: positions in the lists of [`Walk`].
#[derive(Clone, Copy, Default)]
pub(super) struct Around {
    pub(super) package: Option<usize>,
    pub(super) die: Option<usize>,
    pub(super) cluster: Option<usize>,
    pub(super) place: Place,
}

pub(super) struct FoundPu {
    pub(super) id: u32,
    pub(super) around: Around,
    /// The only node the CPU's own sets name.
    pub(super) node: Option<u32>,
}

pub(super) struct FoundNode {
    pub(super) id: u32,
    /// Bytes.
    pub(super) memory: Option<u64>,
    /// The CPUs it is local to; `None` until that is known.
    pub(super) pus: Option<Range<usize>>,
    /// Objects around it.
    depth: usize,
}

/// What was found so far.
pub(super) struct Walk {
    version: u32,
    pub(super) pus: Vec<FoundPu>,
    pub(super) nodes: Vec<FoundNode>,
    /// The system's numbers, if it gave some.
    pub(super) packages: Vec<Option<u32>>,
    /// With the package's position.
    pub(super) dies: Vec<(usize, Option<u32>)>,
    pub(super) clusters: Vec<(usize, Option<u32>)>,
    /// Level and size in bytes.
    pub(super) caches: Vec<(u8, u64)>,
    pub(super) distances: Distances,
    cores: usize,
    seen_pus: BTreeSet<u32>,
    seen_nodes: BTreeSet<u32>,
}

impl Walk {
    pub(super) fn new(version: u32) -> Self {
        Self {
            version,
            pus: vec![],
            nodes: vec![],
            packages: vec![],
            dies: vec![],
            clusters: vec![],
            caches: vec![],
            distances: Distances::new(),
            cores: 0,
            seen_pus: BTreeSet::new(),
            seen_nodes: BTreeSet::new(),
        }
    }

    /// Takes in an object and all within it.
    pub(super) fn object(
        &mut self,
        element: Element,
        mut around: Around,
        depth: usize,
    ) -> Result<(), Error> {
        if depth == MAX_DEPTH {
            return Err(element.fault(format!("it is within more than {MAX_DEPTH} objects")));
        }
        let kind = element.attr("type").ok_or_else(|| element.fault("it has no type"))?;
        let scope = around.package.unwrap_or(usize::MAX);
        match kind {
            // Devices hold no CPUs.
            "Bridge" | "PCIDev" | "OSDev" => return Ok(()),
            "System" => {
                return Err(element.fault("several machines as one; export one of them alone"));
            }
            "Package" | "Socket" => {
                around.package = Some(push(&mut self.packages, element.os_index()?));
            }
            "Die" => around.die = Some(push(&mut self.dies, (scope, element.os_index()?))),
            "Group" if is_cluster(element)? => {
                around.cluster = Some(push(&mut self.clusters, (scope, element.os_index()?)));
            }
            "Core" => {
                around.place.core = Some(self.cores);
                self.cores += 1;
            }
            "L1Cache" => around.place.l1 = first_cache(element)?,
            "L2Cache" => around.place.l2 = Some(self.cache(2, element)?),
            "L3Cache" => around.place.l3 = Some(self.cache(3, element)?),
            "Cache" if element.number("cache_type")? != Some(INSTRUCTIONS) => {
                match element.number("depth")? {
                    Some(1u8) => around.place.l1 = first_cache(element)?,
                    Some(2) => around.place.l2 = Some(self.cache(2, element)?),
                    Some(3) => around.place.l3 = Some(self.cache(3, element)?),
                    _ => {}
                }
            }
            _ => {}
        }

        let (first_pu, first_node) = (self.pus.len(), self.nodes.len());
        if kind == "PU" {
            self.pu(element, around)?;
        } else if kind == "NUMANode" {
            self.node(element, depth)?;
        }
        for child in element.children("object") {
            self.object(child, around, depth + 1)?;
        }
        let below = first_pu..self.pus.len();
        // A node that holds CPUs has these. One that hangs beside the tree has those of the object
        // it hangs on, which is not a cache of memory; that of hwloc 1 without CPUs has none.
        let own = kind == "NUMANode" && (self.version < 2 || !below.is_empty());
        if own || !matches!(kind, "NUMANode" | "MemCache") {
            for node in self.nodes[first_node..].iter_mut().filter(|node| node.pus.is_none()) {
                node.pus = Some(below.clone());
            }
        }
        let nodes = self.nodes[first_node..].iter().map(|n| (n.depth - depth, n.id));
        let mut known = distances::within(element, &nodes.collect::<Vec<_>>())?;
        self.distances.append(&mut known);
        Ok(())
    }

    fn pu(&mut self, element: Element, around: Around) -> Result<(), Error> {
        let id = number(element)?;
        if !self.seen_pus.insert(id) {
            return Err(element.fault(format!("there is another PU with os_index {id}")));
        }
        let nodes = element.set("complete_nodeset")?.and_then(|set| set.ids());
        let node = nodes.filter(|ids| ids.len() == 1).map(|ids| ids[0]);
        self.pus.push(FoundPu { id, around, node });
        Ok(())
    }

    fn node(&mut self, element: Element, depth: usize) -> Result<(), Error> {
        let id = number(element)?;
        if !self.seen_nodes.insert(id) {
            return Err(element.fault(format!("there is another NUMANode with os_index {id}")));
        }
        let memory = element.number("local_memory")?;
        self.nodes.push(FoundNode { id, memory, pus: None, depth });
        Ok(())
    }

    fn cache(&mut self, level: u8, element: Element) -> Result<usize, Error> {
        let size = element.number("cache_size")?.unwrap_or(0);
        Ok(push(&mut self.caches, (level, size)))
    }
}

/// A cache for data, where its size is told.
fn first_cache(element: Element) -> Result<Option<FirstCache>, Error> {
    let size = element.number("cache_size")?.filter(|&size| size > 0);
    let line_bytes = element.number("cache_linesize")?.filter(|&line| line > 0);
    Ok(size.map(|size_bytes| FirstCache { size_bytes, line_bytes }))
}

fn push<T>(list: &mut Vec<T>, item: T) -> usize {
    list.push(item);
    list.len() - 1
}

/// The number of a CPU or a node, which must have one.
fn number(element: Element) -> Result<u32, Error> {
    match element.os_index()? {
        Some(id) if id <= MAX_ID => Ok(id),
        Some(id) => Err(element.fault(format!("os_index {id} is above the highest id, {MAX_ID}"))),
        None => Err(element.fault("it has no os_index")),
    }
}

fn is_cluster(group: Element) -> Result<bool, Error> {
    let by_kind = group.number("kind")?.is_some_and(|kind: u32| CLUSTERS.contains(&kind));
    Ok(by_kind || group.attr("subtype") == Some("Cluster"))
}
