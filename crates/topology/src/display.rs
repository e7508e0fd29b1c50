//! How a machine prints: an overview for people, in plain text.

use crate::idlist::format_ids;
use crate::{Cpu, CpuId, CpuList, Machine, Node, NodeList};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_header(f)?;
        writeln!(f)?;
        for node in self.nodes() {
            self.fmt_node(f, node)?;
        }
        if self.nodes().len() > 1 {
            writeln!(f)?;
            self.fmt_distances(f)?;
        }
        if !self.notes().is_empty() {
            writeln!(f, "\nnotes")?;
            self.notes().iter().try_for_each(|note| writeln!(f, "  - {note}"))?;
        }
        Ok(())
    }
}

impl Machine {
    fn fmt_header(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.model().unwrap_or("unknown CPU"))?;
        let memory = match self.nodes().iter().map(|n| n.memory_bytes).sum() {
            0 => "memory unknown".to_owned(),
            total => format!("{} memory", amount(total)),
        };
        let nodes = count(self.nodes().len(), "memory node");
        writeln!(f, "  machine  {}, {nodes}, {memory}", shape(self.all_cpus()))?;

        let restriction = self.limits.restriction.as_ref();
        let allowed = match restriction {
            Some(restriction) => restriction.before.clone(),
            None => self.cpus().iter().map(|c| c.id).collect(),
        };
        let mut limits = vec![];
        if allowed.len() < self.all_cpus().len() {
            limits.push(format!("{} allows cpus {allowed}", self.confined_by()));
        }
        let denied = |n: &&Node| !n.memory_allowed && !self.left_out(n);
        let denied: NodeList = self.nodes().iter().filter(denied).map(|n| n.id).collect();
        if !denied.is_empty() {
            let plural = if denied.len() == 1 { "" } else { "s" };
            limits.push(format!("memory of node{plural} {denied} not allowed"));
        }
        if let Some(quota) = self.quota() {
            limits.push(format!("quota of {} cpus", two_decimals(quota)));
        }
        if let Some(bytes) = self.memory_limit() {
            limits.push(format!("memory limit of {}", amount(bytes)));
        }
        if let Some(restriction) = restriction {
            let list = |what: &str, list: &dyn fmt::Display| format!("{what} {list}");
            let nodes = restriction.nodes.as_ref().map(|nodes| list("nodes", nodes));
            let cpus = restriction.cpus.as_ref().map(|cpus| list("cpus", cpus));
            let asked = [nodes, cpus].into_iter().flatten().collect::<Vec<_>>().join(" and ");
            limits.push(format!("as asked only {asked}"));
        }
        let limits = if limits.is_empty() { "none".to_owned() } else { limits.join("; ") };
        writeln!(f, "  limits   {limits}")?;
        writeln!(
            f,
            "  usable   {} on {}",
            count(self.usable_cores(), "core"),
            count(self.usable_nodes().count(), "node")
        )?;
        let Some(l1) = self.first_cache() else { return Ok(()) };
        let line = l1.line_bytes.map_or(String::new(), |line| format!(", lines of {line} B"));
        writeln!(f, "  caches   L1 {} of data{line}", amount(l1.size_bytes))
    }

    /// Whether the user chose other nodes than this one.
    fn left_out(&self, node: &Node) -> bool {
        let chosen = self.limits.restriction.as_ref().and_then(|r| r.nodes.as_ref());
        chosen.is_some_and(|nodes| !nodes.contains(node.id))
    }

    /// What keeps this process off the other CPUs. The kernel keeps the mask within the cpuset,
    /// so when the two agree the cpuset is the cause.
    pub(crate) fn confined_by(&self) -> &'static str {
        let Some(cpuset) = &self.limits.cpuset else { return "affinity mask" };
        let allowed = match &self.limits.restriction {
            Some(restriction) => &restriction.before,
            None => &self.cpus().iter().map(|c| c.id).collect(),
        };
        let online: CpuList = self.all_cpus().iter().map(|c| c.id).collect();
        let within = |cpus: &CpuList| cpus.iter().filter(|&id| cpuset.contains(id)).count();
        match within(&online) {
            n if n == online.len() || within(allowed) == 0 => "affinity mask",
            n if n == allowed.len() => "cpuset",
            _ => "affinity mask within the cpuset",
        }
    }

    fn fmt_node(&self, f: &mut fmt::Formatter<'_>, node: &Node) -> fmt::Result {
        let memory = match (node.has_memory, node.memory_bytes) {
            (false, _) => "no memory".to_owned(),
            (true, 0) => "memory unknown".to_owned(),
            (true, n) => match node.available_bytes {
                Some(available) => format!("{} ({} available)", amount(n), amount(available)),
                // A description knows no more than how much there is.
                None if self.root.is_none() => amount(n),
                None => format!("{} ({} free)", amount(n), amount(node.free_bytes)),
            },
        };
        let left_out = self.left_out(node);
        let forbidden = if node.memory_allowed || left_out { "" } else { ", not allowed" };
        let cpus: Vec<&Cpu> = self.cpus().iter().filter(|c| c.node == node.id).collect();
        let place = if left_out {
            "left out".to_owned()
        } else if cpus.is_empty() {
            let online = self.all_cpus().iter().any(|c| c.node == node.id);
            if online { "no allowed cpus".to_owned() } else { "no cpus".to_owned() }
        } else {
            let cores = cpus.iter().map(|c| c.core).collect::<BTreeSet<_>>().len();
            format!("{}, cpus {}", count(cores, "core"), ranges(cpus.iter().map(|c| c.id)))
        };
        writeln!(f, "  node {:<3} {memory}{forbidden}; {place}", node.id)?;

        let mut second: BTreeMap<u64, usize> = BTreeMap::new();
        for id in cpus.iter().filter_map(|c| c.l2).collect::<BTreeSet<_>>() {
            let Some(cache) = self.cache(id) else { continue };
            *second.entry(cache.size_bytes).or_default() += 1;
        }
        for (size, caches) in second {
            writeln!(f, "{:11}L2 {caches} × {}", "", size_of_cache(size))?;
        }
        // L3 caches of one size go on one line; a cache may reach beyond the node.
        let mut by_size: BTreeMap<u64, Vec<String>> = BTreeMap::new();
        for id in cpus.iter().filter_map(|c| c.l3).collect::<BTreeSet<_>>() {
            let Some(cache) = self.cache(id) else { continue };
            let own = cpus.iter().filter(|c| c.l3 == Some(id)).map(|c| c.id);
            by_size.entry(cache.size_bytes).or_default().push(ranges(own));
        }
        for (size, domains) in by_size {
            let head = format!("{:11}L3 {} × {}: ", "", domains.len(), size_of_cache(size));
            writeln!(f, "{}", wrapped(head, &domains))?;
        }
        Ok(())
    }

    fn fmt_distances(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "  distance")?;
        self.nodes().iter().try_for_each(|to| write!(f, "{:>5}", to.id))?;
        writeln!(f)?;
        for from in self.nodes() {
            write!(f, "  {:>8}", from.id)?;
            from.distances.iter().try_for_each(|(_, d)| write!(f, "{d:>5}"))?;
            writeln!(f)?;
        }
        Ok(())
    }
}

/// `2 sockets × 16 cores × 2 threads = 64 cpus`, or the plain numbers of an uneven machine.
fn shape(cpus: &[Cpu]) -> String {
    let packages = cpus.iter().map(|c| c.package).collect::<BTreeSet<_>>().len();
    let cores = cpus.iter().map(|c| c.core).collect::<BTreeSet<_>>().len();
    let mut per_package: BTreeMap<u32, BTreeSet<_>> = BTreeMap::new();
    let mut per_core: BTreeMap<_, usize> = BTreeMap::new();
    for cpu in cpus {
        per_package.entry(cpu.package).or_default().insert(cpu.core);
        *per_core.entry(cpu.core).or_default() += 1;
    }
    let even = per_package.values().all(|c| c.len() * packages == cores)
        && per_core.values().all(|n| n * cores == cpus.len());
    let sockets = count(packages, "socket");
    if !even {
        return format!("{sockets}, {}, {}", count(cores, "core"), count(cpus.len(), "cpu"));
    }
    let (cores, threads) = (cores / packages, cpus.len() / cores);
    format!(
        "{sockets} × {} × {} = {}",
        count(cores, "core"),
        count(threads, "thread"),
        count(cpus.len(), "cpu")
    )
}

fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

fn size_of_cache(bytes: u64) -> String {
    if bytes == 0 { "unknown size".to_owned() } else { amount(bytes) }
}

fn ranges(cpus: impl Iterator<Item = CpuId>) -> String {
    format_ids(cpus.map(|c| c.0))
}

/// The items after the head, separated by bars, on lines no longer than a terminal's; lines
/// after the first are indented by the head's width.
fn wrapped(head: String, items: &[String]) -> String {
    const WIDTH: usize = 96;
    let indent = head.chars().count();
    let mut text = head;
    let mut column = indent;
    for (i, item) in items.iter().enumerate() {
        let width = item.chars().count() + 3;
        if i > 0 && column + width > WIDTH {
            text.push_str(&format!("\n{:indent$}", ""));
            column = indent;
        } else if i > 0 {
            text.push_str(" | ");
        }
        text.push_str(item);
        column += width;
    }
    text
}

/// `2.5`, `16`.
pub(crate) fn two_decimals(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

/// Bytes with a binary unit: `32 MiB`, `251.4 GiB`.
fn amount(bytes: u64) -> String {
    let units = [(1u64 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    let Some((unit, name)) = units.into_iter().find(|(unit, _)| bytes >= *unit) else {
        return format!("{bytes} B");
    };
    let value = format!("{:.1}", bytes as f64 / unit as f64);
    format!("{} {name}", value.strip_suffix(".0").unwrap_or(&value))
}
