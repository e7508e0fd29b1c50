//! How much memory of a node can be had.
//!
//! The kernel computes `MemAvailable` for the machine as a whole (`si_mem_available`). This is the
//! same sum over one node's numbers, from `nodeN/meminfo` and the watermarks in `/proc/zoneinfo`:
//! free pages above the reserves, and all of page cache and reclaimable slab except the half of
//! each, or the low watermark, whichever is less. Of a machine with one node the kernel's own
//! number is taken.

use crate::files::{MAX_BYTES, MAX_ZONEINFO, field_kib, read_bounded};
use crate::{Node, NodeId};
use std::path::Path;

/// Memory of the node that can be had, in bytes; `numa` is false for a made-up node, `only` true
/// for one without others. Files are read afresh; without watermarks (a container may hide them)
/// nothing is held back.
pub(crate) fn available(root: &Path, node: &Node, numa: bool, only: bool) -> Option<u64> {
    let read = |path: &str, max| read_bounded(&root.join(path), max).ok().map(|(text, _)| text);
    let machine = || field_kib(&read("proc/meminfo", MAX_BYTES)?, "MemAvailable:");
    let own = || {
        let meminfo = format!("sys/devices/system/node/node{}/meminfo", node.id);
        let zones = read("proc/zoneinfo", MAX_ZONEINFO).map(|text| zones(&text, node.id));
        estimate(&read(&meminfo, MAX_BYTES)?, zones.unwrap_or_default())
    };
    let bytes = match (numa, only) {
        (false, _) => machine()?,
        (true, true) => machine().or_else(own)?,
        (true, false) => own()?,
    };
    // A kernel under a balloon driver was seen to count more in `/proc/meminfo` than the node has.
    Some(if node.memory_bytes == 0 { bytes } else { bytes.min(node.memory_bytes) })
}

/// What a node's zones add up to, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Zones {
    /// All pages.
    managed: u64,
    /// Not given to processes.
    held: u64,
    /// Low watermarks.
    low: u64,
}

fn estimate(meminfo: &str, zones: Zones) -> Option<u64> {
    let field = |key: &str| field_kib(meminfo, key);
    let free = field("MemFree:")?;
    let cache =
        field("Active(file):").unwrap_or(0).saturating_add(field("Inactive(file):").unwrap_or(0));
    // The second is the older kernels' name for most of the first.
    let slab = field("KReclaimable:").or_else(|| field("SReclaimable:")).unwrap_or(0);
    // Zones count pages of whatever size; both totals are of the same memory.
    let page = field("MemTotal:").unwrap_or(0).checked_div(zones.managed).unwrap_or(0);
    let (held, low) = (zones.held.saturating_mul(page), zones.low.saturating_mul(page));
    let spare = |bytes: u64| bytes - (bytes / 2).min(low);
    Some(free.saturating_sub(held).saturating_add(spare(cache)).saturating_add(spare(slab)))
}

/// Adds up the zones of a node: each has a paragraph that begins with `Node 0, zone   Normal`.
fn zones(zoneinfo: &str, node: NodeId) -> Zones {
    let ours = format!("Node {node}, zone");
    let mut sum = Zones::default();
    let mut inside = false;
    for line in zoneinfo.lines() {
        if line.starts_with("Node ") {
            inside = line.starts_with(&ours);
        } else if inside {
            let line = line.trim_start();
            let number = |key: &str| line.strip_prefix(key)?.trim().parse::<u64>().ok();
            let add = |to: &mut u64, pages: u64| *to = to.saturating_add(pages);
            if let Some(pages) = number("managed ") {
                add(&mut sum.managed, pages);
            } else if let Some(pages) = number("low ") {
                add(&mut sum.low, pages);
            } else if let Some(pages) = number("high ") {
                add(&mut sum.held, pages);
            } else if let Some(list) = line.strip_prefix("protection: (") {
                // What this zone keeps from requests that higher zones could serve.
                let pages = list.trim_end_matches(')').split(',').map(|n| n.trim().parse());
                add(&mut sum.held, pages.flatten().max().unwrap_or(0));
            }
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    const ZONES: &str = "\
Node 0, zone      DMA
  per-node stats
      nr_high 99
  pages free     3840
        low      17
        high     20
        managed  1000
        protection: (0, 100, 500, 500)
  pagesets
    cpu: 0
              high:  5
Node 1, zone   Normal
        low      1000
        high     1500
        managed  2000
        protection: (0, 0, 0, 0)
Node 10, zone   Normal
        low      7
        high     8
";

    #[test]
    fn zones_are_added_up_by_node() {
        let of = |node| zones(ZONES, NodeId(node));
        assert_eq!(of(0), Zones { managed: 1000, held: 520, low: 17 });
        assert_eq!(of(1), Zones { managed: 2000, held: 1500, low: 1000 });
        assert_eq!(of(10), Zones { managed: 0, held: 8, low: 7 });
        assert_eq!(of(2), Zones::default());
    }

    #[test]
    fn cache_counts_but_for_what_keeps_the_system_alive() {
        // Pages of 10 KiB.
        let meminfo = "Node 1 MemTotal: 9000 kB\nNode 1 MemFree: 1000 kB\n\
            Node 1 Active(file): 300 kB\nNode 1 Inactive(file): 100 kB\nNode 1 FilePages: 7000 kB\n\
            Node 1 KReclaimable: 50 kB\nNode 1 SReclaimable: 40 kB\n";
        let of = |held: u64, low: u64| {
            estimate(meminfo, Zones { managed: 900, held, low }).map(|n| n >> 10)
        };
        assert_eq!(of(0, 0), Some(1000 + 400 + 50));
        // The watermark is less than half of the cache, but more than half of the slab.
        assert_eq!(of(20, 3), Some(800 + 370 + 25));
        assert_eq!(of(500, 500), Some(200 + 25));
        assert_eq!(estimate(meminfo, Zones::default()), Some(1450 << 10));
        assert_eq!(estimate("Node 0 MemTotal: 1 kB", Zones::default()), None);
    }
}
