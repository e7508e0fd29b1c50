//! The plan: which cores in how many groups, and the sizes at which execution changes form.
//!
//! A plan is data. It comes from [`Plan::new`], the default rule, or from a tuner;
//! nothing below it chooses cores or forms by itself.

use crate::claims::Gather;
use crate::error::Error;
use crate::schedule::Schedules;
use crate::variant::{AttnForm, Variant};
use memory::{HugePages, Policy};
use std::fmt;
use std::ops::Range;
use threads::PoolSpec;
use topology::{Group, Machine, NodeId};

/// How waits are chosen; a switch for measurement (ArcLight §3.4).
#[derive(Copy, Clone, Debug, PartialEq, Eq, Default)]
pub enum Sync {
    /// Sync B: only as far as the conflict reaches.
    #[default]
    Derived,
    /// Sync A: every wait is global.
    Global,
}

/// The threads that take steps of some sizes. Switching between phases costs no more than waking those
/// that come in (`threads/benches/switch.rs`), and changes no bits: weights lie where they lie, and
/// every sum has one order whoever takes part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Phase {
    /// Tokens in a step, at most.
    pub tokens: usize,
    /// Threads of each group: its first so many, at least one. The others sleep.
    pub threads: Vec<usize>,
}

/// How the memory nodes share a model.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Tensor parallel: every node holds a slice of every layer.
    #[default]
    TensorParallel,
    /// Pipeline: every node holds some of the layers, and parts of a step follow each other through
    /// the nodes.
    Pipeline,
    /// Every node holds all weights; all threads share each product. Keys, values and shared
    /// activations go page by page round the nodes.
    Mirror,
    /// One copy of everything, its pages going round the nodes: the baseline of engines that know
    /// nothing of nodes but how to spread.
    Interleave,
    /// One copy of everything, wherever the system puts it.
    Off,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mode::TensorParallel => "tensor parallel",
            Mode::Pipeline => "pipeline",
            Mode::Mirror => "mirrored",
            Mode::Interleave => "interleaved",
            Mode::Off => "unplaced",
        })
    }
}

/// How a model is executed on a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// One group per (real or virtual) node.
    pub groups: Vec<Group>,
    /// How they share the model.
    pub mode: Mode,
    /// Which of the threads take steps of so many tokens (Sandwich's hot switch), ascending in tokens. A
    /// step has the first phase that it fits; larger steps have all threads. Of any two phases one has
    /// no more threads of any group than the other.
    pub phases: Vec<Phase>,
    /// Page size of weights and KV pages.
    pub huge: HugePages,
    /// Whether threads are pinned to their CPUs.
    pub pin: bool,
    /// Row-wise work of up to this many f32 (rows x width) is done by every thread for itself.
    pub private_elements: usize,
    /// Attention states of up to this many f32 are joined by every thread for itself.
    pub private_join_elements: usize,
    /// Sums over nodes of at least this many f32 (rows x width) go by reduce-scatter and all-gather.
    pub scatter_elements: usize,
    /// That is so on as many nodes as this and more. Two send as much either way, and wait once more for it: so 3,
    /// unless it was measured to be faster on two.
    pub scatter_nodes: usize,
    /// Tokens of a step that follow each other through a pipeline's stages together, at least.
    pub pipeline_tokens: usize,
    /// Bytes of packed weights that a thread keeps in its cache while it walks over the tokens.
    pub weight_block_bytes: usize,
    /// Bytes of activations that a thread keeps in its cache while it walks over weights.
    pub act_block_bytes: usize,
    /// How matrices are multiplied, where it is not by the two sizes above and by equal shares of the rows.
    pub schedules: Schedules,
    /// How waits are chosen.
    pub sync: Sync,
    /// How tiles of fused attention are dealt as tasks, and who takes over what others have not begun; `None`: in turn,
    /// without queues. The results are the same bits. Late tiles of a prompt are long, so they are dealt in turn
    /// unless something else is asked for. Where it lets tasks be taken over, tiles of products may be, too
    /// ([`Executor::share_products`](crate::Executor::share_products)).
    pub tasks: Option<threads::Policy>,
    /// Whether threads count and time their waits, which costs some 50 ns for each.
    pub stats: bool,
    /// Bytes of the stack of each thread but the first, which is the caller's ([`threads::PoolSpec::stack`]).
    pub stack: usize,
}

impl Plan {
    /// The default rule for the given groups.
    ///
    /// A thread normalises or quantises about 4 floats a nanosecond, and a wait costs about half a
    /// microsecond on one node and several across nodes, hence the private limits. The block sizes
    /// leave half of a 1 MiB L2 to weights and a sixteenth of it to activations: 16 tokens or more of most models.
    /// With half of an L1, 8 tokens, weights went by twice as often: steps of 16 sequences were 6 to 8 % slower
    /// on a Zen 5, prompts 1 to 5 %; with 128 KiB nothing is gained (November 2026).
    pub fn new(groups: Vec<Group>) -> Plan {
        Plan {
            groups,
            mode: Mode::default(),
            phases: Vec::new(),
            huge: HugePages::Transparent,
            pin: true,
            private_elements: 16 << 10,
            private_join_elements: 64 << 10,
            scatter_elements: 256 << 10,
            scatter_nodes: 3,
            pipeline_tokens: 32,
            weight_block_bytes: 512 << 10,
            act_block_bytes: 64 << 10,
            schedules: Schedules::default(),
            sync: Sync::Derived,
            tasks: Some(threads::Policy::Interleave),
            stats: false,
            stack: threads::STACK,
        }
    }

    /// The pool that executes it on `machine`.
    pub(crate) fn pool(&self, machine: &Machine) -> PoolSpec {
        let mut levels = self.levels();
        levels.pop(); // A pool always has that of all threads.
        let (pin, stats, distances) = (self.pin, self.stats, self.distances(machine));
        PoolSpec {
            groups: self.groups.clone(),
            pin,
            stats,
            distances,
            levels,
            stack: self.stack,
            ..PoolSpec::default()
        }
    }

    /// The sets of threads that steps are taken by, as numbers of each group's, from the fewest to all.
    /// A *level* is an index of these: every level has all threads of the one before.
    pub fn levels(&self) -> Vec<Vec<usize>> {
        let all: Vec<usize> = self.groups.iter().map(|group| group.cpus.len()).collect();
        let sets = self.phases.iter().map(|phase| phase.threads.clone());
        let mut sets: Vec<Vec<usize>> = sets.filter(|set| *set != all).collect();
        sets.sort_by_key(|set| set.iter().sum::<usize>());
        sets.dedup();
        sets.push(all);
        sets
    }

    /// The level of a step.
    pub fn level(&self, tokens: usize) -> usize {
        let (levels, phase) = (self.levels(), self.phases.iter().find(|p| tokens <= p.tokens));
        let same = |phase: &Phase| levels.iter().position(|threads| *threads == phase.threads);
        phase.and_then(same).unwrap_or(levels.len() - 1)
    }

    /// What is wrong with the phases, but for the threads, which the pool looks at, and with the schedules,
    /// but for what depends on the model.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let mut tokens = 0;
        for phase in &self.phases {
            if phase.tokens <= tokens {
                return Err(Error::BadPhases { tokens: phase.tokens, before: tokens });
            }
            tokens = phase.tokens;
        }
        self.schedules.check()
    }

    /// How far the groups' memories are from each other's threads; empty if a group has no node, or
    /// one that `machine` does not have.
    fn distances(&self, machine: &Machine) -> Vec<Vec<u32>> {
        let row = |from: &Group| -> Option<Vec<u32>> {
            self.groups.iter().map(|to| machine.distance(from.node?, to.node?)).collect()
        };
        self.groups.iter().map(row).collect::<Option<_>>().unwrap_or_default()
    }

    /// Nodes that the graph is built for: those that share its tensors.
    pub fn graph_nodes(&self) -> usize {
        if self.mode == Mode::TensorParallel { self.groups.len() } else { 1 }
    }

    /// Places of activations and KV pages. The threads of a place, its team, walk the same program.
    pub fn places(&self) -> usize {
        match self.mode {
            Mode::TensorParallel | Mode::Pipeline => self.groups.len(),
            Mode::Mirror | Mode::Interleave | Mode::Off => 1,
        }
    }

    /// Arenas of weights: a shard, a stage or a copy per group, or one for all.
    pub fn weight_copies(&self) -> usize {
        match self.mode {
            Mode::TensorParallel | Mode::Pipeline | Mode::Mirror => self.groups.len(),
            Mode::Interleave | Mode::Off => 1,
        }
    }

    /// Threads of each group, by number.
    pub fn group_threads(&self) -> Vec<Range<usize>> {
        self.group_threads_at(self.levels().len() - 1)
    }

    /// The same of the threads that take part at a level, numbered without gaps.
    pub fn group_threads_at(&self, level: usize) -> Vec<Range<usize>> {
        let mut next = 0;
        let groups = self.levels().swap_remove(level).into_iter().map(|threads| {
            next += threads;
            next - threads..next
        });
        groups.collect()
    }

    /// Threads of each place, by number.
    pub fn teams(&self) -> Vec<Range<usize>> {
        self.teams_at(self.levels().len() - 1)
    }

    /// The same of the threads that take part at a level, numbered without gaps.
    pub fn teams_at(&self, level: usize) -> Vec<Range<usize>> {
        let groups = self.group_threads_at(level);
        match self.places() {
            1 => std::iter::once(0..groups.last().map_or(0, |last| last.end)).collect(),
            _ => groups,
        }
    }

    /// The lowest level at which a thread of a group takes part.
    pub fn first_level(&self, group: usize, rank: usize) -> usize {
        self.levels().partition_point(|threads| threads[group] <= rank)
    }

    /// The policy of memory that the threads of `group` alone use.
    pub fn own_policy(&self, group: usize) -> Policy {
        match self.mode {
            Mode::TensorParallel | Mode::Pipeline | Mode::Mirror => {
                self.groups[group].node.map_or(Policy::Default, Policy::Bind)
            }
            Mode::Interleave | Mode::Off => self.shared_policy(group),
        }
    }

    /// The policy of memory that the team of `place` shares.
    pub fn shared_policy(&self, place: usize) -> Policy {
        match self.mode {
            Mode::TensorParallel | Mode::Pipeline => self.own_policy(place),
            Mode::Mirror | Mode::Interleave => {
                let mut nodes: Vec<NodeId> = self.groups.iter().filter_map(|g| g.node).collect();
                nodes.sort_unstable();
                nodes.dedup();
                if nodes.is_empty() { Policy::Default } else { Policy::Interleave(nodes) }
            }
            Mode::Off => Policy::Default,
        }
    }

    /// Threads in all.
    pub fn threads(&self) -> usize {
        self.groups.iter().map(|g| g.cpus.len()).sum()
    }

    /// Parts in which a step of so many tokens goes through a pipeline; 1 in other modes. Stages idle
    /// while the first part comes and the last one goes: with four parts to a stage, a fifth of the time.
    pub(crate) fn pieces(&self, tokens: usize) -> usize {
        match self.mode {
            Mode::Pipeline if tokens >= 2 * self.pipeline_tokens => {
                (tokens / self.pipeline_tokens).min(4 * self.groups.len())
            }
            _ => 1,
        }
    }

    /// Rows of `width` floats that are worked on privately, at least one.
    pub fn private_rows(&self, width: usize) -> usize {
        (self.private_elements / width.max(1)).clamp(1, 16)
    }
}

/// What the choice of a step's form depends on.
#[derive(Copy, Clone, Debug)]
pub struct StepShape {
    /// Tokens in the step.
    pub tokens: usize,
    /// Rows of logits asked for.
    pub outputs: usize,
    /// (Token, KV range) pairs.
    pub ranges: usize,
    /// Query tiles.
    pub tiles: usize,
    /// Whether every sequence has one token in the step.
    pub single: bool,
}

/// The sizes of a model that the choice depends on.
#[derive(Copy, Clone, Debug)]
pub struct FormLimits {
    /// Rows of private buffers.
    pub private_rows: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Nodes of the graph.
    pub nodes: usize,
    /// (Token, KV range) pairs that fit the state buffers.
    pub states: usize,
    /// f32 of the states of one pair on the widest node.
    pub state_elements: usize,
    /// KV heads of the narrowest node.
    pub kv_heads: usize,
    /// Threads of the largest team that takes the step.
    pub team_threads: usize,
    /// Runs in which its threads share columns, as schedules say.
    pub splits: usize,
}

impl Variant {
    /// Whether a step can be executed in this form at all.
    pub fn fits(&self, step: StepShape, limits: FormLimits) -> bool {
        (!self.private_tokens || step.tokens <= limits.private_rows)
            && (!self.private_outputs || step.outputs <= limits.private_rows)
            && (self.attention == AttnForm::Fused || step.ranges <= limits.states)
            && (!self.append_in_attention || step.single)
    }
}

impl Plan {
    /// The form in which a step is executed. All forms give the same bits.
    pub fn variant(&self, step: StepShape, limits: FormLimits) -> Variant {
        let private_tokens = step.tokens <= limits.private_rows;
        let fits = step.ranges <= limits.states;
        let few_items = step.tiles * limits.kv_heads < 2 * limits.team_threads;
        let attention = if fits && private_tokens {
            if step.ranges * limits.state_elements <= self.private_join_elements {
                AttnForm::SplitJoinPrivate
            } else {
                AttnForm::SplitJoinShared
            }
        } else if fits && few_items {
            AttnForm::SplitJoinShared
        } else {
            AttnForm::Fused
        };
        Variant {
            private_tokens,
            private_outputs: private_tokens || step.outputs <= limits.private_rows,
            attention,
            append_in_attention: step.single && attention != AttnForm::Fused,
            gather: self.gather(step, limits),
            splits: limits.splits,
            predicts: false,
            adapts: false,
        }
    }

    /// One shot costs every node (nodes - 1) messages; reduce-scatter and all-gather cost two
    /// (nodes - 1) / nodes and another global wait, so two nodes send nothing less by it.
    fn gather(&self, step: StepShape, limits: FormLimits) -> Gather {
        if step.tokens <= limits.private_rows {
            Gather::Push
        } else if limits.nodes >= self.scatter_nodes.max(2)
            && step.tokens * limits.hidden >= self.scatter_elements
        {
            Gather::Scatter
        } else {
            Gather::Pull
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_as_far_apart_as_their_nodes() {
        let machine = Machine::from_synthetic("pack:2 numa:2 core:2").unwrap();
        let plan = |nodes: &[Option<u32>]| {
            let group = |node: &Option<u32>| Group { node: node.map(NodeId), cpus: Vec::new() };
            Plan::new(nodes.iter().map(group).collect()).distances(&machine)
        };
        let apart = |a, b| machine.distance(NodeId(a), NodeId(b)).unwrap();
        assert_ne!(apart(3, 0), apart(3, 3));
        // In the order of the groups, which need not be that of the nodes.
        let table = vec![vec![apart(3, 3), apart(3, 0)], vec![apart(0, 3), apart(0, 0)]];
        assert_eq!(plan(&[Some(3), Some(0)]), table);
        assert!(plan(&[Some(3), None]).is_empty() && plan(&[Some(3), Some(9)]).is_empty());
    }
}
