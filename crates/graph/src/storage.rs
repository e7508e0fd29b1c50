//! Where buffers and KV pages lie: blocks of arenas.
//!
//! A *place* is what a team of threads shares: a node's two activation halves and its KV pages, or
//! those of the whole machine where the nodes do not share the work. The threads' own buffers lie in
//! an arena of their group. Sizes follow from the declarations; nothing is allocated after load.

use crate::buffer::{Buffer, Buffers, Home, Pool};
use crate::error::Error;
use crate::exec::Shadow;
use crate::graph::Graph;
use crate::keep::KV_CLASSES;
use crate::places::{Places, Scratch};
use crate::plan::Plan;
use crate::stages::Spans;
use crate::state::{self, KvTypes, StateLayout};
use memory::{Arena, ArenaOptions, HugePages, Policy};
use std::sync::Arc;

/// The largest step that an executor is sized for, and how it keeps keys and values.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How keys and values are stored.
    pub kv: KvTypes,
    /// Tokens in a step.
    pub tokens: usize,
    /// Rows of logits in a step.
    pub outputs: usize,
    /// KV pages of each class of the graph ([`Graph::windows`]).
    pub pages: [usize; KV_CLASSES],
    /// (Token, KV range) pairs of split attention, in the class that has most.
    pub ranges: usize,
}

/// Bytes that a model's state takes in one place.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeBytes {
    /// Packed weights and vectors.
    pub weights: usize,
    /// KV pages.
    pub kv: usize,
    /// Activations, double-buffered, and the threads' private buffers.
    pub activations: usize,
}

const ALIGN: usize = 64;

/// The arenas of activations and KV pages.
pub(crate) struct Storage {
    pub places: Places,
    activations: Vec<Arena>, // [place], then [group] of the threads' own
    pages: Vec<Arena>,       // [place]
    bytes: Vec<usize>,       // [place], of activations
}

/// What activations have room for.
#[derive(Clone, Copy)]
pub(crate) struct Sizes {
    pub limits: Limits,
    /// Rows of what is worked on privately.
    pub private_rows: usize,
    /// Each thread's scratch.
    pub scratch: Scratch,
}

impl Storage {
    /// Allocates everything for `plan`.
    pub(crate) fn new(
        graph: &Graph,
        buffers: &Buffers,
        plan: &Plan,
        spans: &Spans,
        sizes: Sizes,
    ) -> Result<Storage, Error> {
        let (mut pages, mut states) = (Vec::new(), Vec::new());
        for place in 0..plan.places() {
            let node = if graph.nodes() == 1 { 0 } else { place };
            let holds = |at: usize| spans.len() == 1 || spans.holds_state(graph, at, place);
            let Limits { kv, pages: count, .. } = sizes.limits;
            let policy = plan.shared_policy(place);
            let options = ArenaOptions { policy, huge: plan.huge, name: "KV pages" };
            let (arena, states_here) =
                state::allocate(&graph.tables.states, holds, node, kv, count, &options)?;
            pages.push(arena);
            states.push(states_here);
        }
        let Room { mut places, arenas, bytes } = Room::new(graph, buffers, plan, sizes, states)?;
        places.shadow = shadow(&arenas, &pages);
        Ok(Storage { places, activations: arenas, pages, bytes })
    }

    /// Puts activations into other room; the old is given back.
    pub(crate) fn move_to(&mut self, room: Room) {
        let Room { places, arenas, bytes } = room;
        (self.places, self.activations, self.bytes) = (places, arenas, bytes);
    }

    /// Bytes per place.
    pub(crate) fn bytes(&self) -> Vec<NodeBytes> {
        let both = self.bytes.iter().zip(&self.pages);
        let all = |(&activations, pages): (&usize, &Arena)| NodeBytes {
            weights: 0,
            kv: pages.used(),
            activations,
        };
        both.map(all).collect()
    }

    /// All arenas: of each place, its activations and its KV pages; then those of each group.
    pub(crate) fn arenas(&self) -> impl Iterator<Item = &Arena> {
        let (shared, own) = self.activations.split_at(self.pages.len());
        shared.iter().zip(&self.pages).flat_map(|(a, b)| [a, b]).chain(own)
    }
}

/// Room for activations.
pub(crate) struct Room {
    pub places: Places,
    arenas: Vec<Arena>,
    bytes: Vec<usize>,
}

impl Room {
    /// Allocates it, beside the pages `states` of each place.
    pub(crate) fn new(
        graph: &Graph,
        buffers: &Buffers,
        plan: &Plan,
        sizes: Sizes,
        states: Vec<Vec<Option<StateLayout>>>,
    ) -> Result<Room, Error> {
        let Sizes { limits, private_rows, scratch } = sizes;
        let rows = |pool: Pool| match pool {
            Pool::Tokens => limits.tokens,
            Pool::Outputs => limits.outputs,
            Pool::Private => private_rows,
            Pool::Slots(each) => limits.tokens * each,
            Pool::PrivateSlots(each) => private_rows * each,
            Pool::States => limits.ranges,
            Pool::Nothing => 0,
        };
        let (places, threads, count) = (plan.places(), plan.threads(), buffers.iter().count());
        // A graph of one node has the same widths in every place.
        let width = |b: &Buffer, place: usize| {
            let node = if graph.nodes() == 1 { 0 } else { place };
            b.row_bytes.get(node).copied().unwrap_or(0)
        };
        let (mut arenas, mut bytes) = (Vec::new(), Vec::with_capacity(places));
        let mut to = Places {
            shared: vec![vec![None; places]; count],
            private: vec![vec![None; threads]; count],
            states,
            scratch: Vec::with_capacity(threads),
            strides: buffers.iter().map(|b| (0..places).map(|p| width(b, p)).collect()).collect(),
            host: buffers.iter().map(|b| b.home == Home::Host).collect(),
            shadow: None,
        };
        for place in 0..places {
            let here = |b: &Buffer| match b.home {
                Home::Node => true,
                Home::Host => place == 0,
                Home::Thread | Home::Cache => false,
            };
            let size = |b: &Buffer| rows(b.rows) * width(b, place);
            let total = buffers.iter().filter(|b| here(b)).map(|b| size(b) + ALIGN).sum();
            let mut arena = activations(total, plan.shared_policy(place))?;
            for (id, b) in buffers.iter().enumerate().filter(|(_, b)| here(b)) {
                to.shared[id][place] = Some(arena.alloc(size(b), ALIGN)?);
            }
            arenas.push(arena);
            bytes.push(total);
        }
        let mut thread = 0;
        for (at, group) in plan.groups.iter().enumerate() {
            let place = if places == 1 { 0 } else { at };
            let own = || buffers.iter().enumerate().filter(|(_, b)| b.home == Home::Thread);
            let size = |b: &Buffer| rows(b.rows) * width(b, place);
            let one = own().map(|(_, b)| size(b) + ALIGN).sum::<usize>()
                + scratch.sizes().iter().map(|bytes| bytes + ALIGN).sum::<usize>();
            let total = one * group.cpus.len();
            let mut arena = activations(total, plan.own_policy(at))?;
            for _ in &group.cpus {
                for (id, b) in own() {
                    to.private[id][thread] = Some(arena.alloc(size(b), ALIGN)?);
                }
                let [floats, words, bytes] = scratch.sizes();
                let mut block = |bytes| arena.alloc(bytes, ALIGN);
                to.scratch.push([block(floats)?, block(words)?, block(bytes)?]);
                thread += 1;
            }
            bytes[place] += total;
            arenas.push(arena);
        }
        Ok(Room { places: to, arenas, bytes })
    }

    /// The same with a shadow in debug builds, beside the pages of `storage`.
    pub(crate) fn shadowed(mut self, storage: &Storage) -> Room {
        self.places.shadow = shadow(&self.arenas, &storage.pages);
        self
    }

    /// Its arenas.
    pub(crate) fn arenas(&self) -> impl Iterator<Item = &Arena> {
        self.arenas.iter()
    }
}

/// The shadow of what threads share: activations of places, and pages. What a thread has for itself lies in the arenas
/// of groups.
fn shadow(arenas: &[Arena], pages: &[Arena]) -> Option<Arc<Shadow>> {
    let shared = || arenas[..pages.len()].iter().chain(pages);
    Shadow::is_wanted().then(|| Arc::new(Shadow::new(shared())))
}

fn activations(bytes: usize, policy: Policy) -> Result<Arena, Error> {
    // Small pages: most steps use the first rows of each buffer only.
    let options = ArenaOptions { policy, huge: HugePages::Off, name: "activations" };
    Ok(Arena::new(bytes, &options)?)
}
