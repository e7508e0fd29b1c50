//! The tree of a search: the ways to use the machine that were looked at, and what each took.

use super::StepKind;
use super::scheme::Teams;
use super::session::Session;
use serde::Serialize;
use topology::topotree::{LevelKind, TopoTree};
use topology::{CpuId, NodeId};

/// What a search looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// How the model is served without tuning.
    Default,
    /// A way to cut the machine into groups, with one CPU of each core.
    Family,
    /// The CPUs of a family that prompts want.
    Prompts,
    /// Those that decoding wants within them, under one grouping.
    Decoding,
    /// A level for each kind of step.
    Plan,
}

/// A level that was supposed: `members` vertices, `stride` apart, at `depth` in the tree with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Supposed {
    /// Vertices in each.
    pub members: usize,
    /// How far they stand apart.
    pub stride: usize,
    /// The depth of the new level.
    pub depth: usize,
}

/// The CPUs of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Team {
    /// Whose memory they work on.
    pub node: Option<NodeId>,
    /// Ascending.
    pub cpus: Vec<CpuId>,
}

/// A way to use the machine that was looked at: the fastest of those that were timed for it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Branch {
    /// What was looked for.
    pub stage: Stage,
    /// The branch that it grows from, by its place in the list.
    pub parent: Option<usize>,
    /// The levels of the tree, where one was searched.
    pub tree: Option<String>,
    /// What each group of threads is, of a family.
    pub level: Option<LevelKind>,
    /// The levels that were supposed, in the order in which they were.
    pub supposed: Vec<Supposed>,
    /// The groups; of a plan those of decoding.
    pub groups: Vec<Team>,
    /// Seconds of the step that stands for decoding, where it was timed.
    pub decoding: Option<f64>,
    /// Seconds of the step that stands for prompts, where it was timed.
    pub prompts: Option<f64>,
    /// Seconds of the trace, by the first time of each step: of the default and of plans.
    pub trace: Option<f64>,
    /// Ways that were timed for it.
    pub timed: usize,
    /// Steps timed until it was known, from the beginning of the search.
    pub evaluations: usize,
}

impl Branch {
    /// CPUs of all groups.
    pub fn threads(&self) -> usize {
        self.groups.iter().map(|team| team.cpus.len()).sum()
    }

    /// A branch of these teams, with what is known of them.
    pub(super) fn new(
        session: &Session<'_>,
        stage: Stage,
        parent: Option<usize>,
        teams: &Teams,
        (decode, prompt): (usize, usize),
    ) -> Branch {
        let known = |kind| session.known(teams, kind).filter(|seconds| seconds.is_finite());
        Branch {
            stage,
            parent,
            tree: None,
            level: None,
            supposed: vec![],
            groups: teams.list(),
            decoding: known(decode),
            prompts: known(prompt),
            trace: None,
            timed: 1,
            evaluations: session.progress.evaluations,
        }
    }

    /// It, as part of a tree.
    pub(super) fn of_tree(self, tree: &TopoTree, supposed: Vec<Supposed>) -> Branch {
        Branch { tree: Some(tree.to_string()), supposed, ..self }
    }
}

/// How a search went.
#[derive(Clone, Debug, PartialEq)]
pub struct Trail {
    /// What was looked at, in this order; parents come before their branches.
    pub branches: Vec<Branch>,
    /// The kind of step that stands for decoding.
    pub decode: StepKind,
    /// That of prompts.
    pub prompt: StepKind,
}
