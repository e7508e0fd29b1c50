//! How a model is to be loaded.

use crate::adapter::AdapterUse;
use crate::fewer::{FewThreads, TellFew};
use crate::stages::StageOptions;
use graph::{KvTypes, Phase, Schedules, Sync};
use memory::HugePages;
use threads::Policy as TaskPolicy;
use topology::{CpuList, Group, NodeList};

/// Tokens in a step unless asked otherwise: enough rows that the weights' unpacking and their way
/// from memory are paid for, few enough that activations stay small.
const STEP_TOKENS: usize = 512;

/// How the memory nodes share a model.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Numa {
    /// Tensor parallel, unless a node has too little memory for its share: then interleaved.
    #[default]
    Auto,
    /// Every node holds a slice of every layer, and its threads read nothing else.
    TensorParallel,
    /// Every node holds some of the layers; parts of a prompt follow each other through them.
    Pipeline,
    /// Every node holds all weights.
    Mirror,
    /// One copy, its pages going round the nodes.
    Interleave,
    /// One copy, wherever the system puts it.
    Off,
    /// The cores and the memory of one node: the first that may be used, unless
    /// [`LoadOptions::on_nodes`] names another.
    Isolate,
}

/// How the bytes of a model file come into memory.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Reading {
    /// Mapped: by way of the page cache, so that a file which is there already is not read again.
    #[default]
    Mapped,
    /// Past the page cache (`O_DIRECT`), of which nothing is taken or kept.
    Direct,
}

/// What becomes of the pages that the page cache has of a mapped file.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum PageCache {
    /// They stay, for the next start.
    Keep,
    /// They are taken out as soon as they are packed.
    Drop,
}

/// How many tokens the KV cache holds.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum KvSize {
    /// A whole context for every sequence.
    #[default]
    Each,
    /// So many for all sequences together, at least one context. Of layers with a sliding window, as
    /// many as the sequences can use.
    Tokens(usize),
    /// As many for all together as fit in half of the machine's memory, at least one context.
    Fit,
}

/// Options of [`Engine::load`](crate::Engine::load). The default asks the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadOptions {
    /// How the nodes share the model. Default: as is best.
    pub numa: Numa,
    /// Number of memory nodes to use. More than the machine has makes virtual nodes. Default: all
    /// usable ones.
    pub nodes: Option<usize>,
    /// Memory nodes to use and no others. Default: whatever this process may use.
    pub on_nodes: Option<NodeList>,
    /// CPUs to use and no others. Default: whatever this process may use.
    pub on_cpus: Option<CpuList>,
    /// Threads. Default: one per physical core that this process may use.
    pub threads: Option<usize>,
    /// Groups of CPUs, each with a share of the model in its node's memory, as a search has found them to
    /// be best; instead of what `nodes` and `threads` would choose. Of several replicas they are those of the
    /// first, and the others have their CPUs in the same places. Default: none, so `nodes` and `threads` choose.
    pub groups: Option<Vec<Group>>,
    /// Steps of few tokens that only some of the threads take ([`graph::Plan::phases`]). Default: none.
    pub phases: Vec<Phase>,
    /// Such steps as trials have found them to be best earlier, where `phases` says nothing and the groups have as many
    /// threads as one of these. Default: none.
    pub few_threads: Vec<FewThreads>,
    /// Tries on the steps that are taken whether fewer threads take those of few tokens as fast, and tells what it
    /// found; nothing else becomes slower by more than noise. Default: no trials. Without effect with `phases`, on
    /// several hosts, and where threads are not pinned.
    pub try_fewer: Option<TellFew>,
    /// How matrices are multiplied, as a search has found it to be best. Default: by a rule
    /// ([`graph::Plan::schedules`]).
    pub schedules: Schedules,
    /// Threads of each group that the schedules were found for, in each of `phases` and then in all, where
    /// `phases` and `groups` have others: then schedules are [carried over](Schedules::carried). Default:
    /// they were found for these.
    pub schedules_for: Option<Vec<Vec<usize>>>,
    /// From how many memory nodes on they exchange the sums of many rows by reduce-scatter and all-gather, as a
    /// search has found it to be best ([`graph::Plan::scatter_nodes`]). Default: by a rule.
    pub scatter_nodes: Option<usize>,
    /// How the file is read. Default: mapped.
    pub reading: Reading,
    /// What becomes of a mapped file's pages in the page cache. Default: they stay if file and weights
    /// fit into memory together, also by the control group's limit.
    pub page_cache: Option<PageCache>,
    /// Page size of weights and KV pages. Default: for models above 1 GiB, what a measurement finds
    /// faster; otherwise transparent huge pages.
    pub huge_pages: Option<HugePages>,
    /// Tokens that one sequence can hold. Default: what the model was trained for, if its KV cache
    /// fits in half of the machine's memory, otherwise what does.
    pub context: Option<usize>,
    /// Tokens that all sequences can hold together. Default: as many as each of them can.
    pub kv_size: KvSize,
    /// Bytes that KV pages may take at most, where context or KV cache are as large as fits. Default: half of the
    /// machine's memory.
    pub kv_bytes: Option<u64>,
    /// Sequences that can exist at once. Default: 1.
    pub sequences: Option<usize>,
    /// Tokens in a step: a longer prompt is taken in chunks. Default: 512.
    pub step_tokens: Option<usize>,
    /// Rows of logits in a step. Default: one per sequence.
    pub step_outputs: Option<usize>,
    /// How keys and values are stored. Default: f16.
    pub kv: KvTypes,
    /// Loads the layer that predicts further tokens as well, for [`Speculation::Predict`](crate::Speculation).
    pub predicting: bool,
    /// Adapters, in the order of their numbers. Default: none.
    pub adapters: Vec<AdapterUse>,
    /// Which part of the model this host has, if others have the rest: it must be its last stage for an
    /// [`Engine`](crate::Engine), and another for a [`StageServer`](crate::StageServer). Default: it has all.
    pub stage: Option<StageOptions>,
    /// Leaves the affinity of threads alone.
    pub no_pin: bool,
    /// Bytes of the stack of each thread that computes, except the calling one. 256 KiB to 1 GiB. Default: 2 MiB.
    pub stack: Option<usize>,
    /// Takes all steps with all cores, also with those that other programs are busy on.
    pub fixed_cores: bool,
    /// How threads share tiles of attention, and of products while a thread is late ([`graph::Plan::tasks`]). Default:
    /// dealt in turn, and taken over by whoever is through.
    pub tasks: Option<TaskPolicy>,
    /// How waits are chosen: as far as they must reach, or all global for comparison.
    pub sync: Sync,
    /// Counts and times the threads' waits, for [`Engine::activity`](crate::Engine::activity).
    pub stats: bool,
}

impl LoadOptions {
    /// The most tokens of a step.
    pub(crate) fn most_step_tokens(&self) -> usize {
        self.step_tokens.unwrap_or(STEP_TOKENS)
    }
}
