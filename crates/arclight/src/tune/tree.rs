//! The tree of a search, as a table: a row for each way to use the machine that was looked at.

use crate::error::Error;
use crate::output::{Cell, figure, words};
use arclight_engine::CpuList;
use serde::Serialize;
use serde_json::{Value, json};
use topology::Machine;
use topology::topotree::{Complexity, LineTimes, Proposal, TopoTree, groupings};
use tune::tuner::{Branch, Outcome, Stage, Supposed, Team, Trail};

/// The tree that is searched, and whether levels are supposed that it does not have.
pub(super) struct Base {
    pub(super) tree: TopoTree,
    pub(super) suppose: bool,
    /// How many trees and configurations there are.
    pub(super) space: Complexity,
    /// What there is to tell of it.
    pub(super) note: Option<String>,
}

impl Base {
    /// That of a machine, with the level that times between its CPUs show.
    ///
    /// # Errors
    /// When the times are of none of its CPUs.
    pub(super) fn new(machine: &Machine, times: Option<&LineTimes>) -> Result<Base, Error> {
        let tree = TopoTree::of(machine);
        let base = |tree: TopoTree, suppose, note| {
            let space = tree.evened().complexity().map_err(Error::refused)?;
            Ok(Base { tree, suppose, space, note })
        };
        let Some(times) = times else { return base(tree, true, None) };
        let cpus = tree.cpus();
        if !times.cpus().iter().any(|cpu| cpus.contains(cpu)) {
            let text = "the latencies are of other CPUs than this machine has";
            return Err(Error::Refused(text.to_owned()));
        }
        match tree.evened().with_latent(times) {
            Some((tree, Proposal { n, stride, of, separation, .. })) => {
                let note = format!(
                    "by latency groups of {n} {of}s that are {stride} apart are a level of the tree: {separation:.1} \
                     times as near to each other as to others"
                );
                base(tree, false, Some(note))
            }
            None => {
                let note =
                    "latency shows no groups that the tree does not have: levels are supposed";
                base(tree, true, Some(note.to_owned()))
            }
        }
    }
}

/// How a search went, and how large the space is that it searched.
pub(super) struct Searching {
    pub(super) trail: Trail,
    pub(super) space: Complexity,
}

/// The size of the space as data; numbers beyond 64 bits are the largest of 64 bits.
pub(super) fn complexity(space: &Complexity) -> Value {
    let whole = |n: u128| u64::try_from(n).unwrap_or(u64::MAX);
    let level = |(name, children): &(String, usize)| {
        let groupings = whole(groupings(*children));
        json!({ "level": name, "children": children, "groupings": groupings })
    };
    json!({
        "levels": space.levels().iter().map(level).collect::<Vec<_>>(),
        "groupings": whole(space.groupings()),
        "removals": space.removals(),
        "transformations": space.transformations(),
        "cross_sections": space.cross_sections(),
        "trees": whole(space.trees()),
    })
}

/// How many times as fast decoding is by each step of the search, in the family that was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Won {
    /// Other groups than the default's.
    pub(super) cut: f64,
    /// CPUs left out as the machine shows its levels.
    pub(super) remove: f64,
    /// CPUs left out of a level that was supposed, over the best without one.
    pub(super) group: f64,
}

impl Won {
    /// Of an outcome.
    pub(super) fn of(trail: &Trail, outcome: &Outcome) -> Option<Won> {
        let default = trail.branches.first()?.decoding?;
        let level = outcome.table.level(trail.decode.tokens);
        let mut chosen: Vec<Vec<_>> = outcome.scheme.cpus(level).map(<[_]>::to_vec).collect();
        chosen.iter_mut().for_each(|cpus| cpus.sort_unstable());
        let same = |branch: &&Branch| {
            branch.groups.len() == chosen.len()
                && branch.groups.iter().all(|team| chosen.contains(&team.cpus))
        };
        if trail.branches.first().is_some_and(|default| same(&default)) {
            return Some(Won { cut: 1.0, remove: 1.0, group: 1.0 });
        }
        // What has the default's groups for other steps belongs to its family.
        let of = |stage| trail.branches.iter().filter(move |b: &&Branch| b.stage == stage);
        let plan = of(Stage::Plan).find(same).and_then(|plan| plan.parent);
        let whole = || trail.branches.iter().position(|b| b.stage == Stage::Family && same(&b));
        let family = plan.or_else(whole)?;
        let cut = trail.branches[family].decoding?;
        let best = |supposed: bool| {
            let own = of(Stage::Decoding).filter(|b| b.parent == Some(family));
            let own = own.filter(|b| b.supposed.is_empty() != supposed);
            own.filter_map(|b| b.decoding).reduce(f64::min)
        };
        let bare = best(false).map_or(cut, |bare| bare.min(cut));
        let grouped = best(true).map_or(bare, |grouped| grouped.min(bare));
        Some(Won { cut: default / cut, remove: cut / bare, group: bare / grouped })
    }
}

/// A row for each branch, under its parent.
pub(super) fn rows(trail: &Trail) -> Vec<[Cell; 7]> {
    let default = trail.branches.first().and_then(|b| b.decoding);
    let mut rows = vec![];
    let row = |of: &Branch, depth: usize| {
        let ratio = default.zip(of.decoding).map(|(default, own)| default / own);
        [
            words("looked at", 40, format_args!("{:width$}{}", "", name(of), width = 2 * depth)),
            figure("groups", 6, of.groups.len()),
            figure("threads", 7, of.threads()),
            figure("decoding, ms", 12, milliseconds(of.decoding)),
            figure("ratio", 5, ratio.map_or(String::new(), |ratio| format!("{ratio:.2}"))),
            figure("prompts, ms", 11, milliseconds(of.prompts)),
            figure("timed", 5, of.timed),
        ]
    };
    for (at, branch) in trail.branches.iter().enumerate() {
        match branch.stage {
            Stage::Default => rows.push(row(branch, 0)),
            Stage::Family => {
                rows.push(row(branch, 1));
                let own = trail.branches.iter().filter(|b| b.parent == Some(at));
                rows.extend(own.filter(|b| b.stage != Stage::Family).map(|own| row(own, 2)));
            }
            Stage::Prompts | Stage::Decoding | Stage::Plan => {}
        }
    }
    rows
}

fn milliseconds(seconds: Option<f64>) -> String {
    seconds.map_or(String::new(), |seconds| format!("{:.3}", 1e3 * seconds))
}

/// What a branch is called.
fn name(branch: &Branch) -> String {
    let level =
        |level: &Supposed| format!(", groups of {} that are {} apart", level.members, level.stride);
    let supposed: String = branch.supposed.iter().map(level).collect();
    match branch.stage {
        Stage::Default => "default".to_owned(),
        Stage::Family => {
            let level = branch.level.map_or(String::new(), |level| level.to_string());
            format!("by {level}{supposed}: {}", cpus(&branch.groups))
        }
        Stage::Prompts => format!("for prompts: {}", cpus(&branch.groups)),
        Stage::Decoding => format!("for decoding{supposed}: {}", cpus(&branch.groups)),
        // Plans with the same CPUs for decoding differ in those of other steps.
        Stage::Plan => {
            let trace = branch.trace.map_or(String::new(), |trace| format!(", trace {trace:.4} s"));
            format!("plan: {}{trace}", cpus(&branch.groups))
        }
    }
}

/// The CPUs of the first group, which the others are like.
fn cpus(groups: &[Team]) -> CpuList {
    groups.first().into_iter().flat_map(|team| team.cpus.iter().copied()).collect()
}
