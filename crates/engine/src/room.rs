//! How much the KV cache holds: the context of a sequence, and the tokens of all together.
//!
//! Asked for, or what fits in half of the machine's memory and, on each node, in half of what its
//! weights leave. The bytes of a node's weights, and the number of parts of a machine that use a node, are counted here
//! too.

use crate::error::Error;
use crate::kv::{self, Sizes};
use crate::options::{KvSize, LoadOptions};
use graph::{Graph, KV_CLASSES, Keep, KvTypes, Mode, Plan};
use kernels::{KV_CHUNK, KV_PAGE};
use models::Hparams;
use topology::{Machine, NodeId};

/// The longest text where nobody says otherwise: all of its tokens are in memory at once, in every layer.
const LONGEST_TEXT: usize = 8192;

/// Tokens of a sequence, and of all sequences together in what sees everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    pub context: usize,
    pub tokens: usize,
}

impl Room {
    /// KV pages of every class.
    pub(crate) fn pages(self, graph: &Graph, options: &LoadOptions) -> [usize; KV_CLASSES] {
        let sizes = Sizes {
            sequences: options.sequences.unwrap_or(1),
            context: self.context,
            interval: interval(graph, options.kv),
        };
        let step = options.most_step_tokens();
        let mut pages = [0; KV_CLASSES];
        for (pages, &keep) in pages.iter_mut().zip(graph.classes()) {
            *pages = sizes.pages(keep, self.tokens, step);
        }
        pages
    }

    /// Bytes of a node's KV pages.
    pub(crate) fn bytes(self, graph: &Graph, node: usize, options: &LoadOptions) -> usize {
        let pages = self.pages(graph, options).into_iter().enumerate();
        let page = |class| graph.page_bytes(node, options.kv, class);
        pages.map(|(class, pages)| pages * page(class)).sum()
    }

    /// What `options` ask for, or what fits; `parts` of the machine have as much each.
    pub(crate) fn find(
        hparams: &Hparams,
        graph: &Graph,
        plan: &Plan,
        machine: &Machine,
        parts: &[Machine],
        options: &LoadOptions,
    ) -> Result<Room, Error> {
        let trained = hparams.context;
        let sequences = options.sequences.unwrap_or(1);
        let of = |context: usize| match options.kv_size {
            // Each has whole pages of its own.
            KvSize::Each => Room { context, tokens: context.next_multiple_of(KV_PAGE) * sequences },
            KvSize::Tokens(tokens) => Room { context, tokens: tokens.max(context) },
            KvSize::Fit => Room { context, tokens: context },
        };
        let fits = |most: usize, room: &dyn Fn(usize) -> Room| {
            let bytes = |n, tokens| room(tokens).bytes(graph, n, options);
            let most = Most { tokens: most, bytes: options.kv_bytes };
            fits(graph, plan, machine, parts, most, &bytes)
        };
        let context = match options.context {
            Some(context) if context > trained => {
                return Err(Error::ContextTooLong { context, trained });
            }
            Some(context) => context,
            None if graph.reads_texts() => fits(trained.min(LONGEST_TEXT), &of),
            None => fits(trained, &of),
        };
        let room = of(context);
        Ok(match options.kv_size {
            KvSize::Fit => {
                let tokens = fits(context * sequences, &|tokens| Room { tokens, ..room });
                Room { tokens: tokens.max(context), ..room }
            }
            KvSize::Each | KvSize::Tokens(_) => room,
        })
    }
}

/// Tokens from one snapshot of fixed states to the next.
pub(crate) fn interval(graph: &Graph, kv: KvTypes) -> usize {
    let nodes = || 0..graph.nodes();
    let paged = |(class, keep): (usize, &Keep)| keep.is_paged().then_some(class);
    let classes: Vec<usize> = graph.classes().iter().enumerate().filter_map(paged).collect();
    let token = nodes().map(|node| {
        classes.iter().map(|&class| graph.kv_bytes_per_token(node, kv, class)).sum::<usize>()
    });
    let fixed = graph.classes().iter().position(|keep| !keep.is_paged());
    let state = nodes().map(|node| fixed.map_or(0, |class| graph.page_bytes(node, kv, class)));
    kv::interval(state.sum(), token.sum())
}

/// The most that a cache may have.
#[derive(Clone, Copy)]
struct Most {
    tokens: usize,
    /// Of all parts of a machine together.
    bytes: Option<u64>,
}

/// The number of tokens that fit, in whole ranges of keys, if they take `bytes(node, tokens)` on a node.
fn fits(
    graph: &Graph,
    plan: &Plan,
    machine: &Machine,
    parts: &[Machine],
    most: Most,
    bytes: &dyn Fn(usize, usize) -> usize,
) -> usize {
    let Most { tokens: most, bytes: limit } = most;
    let longest = |room: u64, bytes: &dyn Fn(usize) -> usize| {
        let (mut fits, mut beyond) = (0, most.div_ceil(KV_CHUNK) + 1);
        while fits + 1 < beyond {
            let middle = fits.midpoint(beyond);
            match bytes((middle * KV_CHUNK).min(most)) as u64 <= room {
                true => fits = middle,
                false => beyond = middle,
            }
        }
        (fits * KV_CHUNK).max(KV_CHUNK).min(most)
    };
    let memory: u64 = machine.nodes().iter().map(|n| n.memory_bytes).sum();
    // A machine that does not tell its memory is not a machine without any.
    let half = (memory > 0).then_some(memory / 2);
    let mut fits = match half.into_iter().chain(limit).min() {
        None => most.min(4096),
        Some(room) => longest(room / parts.len() as u64, &|tokens| {
            (0..graph.nodes()).map(|n| bytes(n, tokens)).sum()
        }),
    };
    for node in 0..graph.nodes() {
        let bound = plan.shared_policy(node).node();
        let Some(bound) = bound else { continue };
        let Some(left) = machine.available(bound) else { continue };
        // Virtual nodes share a node's memory; stages of a pipeline share layers.
        let sharers = plan.groups.iter().filter(|g| g.node == Some(bound)).count().max(1);
        let sharers = sharers * sharing(parts, bound).max(1);
        let stages = if plan.mode == Mode::Pipeline { plan.groups.len() } else { 1 };
        let weights = weights(graph, node) / stages;
        let left = (left / sharers as u64).saturating_sub(weights as u64);
        fits = fits.min(longest(left / 2, &|tokens| bytes(node, tokens).div_ceil(stages)));
    }
    fits
}

/// Bytes of a node's packed weights.
pub(crate) fn weights(graph: &Graph, node: usize) -> usize {
    graph.matrices().iter().map(|m| m.node_bytes(node)).sum()
}

/// How many parts of a machine use the memory of a node.
pub(crate) fn sharing(parts: &[Machine], node: NodeId) -> usize {
    let uses = |part: &&Machine| part.node(node).is_some_and(|n| n.has_memory && n.memory_allowed);
    parts.iter().filter(uses).count()
}
