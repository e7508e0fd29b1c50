//! The counters and their report.

use crate::args::Config;
use crate::cache::LINE;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Most nodes.
pub(crate) const NODES: usize = 16;
/// Index of memory that belongs to no node: devices, holes.
const NOWHERE: usize = NODES;

/// Counts of one kind of access.
const LOADS: usize = 0;
const STORES: usize = 1;
const LOAD_BYTES: usize = 2;
const STORE_BYTES: usize = 3;
pub(crate) const FILLS: usize = 4;
const KINDS: usize = 5;

pub(crate) type Counts = [[u64; KINDS]; NODES + 1];

/// One access.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    pub(crate) node: Option<usize>,
    pub(crate) store: bool,
    pub(crate) bytes: u64,
    /// The modelled cache had to fetch the line.
    pub(crate) fill: bool,
}

/// The counters of one processor, on cache lines of their own. Only its own thread adds to them.
#[repr(align(128))]
#[derive(Default)]
pub(crate) struct Tally([[AtomicU64; KINDS]; NODES + 1]);

impl Tally {
    /// Counts an access.
    pub(crate) fn add(&self, access: Access) {
        let of_node = &self.0[access.node.unwrap_or(NOWHERE)];
        // No second writer's addition can be lost.
        let add = |kind: usize, n: u64| {
            of_node[kind].store(of_node[kind].load(Relaxed) + n, Relaxed);
        };
        let (count, bytes) = if access.store { (STORES, STORE_BYTES) } else { (LOADS, LOAD_BYTES) };
        add(count, 1);
        add(bytes, access.bytes);
        if access.fill {
            add(FILLS, 1);
        }
    }

    /// The counters as they stand.
    pub(crate) fn read(&self) -> Counts {
        let mut counts = Counts::default();
        for (to, from) in counts.iter_mut().zip(&self.0) {
            for (to, from) in to.iter_mut().zip(from) {
                *to = from.load(Relaxed);
            }
        }
        counts
    }
}

/// Lines of `key value` pairs: one for each (processor, node) with accesses, then the sums.
pub(crate) fn report(config: &Config, since: &[Counts], now: &[Counts]) -> String {
    let mut text = String::new();
    let [mut local, mut remote, mut nowhere] = [[0; KINDS]; 3];
    for (cpu, (since, now)) in since.iter().zip(now).enumerate() {
        let home = config.home(cpu);
        for node in 0..=NODES {
            let mut counts = now[node];
            counts.iter_mut().zip(since[node]).for_each(|(n, s)| *n -= s);
            let [loads, stores, load_bytes, store_bytes, fills] = counts;
            if loads + stores == 0 {
                continue;
            }
            let (side, sum) = match node {
                NOWHERE => ("nowhere", &mut nowhere),
                _ if Some(node) == home => ("local", &mut local),
                _ => ("remote", &mut remote),
            };
            sum.iter_mut().zip(counts).for_each(|(s, n)| *s += n);
            let _ = writeln!(
                text,
                "numacount cpu {cpu} node {node} side {side} loads {loads} stores {stores} \
                 load_bytes {load_bytes} store_bytes {store_bytes} fills {fills}"
            );
        }
    }
    for (side, sum) in [("local", local), ("remote", remote), ("nowhere", nowhere)] {
        let (accesses, bytes) = (sum[LOADS] + sum[STORES], sum[LOAD_BYTES] + sum[STORE_BYTES]);
        let fill_bytes = sum[FILLS] * LINE;
        let _ = writeln!(
            text,
            "numacount total {side} accesses {accesses} bytes {bytes} fill_bytes {fill_bytes}"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accesses_are_local_remote_or_nowhere() {
        let config = Config::parse("n0=0-0x1000,n1=0x1000-0x2000,c1=0".split(',')).unwrap();
        let tally = Tally::default();
        let access = |node, store, bytes| Access { node, store, bytes, fill: store };
        tally.add(access(Some(1), false, 32));
        let since = [tally.read()];
        tally.add(access(Some(1), false, 8));
        tally.add(access(Some(0), true, 4));
        tally.add(access(None, false, 1));
        let text = report(&config, &since, &[tally.read()]);
        assert_eq!(
            text,
            "\
numacount cpu 0 node 0 side remote loads 0 stores 1 load_bytes 0 store_bytes 4 fills 1
numacount cpu 0 node 1 side local loads 1 stores 0 load_bytes 8 store_bytes 0 fills 0
numacount cpu 0 node 16 side nowhere loads 1 stores 0 load_bytes 1 store_bytes 0 fills 0
numacount total local accesses 1 bytes 8 fill_bytes 0
numacount total remote accesses 1 bytes 4 fill_bytes 64
numacount total nowhere accesses 1 bytes 1 fill_bytes 0
"
        );
    }
}
