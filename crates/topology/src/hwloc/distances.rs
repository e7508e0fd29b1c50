//! Distances between memory nodes, in the two forms that documents have.
//!
//! Since hwloc 2 they stand beside the objects and name nodes by number:
//! `<distances2 type="NUMANode" nbobjs="2" kind="5" indexing="os">` with `<indexes>` and
//! `<u64values>`. Before, they stood within the object that holds the nodes, as multiples of a
//! base, nodes being those so many levels below, in order:
//! `<distances nbobjs="2" relative_depth="1" latency_base="10.0">` with one `<latency>` each.

use super::element::Element;
use crate::{Error, NodeId};
use std::collections::BTreeMap;
use std::str::FromStr;

pub(super) type Distances = BTreeMap<(NodeId, NodeId), u32>;

/// The bit of `kind` that says that values grow with the time an access takes.
const MEANS_LATENCY: u32 = 1 << 2;
/// The object numbering that names nodes by the system's numbers.
const BY_NUMBER: &str = "os";

/// The distances between nodes beside the objects of `topology`; of several matrices the first.
pub(super) fn beside(topology: Element) -> Result<Distances, Error> {
    for element in topology.children("distances2") {
        let latency = element.number::<u32>("kind")?.unwrap_or(0) & MEANS_LATENCY != 0;
        // By other numbers than the system's only objects are numbered that have none of it.
        let by_number = element.attr("indexing") == Some(BY_NUMBER);
        if element.attr("type") != Some("NUMANode") || !latency || !by_number {
            continue;
        }
        let n = length(element)?;
        let nodes = numbers::<u32>(element, "indexes", n)?;
        let values = numbers::<u64>(element, "u64values", n * n)?;
        let values = values.into_iter().map(|value| {
            let fault = || element.fault(format!("<u64values>: {value} is no distance"));
            u32::try_from(value).map_err(|_| fault())
        });
        return Ok(matrix(&nodes, &values.collect::<Result<Vec<_>, _>>()?));
    }
    Ok(Distances::new())
}

/// The distances that `object` itself holds, `below` being the nodes under it with their number
/// of levels below it.
pub(super) fn within(object: Element, below: &[(usize, u32)]) -> Result<Distances, Error> {
    for element in object.children("distances") {
        let n = length(element)?;
        let depth = element.number::<usize>("relative_depth")?;
        let at_depth = below.iter().filter(|&&(levels, _)| Some(levels) == depth);
        let nodes: Vec<u32> = at_depth.map(|&(_, node)| node).collect();
        if nodes.len() != n {
            // Between objects of another kind.
            continue;
        }
        let base = element.number::<f64>("latency_base")?.unwrap_or(1.0);
        let mut values = vec![];
        for latency in element.children("latency") {
            let value = latency.number::<f64>("value")?.unwrap_or(f64::NAN) * base;
            if !(0.0..=f64::from(u32::MAX)).contains(&value) {
                return Err(latency.fault("value times latency_base is no distance"));
            }
            values.push(value.round() as u32);
        }
        if values.len() != n * n {
            let found = values.len();
            return Err(element.fault(format!("{found} <latency> for {n} × {n} nodes")));
        }
        return Ok(matrix(&nodes, &values));
    }
    Ok(Distances::new())
}

fn length(element: Element) -> Result<usize, Error> {
    let n = element.number::<usize>("nbobjs")?.filter(|n| (1..=crate::MAX_ID as usize).contains(n));
    n.ok_or_else(|| element.fault("nbobjs is missing, zero or too large"))
}

/// The numbers within the elements of this name, which may share them out.
fn numbers<T: FromStr>(element: Element, tag: &'static str, n: usize) -> Result<Vec<T>, Error> {
    let words = element.children(tag).flat_map(|e| e.text().split_whitespace());
    let numbers: Vec<T> = words.map_while(|word| word.parse().ok()).collect();
    if numbers.len() != n {
        let found = numbers.len();
        return Err(element.fault(format!("<{tag}> has {found} numbers, not {n}")));
    }
    Ok(numbers)
}

fn matrix(nodes: &[u32], values: &[u32]) -> Distances {
    let pairs = nodes.iter().flat_map(|&from| nodes.iter().map(move |&to| (from, to)));
    pairs.map(|(from, to)| (NodeId(from), NodeId(to))).zip(values.iter().copied()).collect()
}
