//! Whether every page is where it belongs, asked in two ways.
//!
//! The engine's own placement report names its arenas and asks the kernel (`move_pages`) for each of
//! their pages. The kernel's list of the process's mappings ([`Maps`]) knows nothing of arenas, and
//! so sees also what the engine's report might leave out.

use crate::error::Error;
use crate::load::Mode;
use crate::maps::Maps;
use crate::placed::PlacedArgs;
use arclight_engine::{Engine, Group, Placement};
use memory::Policy;
use std::collections::BTreeMap;

const PAGE: u64 = 4096;
const MIB: f64 = (1 << 20) as f64;

/// What is wrong with the engine's memory.
pub(crate) fn faults(
    args: &PlacedArgs,
    engine: &mut Engine,
    when: &str,
) -> Result<Vec<String>, Error> {
    let groups = engine.plan().groups.clone();
    let weights: Vec<u64> = engine.report().nodes.iter().map(|n| n.weights as u64).collect();
    let maps = Maps::read()?;
    let mut faults = by_maps(args, &groups, &weights, &maps);
    // Where the question is refused, the list of mappings must do.
    if !args.refused {
        let placement = engine.placement()?;
        faults.extend(by_report(args.load.numa, &groups, &placement));
        println!("    {when}, pages by node: {}", arenas(&placement));
    }
    println!("    {when}, MiB by node: {}", describe(&maps));
    Ok(faults.into_iter().map(|f| format!("{when}: {f}")).collect())
}

/// The kernel's list of mappings: nothing bound is elsewhere, and the weights are in what is bound.
fn by_maps(args: &PlacedArgs, groups: &[Group], weights: &[u64], maps: &Maps) -> Vec<String> {
    let mut faults = vec![];
    for (node, bound) in maps.bound.iter().filter(|(_, b)| b.wrong > 0) {
        let pages = bound.wrong / PAGE;
        faults.push(format!("{pages} pages bound to node {node} are on other nodes"));
    }
    let sum = |on: &BTreeMap<u32, u64>| on.values().sum::<u64>();
    let all: u64 = weights.iter().sum();
    match args.load.numa {
        // One share or copy of the weights in each node's memory.
        Mode::Auto | Mode::Tp | Mode::Pp | Mode::Mirror => {
            for (at, group) in groups.iter().enumerate() {
                let Some(node) = group.node else {
                    faults.push(format!("the threads of group {at} have no memory node"));
                    continue;
                };
                // One place for all: equal copies.
                let share = match weights.get(at) {
                    Some(share) if weights.len() == groups.len() => *share,
                    _ => all / groups.len() as u64,
                };
                let (kind, there) = if args.refused {
                    ("unbound", maps.unbound.get(&node.0).copied().unwrap_or(0))
                } else {
                    ("bound", maps.bound.get(&node.0).map_or(0, |b| b.right))
                };
                if there < share {
                    faults.push(format!(
                        "{there} {kind} bytes are on node {node}, but its weights are {share}"
                    ));
                }
            }
        }
        // Nowhere more than half above an even share: huge pages are dealt out whole.
        Mode::Interleave => {
            let there = sum(&maps.other);
            if there < all {
                faults.push(format!("{there} bytes are interleaved, but the weights are {all}"));
            }
            let share = there / groups.len().max(1) as u64;
            let most = share + share / 2 + (2 << 20);
            for (node, bytes) in maps.other.iter().filter(|(_, bytes)| **bytes > most) {
                faults.push(format!("{bytes} of {there} interleaved bytes are on node {node}"));
            }
        }
        Mode::Off => {
            let placed = sum(&maps.other) + maps.bound.values().map(|b| b.right).sum::<u64>();
            if placed > 0 {
                faults.push(format!("{placed} bytes have a policy, though placement is off"));
            }
        }
    }
    faults
}

/// The engine's report: no page is elsewhere than its arena wants it, every arena wants its group's
/// node, and every group streams its own node's weights.
fn by_report(mode: Mode, groups: &[Group], placement: &Placement) -> Vec<String> {
    let mut faults = vec![];
    for arena in &placement.arenas {
        let wrong = arena.misplaced();
        if wrong > 0 {
            faults.push(format!("{wrong} pages of the arena `{}` are elsewhere", arena.name));
        }
        if !arena.pages.failed.is_empty() {
            let failed = &arena.pages.failed;
            faults.push(format!("the kernel says {failed:?} of pages of `{}`", arena.name));
        }
    }
    let arenas: &[&str] = match mode {
        Mode::Auto | Mode::Tp | Mode::Pp => &["weights", "KV pages", "activations"],
        Mode::Mirror => &["weights"],
        Mode::Interleave | Mode::Off => return faults,
    };
    for name in arenas {
        let of_name = || placement.arenas.iter().filter(|a| a.name == *name);
        // There may be several of a kind on a node, but as many on each.
        let each = of_name().count() / groups.len();
        for node in groups.iter().filter_map(|g| g.node) {
            let count = of_name().filter(|a| a.policy == Policy::Bind(node)).count();
            if count == 0 || count != each {
                let all = of_name().count();
                faults.push(format!("{count} of {all} arenas `{name}` are bound to node {node}"));
            }
        }
    }
    for group in &placement.groups {
        let Some(node) = group.node else { continue };
        let elsewhere = group.streamed.elsewhere(node);
        if elsewhere > 0 || group.streamed.absent > 0 {
            faults.push(format!(
                "{elsewhere} pages of the weights that node {node} streams are elsewhere, {} \
                 nowhere",
                group.streamed.absent
            ));
        }
    }
    faults
}

/// One line: of each kind of arena, what there is of it. Of activations only what was written is
/// there, and which thread writes how much depends on the tiles that it takes.
fn arenas(placement: &Placement) -> String {
    let kinds = ["weights", "KV pages", "activations"].map(|name| {
        let mut pages = BTreeMap::new();
        for arena in placement.arenas.iter().filter(|a| a.name == name) {
            for (node, count) in &arena.pages.by_node {
                *pages.entry(node.0).or_insert(0) += count;
            }
        }
        let words: Vec<_> = pages.iter().map(|(node, pages)| format!(" {node}: {pages}")).collect();
        format!("{name}{}", words.concat())
    });
    kinds.join("; ")
}

/// One line: bound, wrongly placed, interleaved, and other anonymous memory.
fn describe(maps: &Maps) -> String {
    let line = |kind: &str, on: Vec<(u32, u64)>| {
        let words: Vec<_> =
            on.iter().map(|(n, bytes)| format!("{n}: {:.2}", *bytes as f64 / MIB)).collect();
        (!words.is_empty()).then(|| format!("{kind} {}", words.join(" ")))
    };
    let bound = maps.bound.iter().map(|(n, b)| (*n, b.right)).collect();
    let wrong =
        maps.bound.iter().filter(|(_, b)| b.wrong > 0).map(|(n, b)| (*n, b.wrong)).collect();
    let pairs = |m: &BTreeMap<u32, u64>| m.iter().map(|(n, b)| (*n, *b)).collect();
    let parts = [
        line("bound", bound),
        line("WRONG", wrong),
        line("interleaved", pairs(&maps.other)),
        line("unbound", pairs(&maps.unbound)),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
}
