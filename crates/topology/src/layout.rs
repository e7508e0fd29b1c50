//! From a machine to groups of CPUs: which threads of a pool run where.
//!
//! One group per memory node is the default; its threads run on the node's own cores. The order
//! of a group's CPUs is an order of preference, so that a prefix of it is the right choice for
//! fewer threads: cores beside the memory before cores that only have it as their nearest, one
//! CPU per physical core before second SMT siblings, and one core of each L3 domain in turn, so
//! that any prefix uses all the caches and their links evenly.
//!
//! More groups than nodes gives *virtual nodes*: several groups share a node's CPUs and memory.
//! That is how multi-node code runs on a small machine; it is no faster.
//!
//! Limits: all cores of a node count alike; slower cores of hybrid machines are not avoided.

use crate::display::two_decimals;
use crate::idlist::MAX_ID;
use crate::{CacheId, CoreId, CpuId, CpuList, Error, Machine, Node, NodeId};
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Most threads or groups: as many as there can be CPUs.
const MAX_THREADS: usize = MAX_ID as usize + 1;
/// Virtual nodes at most: each has its own copy of what all nodes need, so that a thousand would load for hours.
const MAX_VIRTUAL: usize = 64;

/// Groups of CPUs for a thread pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Layout {
    /// At least one. Groups on the same node are neighbours; nodes ascend.
    pub groups: Vec<Group>,
    /// What the user should know about this layout, such as threads sharing a CPU.
    pub notes: Vec<String>,
}

/// The threads of one compute group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Group {
    /// The node whose memory the group uses; `None`: nothing to bind to.
    pub node: Option<NodeId>,
    /// One CPU per thread, best first (see the module's text); a CPU repeats only when there are
    /// more threads than CPUs.
    pub cpus: Vec<CpuId>,
}

impl Group {
    /// A group that is bound to no node, with a thread for each of these CPUs.
    pub fn unbound(cpus: Vec<CpuId>) -> Group {
        Group { node: None, cpus }
    }
}

impl Layout {
    /// Threads over all groups.
    pub fn threads(&self) -> usize {
        self.groups.iter().map(|g| g.cpus.len()).sum()
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, group) in self.groups.iter().enumerate() {
            let place = group.node.map_or("unbound".to_owned(), |n| format!("node {n}"));
            let n = group.cpus.len();
            let cpus: CpuList = group.cpus.iter().copied().collect();
            let plural = if n == 1 { "" } else { "s" };
            writeln!(f, "group {i}: {place}, {n} thread{plural} on cpus {cpus}")?;
        }
        self.notes.iter().try_for_each(|note| writeln!(f, "note: {note}"))
    }
}

/// Chooses the CPUs for `threads` threads in `groups` groups.
///
/// `groups` defaults to the number of usable nodes (fewer when there are fewer threads), `threads`
/// to the usable cores of the chosen nodes. Threads are dealt in proportion to the nodes' cores.
/// With fewer groups than usable nodes the nodes nearest each other are taken (ties: lowest
/// number); with more, nodes are shared. CPUs whose own node has no memory to use join the
/// nearest usable node, where they come after its own.
/// Equal machines and arguments give equal layouts.
///
/// # Errors
/// [`Error::ZeroThreads`], [`Error::ZeroGroups`], [`Error::TooFewThreads`] when `threads` is less
/// than `groups`, [`Error::TooMany`] beyond 8192 threads, or more groups than 64 or the machine's nodes.
pub fn layout(
    machine: &Machine,
    groups: Option<usize>,
    threads: Option<usize>,
) -> Result<Layout, Error> {
    check(groups, threads, machine.nodes().len().max(MAX_VIRTUAL))?;
    let mut notes = vec![];
    let mut homes = homes(machine, &mut notes);

    let all_cores: usize = homes.iter().map(|h| h.cores.len()).sum();
    let groups = groups.unwrap_or_else(|| {
        let threads = threads.unwrap_or(machine.within_quota(all_cores));
        if threads < homes.len() {
            let nodes = homes.len();
            notes.push(format!("{threads} of {nodes} nodes are used: one for each thread"));
        }
        homes.len().min(threads)
    });
    if groups < homes.len() {
        let chosen = nearest(machine, &homes, groups);
        homes = chosen.into_iter().map(|i| std::mem::take(&mut homes[i])).collect();
    }

    let cores: usize = homes.iter().map(|h| h.cores.len()).sum();
    let threads = threads.unwrap_or_else(|| machine.within_quota(cores).max(groups));
    if let Some(quota) = machine.quota().filter(|&q| threads as f64 > q) {
        notes.push(format!(
            "{threads} threads with a quota of {} cpus: the kernel will pause them",
            two_decimals(quota)
        ));
    }

    let pools = pools(homes, groups);
    let counts = thread_counts(threads, &pools);
    let group = |(pool, n): (&Home, usize)| {
        let cpus = preference(&pool.cores).into_iter().cycle().take(n).collect();
        Group { node: pool.node, cpus }
    };
    let groups: Vec<Group> = pools.iter().zip(counts).map(group).collect();
    // More threads than CPUs, or virtual nodes that had to take the same core.
    let used: BTreeSet<CpuId> = groups.iter().flat_map(|g| g.cpus.iter().copied()).collect();
    if used.len() < threads {
        notes.push(format!(
            "{threads} threads on {} allowed cpus: cpus are shared, threads will wait for each \
             other",
            used.len()
        ));
    }
    note_remote(machine, &groups, &mut notes);
    Ok(Layout { groups, notes })
}

/// Notes the CPUs that work on another node's memory.
fn note_remote(machine: &Machine, groups: &[Group], notes: &mut Vec<String>) {
    let mut remote: BTreeMap<(NodeId, NodeId), Vec<CpuId>> = BTreeMap::new();
    for group in groups {
        let Some(home) = group.node else { continue };
        for cpu in group.cpus.iter().filter_map(|&id| machine.cpu(id)).filter(|c| c.node != home) {
            remote.entry((cpu.node, home)).or_default().push(cpu.id);
        }
    }
    for ((from, to), cpus) in remote {
        let cpus: CpuList = cpus.into_iter().collect();
        notes.push(format!(
            "cpus {cpus}: node {from} has no memory to use, so they work on node {to}'s"
        ));
    }
}

fn check(groups: Option<usize>, threads: Option<usize>, nodes: usize) -> Result<(), Error> {
    for (what, asked, limit) in [("threads", threads, MAX_THREADS), ("nodes", groups, nodes)] {
        if let Some(asked) = asked.filter(|&n| n > limit) {
            return Err(Error::TooMany { what, asked, limit });
        }
    }
    match (groups, threads) {
        (_, Some(0)) => Err(Error::ZeroThreads),
        (Some(0), _) => Err(Error::ZeroGroups),
        (Some(groups), Some(threads)) if threads < groups => {
            Err(Error::TooFewThreads { threads, groups })
        }
        _ => Ok(()),
    }
}

/// Where CPUs share the last cache that the machine tells of.
type Domain = (Option<CacheId>, u32, Option<u32>);

/// A physical core's allowed CPUs.
#[derive(Clone, Debug)]
pub(crate) struct Core {
    /// Of another node than its home's.
    remote: bool,
    domain: Domain,
    /// Ascending, at least one.
    pub(crate) cpus: Vec<CpuId>,
}

/// A node's memory and the cores that work on it: a node at first, later a group's part of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Home {
    pub(crate) node: Option<NodeId>,
    /// Sorted: own cores first, then by domain, then by CPU. At least one.
    pub(crate) cores: Vec<Core>,
}

/// The nodes that groups can live on, ascending, with all allowed cores dealt to them.
pub(crate) fn homes(machine: &Machine, notes: &mut Vec<String>) -> Vec<Home> {
    let mut ids: Vec<NodeId> = machine.usable_nodes().map(|n| n.id).collect();
    if ids.is_empty() {
        // CPUs and the memory they may use are on different nodes altogether.
        let memory: Vec<&Node> = machine.nodes().iter().filter(|n| n.memory_usable()).collect();
        let with_cpus = machine.nodes().iter().filter(|n| !n.cpus.is_empty());
        for node in with_cpus {
            ids.extend(nearest_to(machine, node.id, memory.iter().map(|n| n.id)));
        }
        ids.sort_unstable();
        ids.dedup();
    }
    let bind = machine.has_nodes() && !ids.is_empty();
    if ids.is_empty() {
        notes.push("no memory node is known to be usable: nothing is bound".to_owned());
        ids.push(machine.cpus()[0].node);
    }

    let mut cores: BTreeMap<(NodeId, CoreId), Core> = BTreeMap::new();
    for cpu in machine.cpus() {
        let home = nearest_to(machine, cpu.node, ids.iter().copied()).unwrap_or(ids[0]);
        let remote = home != cpu.node;
        let domain = match cpu.l3 {
            Some(l3) => (Some(l3), 0, None),
            None => (None, cpu.package, cpu.cluster.or(cpu.die)),
        };
        let core = cores.entry((home, cpu.core));
        core.or_insert(Core { remote, domain, cpus: vec![] }).cpus.push(cpu.id);
    }
    let home = |id: NodeId| {
        let own = cores.range((id, CoreId(0))..=(id, CoreId(u32::MAX)));
        let mut own: Vec<Core> = own.map(|(_, core)| core.clone()).collect();
        own.sort_by_key(|c| (c.remote, c.domain, c.cpus[0]));
        Home { node: bind.then_some(id), cores: own }
    };
    ids.iter().map(|&id| home(id)).filter(|h| !h.cores.is_empty()).collect()
}

/// The node of `to` with the smallest distance from `from`, itself included; ties: lowest.
fn nearest_to(machine: &Machine, from: NodeId, to: impl Iterator<Item = NodeId>) -> Option<NodeId> {
    to.min_by_key(|&id| (id != from, machine.distance(from, id).unwrap_or(u32::MAX), id))
}

/// Indices of the `k` homes with the smallest sum of mutual distances, ascending; of equal ones those
/// with the most cores, and then the lowest.
///
/// Grown from each home in turn by the one nearest to those taken. That finds the best set on
/// distances that are hierarchical, as those of packages and boards are, and costs n²·k where
/// trying every set costs 2ⁿ.
fn nearest(machine: &Machine, homes: &[Home], k: usize) -> Vec<usize> {
    let between = |a: usize, b: usize| match (homes[a].node, homes[b].node) {
        (Some(a), Some(b)) => {
            let one_way = |a, b| u64::from(machine.distance(a, b).unwrap_or(u32::MAX));
            one_way(a, b) + one_way(b, a)
        }
        _ => 0,
    };
    let fewer_cores = |i: usize| Reverse(homes[i].cores.len());
    let grow = |seed: usize| {
        let mut total = 0;
        let mut taken = vec![seed];
        let mut cost: Vec<u64> = (0..homes.len()).map(|i| between(seed, i)).collect();
        while taken.len() < k {
            let rest = (0..homes.len()).filter(|i| !taken.contains(i));
            let Some(next) = rest.min_by_key(|&i| (cost[i], fewer_cores(i), i)) else { break };
            total += cost[next];
            taken.push(next);
            cost.iter_mut().enumerate().for_each(|(i, c)| *c += between(next, i));
        }
        taken.sort_unstable();
        (total, Reverse(taken.iter().map(|&i| homes[i].cores.len()).sum::<usize>()), taken)
    };
    (0..homes.len()).map(grow).min().map(|(_, _, taken)| taken).unwrap_or_default()
}

/// One pool of cores per group: each home as it is, or cut into as many parts as it gets groups.
pub(crate) fn pools(homes: Vec<Home>, groups: usize) -> Vec<Home> {
    let weights: Vec<usize> = homes.iter().map(|h| h.cores.len()).collect();
    let mut shares = apportion(groups, &weights);
    one_at_least(&mut shares);
    homes.into_iter().zip(shares).flat_map(|(home, parts)| split(home, parts)).collect()
}

/// Cuts a home into parts of neighbouring cores. With fewer cores than parts every part is one
/// CPU, taken in order of preference and, when they run out, from the start again.
fn split(home: Home, parts: usize) -> Vec<Home> {
    let node = home.node;
    if parts <= home.cores.len() {
        let sizes = apportion(home.cores.len(), &vec![1; parts]);
        let mut cores = home.cores.into_iter();
        let part = |n| Home { node, cores: cores.by_ref().take(n).collect() };
        return sizes.into_iter().map(part).collect();
    }
    let single = |cpu| {
        let core = home.cores.iter().find(|c| c.cpus.contains(&cpu));
        Home {
            node,
            cores: core.map(|c| Core { cpus: vec![cpu], ..c.clone() }).into_iter().collect(),
        }
    };
    preference(&home.cores).into_iter().cycle().take(parts).map(single).collect()
}

/// Threads per pool, at least one each. CPUs fill up in the order of [`preference`], over all
/// pools alike: cores beside their memory, other cores, further SMT siblings, then sharing.
fn thread_counts(threads: usize, pools: &[Home]) -> Vec<usize> {
    let each = |of: &dyn Fn(&Core) -> usize| -> Vec<usize> {
        pools.iter().map(|pool| pool.cores.iter().map(of).sum()).collect()
    };
    let tiers = [
        each(&|core| usize::from(!core.remote)),
        each(&|core| usize::from(core.remote)),
        each(&|core| core.cpus.len() - 1),
    ];
    let mut counts = vec![0; pools.len()];
    let mut left = threads;
    let mut deal = |n: usize, weights: &[usize]| {
        counts.iter_mut().zip(apportion(n, weights)).for_each(|(count, share)| *count += share);
    };
    for tier in &tiers {
        let n = left.min(tier.iter().sum());
        deal(n, tier);
        left -= n;
    }
    deal(left, &each(&|core| core.cpus.len()));
    one_at_least(&mut counts);
    counts
}

/// Deals `n` in proportion to the weights: rounded down, the rest to the largest remainders
/// (ties: first).
pub(crate) fn apportion(n: usize, weights: &[usize]) -> Vec<usize> {
    let total: usize = weights.iter().sum();
    if total == 0 {
        return vec![0; weights.len()];
    }
    let mut shares: Vec<usize> = weights.iter().map(|w| n * w / total).collect();
    let mut by_remainder: Vec<usize> = (0..weights.len()).collect();
    by_remainder.sort_by_key(|&i| std::cmp::Reverse(n * weights[i] % total));
    let rest = n - shares.iter().sum::<usize>();
    by_remainder.into_iter().take(rest).for_each(|i| shares[i] += 1);
    shares
}

/// Moves from the largest shares (ties: last) to those that are 0, as long as there is enough.
fn one_at_least(shares: &mut [usize]) {
    while let Some(poor) = shares.iter().position(|&n| n == 0) {
        match (0..shares.len()).max_by_key(|&i| shares[i]) {
            Some(rich) if shares[rich] > 1 => {
                shares[rich] -= 1;
                shares[poor] += 1;
            }
            _ => break,
        }
    }
}

/// The CPUs of some cores, best first.
fn preference(cores: &[Core]) -> Vec<CpuId> {
    let (remote, own): (Vec<&Core>, Vec<&Core>) = cores.iter().partition(|c| c.remote);
    let order: Vec<&Core> = in_turn(own).into_iter().chain(in_turn(remote)).collect();
    let smt = order.iter().map(|c| c.cpus.len()).max().unwrap_or(0);
    (0..smt).flat_map(|rank| order.iter().filter_map(move |c| c.cpus.get(rank).copied())).collect()
}

/// The cores with each domain's taken in turn: first of each, second of each, …
fn in_turn(cores: Vec<&Core>) -> Vec<&Core> {
    let mut seen: BTreeMap<Domain, usize> = BTreeMap::new();
    let mut order: Vec<(usize, &Core)> = vec![];
    for core in cores {
        let nth = seen.entry(core.domain).or_default();
        order.push((*nth, core));
        *nth += 1;
    }
    order.sort_by_key(|&(nth, core)| (nth, core.domain));
    order.into_iter().map(|(_, core)| core).collect()
}
