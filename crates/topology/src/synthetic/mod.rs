//! Machines from strings such as `pack:2 numa:4 l3:1 core:8 pu:2`: how many of what each of the
//! one before has, as hwloc writes them (`lstopo --of synthetic`).
//!
//! A word is a type, a colon and a number; attributes may follow in parentheses, and
//! `[numa(memory=64GB)]` hangs a memory node on each of the level before. Types have hwloc's long
//! and short names: `package` (`pack`, `socket`), `die`, `numanode` (`numa`, `node`), caches (`l2`,
//! `l3cache`, `l1i`), `group`, `core`, `pu`; `cluster` is ours. Levels with numbers of their own
//! (packages, nodes, CPUs) are numbered in the order of the tree unless they say `indexes=`, in one
//! of hwloc's three forms: the numbers (`0,2,1,3`), loops of step × count (`2*2:1*2`), or the
//! levels that are gone through, fastest first (`core:pack`).
//!
//! Differences: the last level need not be `pu`, and each of it then has one; memory that is not
//! given is unknown, not 1 GiB; the innermost `group` within nodes and packages is a cluster; words
//! without a type and attributes that mean nothing are errors.
//!
//! Source: hwloc's documentation of synthetic topologies, and its test `hwloc_synthetic.c`.

mod indexes;
mod words;

use crate::describe::{self, Description, Place, Pu};
use crate::{Error, Machine, Node, NodeId};
use indexes::numbers;
use std::iter::repeat_n;
use words::{Kind, Level, Spec};

impl Machine {
    /// Describes the machine of a synthetic string, such as `numa:4 core:48`.
    ///
    /// # Errors
    /// [`Error::Synthetic`] names the word that is at fault.
    pub fn from_synthetic(text: &str) -> Result<Self, Error> {
        Ok(describe(&words::parse(text)?)?.machine())
    }
}

fn describe(spec: &Spec) -> Result<Description, Error> {
    let levels = &spec.levels;
    let total = levels[levels.len() - 1].width;
    let at = |kind: Kind| levels.iter().position(|level| level.kind == kind);
    // Which of a level's the nth CPU belongs to.
    let holding = |level: usize, pu: usize| pu / (total / levels[level].width);

    let mut notes = vec![];
    let (mut nodes, node_of) = nodes(spec)?;
    let only = nodes.len() == 1;
    let assumed = describe::set_distances(&mut nodes, |_, _| only.then_some(describe::LOCAL));
    if !assumed.is_empty() {
        let (local, remote) = (describe::LOCAL, describe::REMOTE);
        notes.push(format!("distances between nodes: {local} local, {remote} remote assumed"));
    }

    let numbers_at = |level: Option<usize>| match level {
        Some(level) => numbers(levels, &levels[level]).map(Some),
        None => Ok(None),
    };
    let (package, die, core) = (at(Kind::Package), at(Kind::Die), at(Kind::Core));
    let (packages, dies) = (numbers_at(package)?, numbers_at(die)?);
    let ids = numbers(levels, &levels[levels.len() - 1])?;
    let cluster = cluster(levels);

    let (l2, l3) = (at(Kind::Cache(2)), at(Kind::Cache(3)));
    let caches = |level: Option<usize>, number: u8| {
        let level = level.map(|level| &levels[level]);
        level.into_iter().flat_map(move |level| repeat_n((number, level.size), level.width))
    };
    let first_l3 = l2.map_or(0, |level| levels[level].width);
    let pu = |i: usize| {
        let number =
            |level: Option<usize>, of: &Option<Vec<u32>>| Some(of.as_ref()?[holding(level?, i)]);
        Pu {
            id: ids[i],
            node: node_of[i],
            package: number(package, &packages).unwrap_or(0),
            die: number(die, &dies),
            cluster: cluster.map(|level| holding(level, i) as u32),
            place: Place {
                l1: None,
                core: core.map(|level| holding(level, i)),
                l2: l2.map(|level| holding(level, i)),
                l3: l3.map(|level| first_l3 + holding(level, i)),
            },
            allowed: true,
            max_khz: None,
            capacity: None,
        }
    };
    Ok(Description {
        pus: (0..total).map(pu).collect(),
        caches: caches(l2, 2).chain(caches(l3, 3)).collect(),
        nodes,
        numa: true,
        notes,
        ..Description::default()
    })
}

fn few_enough(word: &str, nodes: usize) -> Result<(), Error> {
    let most = describe::MOST_NODES;
    if nodes > most {
        return Err(words::fault(word, format!("{nodes} nodes are more than {most}")));
    }
    Ok(())
}

/// The nodes, and the node of each CPU: the first of those on the deepest level that has some.
fn nodes(spec: &Spec) -> Result<(Vec<Node>, Vec<NodeId>), Error> {
    let levels = &spec.levels;
    let total = levels[levels.len() - 1].width;
    let memory = |bytes: u64| (bytes > 0).then_some(bytes);
    if let Some(level) = levels.iter().find(|level| level.kind == Kind::Node) {
        few_enough(&level.word, level.width)?;
        let ids = numbers(levels, level)?;
        let node_of = (0..total).map(|pu| NodeId(ids[pu / (total / level.width)])).collect();
        let nodes = ids.into_iter().map(|id| describe::node(id, memory(level.size)));
        return Ok((nodes.collect(), node_of));
    }
    let Some(deepest) = levels.iter().rposition(|level| !level.hung.is_empty()) else {
        // All machines have memory.
        return Ok((vec![describe::node(0, None)], vec![NodeId(0); total]));
    };
    let count: usize = levels.iter().map(|level| level.hung.len() * level.width).sum();
    few_enough("[numa]", count)?;
    let ids = match &spec.hung_indexes {
        Some((word, text)) => indexes::read(levels, word, text, count)?,
        None => (0..count as u32).collect(),
    };
    // hwloc numbers what hangs on an object when it leaves it: after what hangs on those within.
    let mut nodes: Vec<Node> = vec![];
    let mut nearest = vec![];
    let innermost = levels[deepest].width;
    for left in 1..=innermost {
        nearest.push(NodeId(ids[nodes.len()]));
        // With this object all those end that it is the last of.
        let ending = |level: &&Level| left.is_multiple_of(innermost / level.width);
        for level in levels[..=deepest].iter().rev().take_while(ending) {
            for &bytes in &level.hung {
                nodes.push(describe::node(ids[nodes.len()], memory(bytes)));
            }
        }
    }
    let node_of = (0..total).map(|pu| nearest[pu / (total / innermost)]).collect();
    Ok((nodes, node_of))
}

/// The level that is a cluster: one that says so, or the innermost group within all that is a
/// node, package or shared cache.
fn cluster(levels: &[Level]) -> Option<usize> {
    let last = |is: &dyn Fn(&Level) -> bool| levels.iter().rposition(is);
    let outer = last(&|level| {
        let larger = [Kind::Package, Kind::Die, Kind::Node, Kind::Cache(3)].contains(&level.kind);
        larger || !level.hung.is_empty()
    });
    let group = last(&|level| level.kind == Kind::Group).filter(|&group| Some(group) > outer);
    last(&|level| level.kind == Kind::Cluster).or(group)
}
