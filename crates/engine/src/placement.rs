//! Where a loaded model's memory is and what its threads have done, for reports and proofs.

use crate::engine::Engine;
use crate::error::Error;
use graph::{Counts, Plan, WaitCounts};
use memory::{Pages, Policy};
use threads::ThreadStats;
use topology::NodeId;

/// Where memory is, as the kernel says.
#[derive(Clone, Debug)]
pub struct Placement {
    /// Every arena of the model.
    pub arenas: Vec<ArenaPlacement>,
    /// For every group of threads, where the weights are that it streams.
    pub groups: Vec<GroupPlacement>,
}

/// One arena.
#[derive(Clone, Debug)]
pub struct ArenaPlacement {
    /// `weights`, `KV pages` or `activations`.
    pub name: &'static str,
    /// The group of threads whose own it is; `None` if several groups share it.
    pub group: Option<usize>,
    /// Where its pages were to come from.
    pub policy: Policy,
    /// Bytes given out.
    pub bytes: usize,
    /// Where its pages are.
    pub pages: Pages,
    /// Bytes on huge pages.
    pub huge_bytes: u64,
}

impl ArenaPlacement {
    /// Pages on a node that the policy does not name.
    pub fn misplaced(&self) -> usize {
        let right = |node: &NodeId| match &self.policy {
            Policy::Default => true,
            Policy::Bind(home) => node == home,
            Policy::Interleave(nodes) => nodes.contains(node),
        };
        self.pages.by_node.iter().filter(|(node, _)| !right(node)).map(|(_, pages)| pages).sum()
    }
}

/// One group of threads.
#[derive(Clone, Debug)]
pub struct GroupPlacement {
    /// Its node; `None` on a machine without.
    pub node: Option<NodeId>,
    /// Its threads.
    pub threads: usize,
    /// Pages of the weights that they stream.
    pub streamed: Pages,
}

impl Placement {
    /// Pages on the wrong node, in all arenas.
    pub fn misplaced(&self) -> usize {
        self.arenas.iter().map(ArenaPlacement::misplaced).sum()
    }

    /// Pages of a group's own memory that are on the wrong node, and all that are anywhere; `None` if it has no memory
    /// of its own.
    pub fn misplaced_of(&self, group: usize) -> Option<(u64, u64)> {
        let own = self.arenas.iter().filter(|arena| arena.group == Some(group));
        own.map(|arena| (arena.misplaced() as u64, arena.pages.present() as u64))
            .reduce(|(wrong, all), (more, of)| (wrong + more, all + of))
    }

    /// How much of what a group reads is on other nodes than its own; `None` if it has none.
    pub fn elsewhere(&self, group: usize) -> Option<Elsewhere> {
        let at = &self.groups[group];
        let node = at.node?;
        let kv = self.arenas.iter().filter(|a| a.name == "KV pages");
        let kv = kv.filter(|a| a.group.is_none_or(|owner| owner == group));
        let (away, present) = kv.fold((0, 0), |(away, present), arena| {
            (away + arena.pages.elsewhere(node), present + arena.pages.present())
        });
        let share = |of: usize, all: usize| if all > 0 { of as f64 / all as f64 } else { 0.0 };
        let weights = share(at.streamed.elsewhere(node), at.streamed.present());
        Some(Elsewhere { weights, kv: share(away, present) })
    }
}

/// Shares of what a group reads that are on other nodes than its own, of pages that are there.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Elsewhere {
    /// Of the weights that it streams.
    pub weights: f64,
    /// Of the KV pages that it reads.
    pub kv: f64,
}

/// Bytes that the threads of one group moved, by the book.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub struct Moved {
    /// Of weights that they streamed.
    pub weights: f64,
    /// Of keys and values that they read.
    pub kv: f64,
    /// Of other places' memory that they read or wrote.
    pub exchanged: f64,
}

impl Moved {
    /// Bytes of other nodes' memory, if so much of what was read is there.
    pub fn remote(&self, elsewhere: Elsewhere) -> f64 {
        self.exchanged + self.weights * elsewhere.weights + self.kv * elsewhere.kv
    }
}

/// What a model's threads have done since it was loaded or the counts were reset.
#[derive(Clone, Debug)]
pub struct Activity {
    /// By the book: what the compiled programs say.
    pub counts: Counts,
    /// Waits of each thread of the pool, by the book.
    pub waits: Vec<WaitCounts>,
    /// As measured, for each thread of the pool; zeros unless loaded with
    /// [`stats`](crate::LoadOptions::stats).
    pub threads: Vec<ThreadStats>,
    /// Times that tokens went to each expert: `[router][expert]`.
    pub experts: Vec<Vec<u64>>,
}

impl Activity {
    /// What the threads of a group have moved: nothing before the first step. Groups that share a
    /// place share its bytes by their threads.
    pub fn moved(&self, plan: &Plan, group: usize) -> Moved {
        let place = |at: usize| self.counts.places.get(at).copied().unwrap_or_default();
        let (place, share) = match plan.places() == plan.groups.len() {
            true => (place(group), 1.0),
            false => (place(0), plan.groups[group].cpus.len() as f64 / plan.threads() as f64),
        };
        let of = |bytes: u64| bytes as f64 * share;
        Moved { weights: of(place.weights), kv: of(place.kv), exchanged: of(place.exchanged) }
    }

    /// Whether every thread has waited as often as its program says. `false` also when nothing was
    /// measured.
    pub fn waits_as_compiled(&self) -> bool {
        self.counts.steps > 0
            && self.waits.len() == self.threads.len()
            && self.waits.iter().zip(&self.threads).all(|(book, t)| {
                // A pool of one group knows no global waits.
                t.local.count + t.global.count == book.local + book.global
                    && (t.global.count == book.global || t.global.count == 0)
            })
    }
}

impl Engine {
    /// Asks the kernel where every page of the model is: about 0.1 µs a page.
    ///
    /// # Errors
    /// When the kernel does not answer: no NUMA, or a container forbids the question.
    pub fn placement(&self) -> Result<Placement, Error> {
        let executor = &self.executor;
        let arenas = executor
            .arenas()
            .zip(owners(executor.plan()))
            .map(|(arena, group)| {
                let block = arena.given_out();
                Ok(ArenaPlacement {
                    name: arena.name(),
                    group,
                    policy: arena.policy().clone(),
                    bytes: arena.used(),
                    pages: memory::pages_by_node(block)?,
                    huge_bytes: memory::huge_bytes(block)?,
                })
            })
            .collect::<Result<_, Error>>()?;
        let groups = executor.plan().groups.iter().enumerate();
        let groups = groups
            .map(|(at, group)| {
                Ok(GroupPlacement {
                    node: group.node,
                    threads: group.cpus.len(),
                    streamed: executor.streamed_pages(at)?,
                })
            })
            .collect::<Result<_, Error>>()?;
        Ok(Placement { arenas, groups })
    }

    /// What the threads have done.
    pub fn activity(&mut self) -> Activity {
        let executor = &mut self.executor;
        let (counts, experts) = (executor.counts().clone(), executor.chosen_experts());
        let waits = counts.waits_of_threads(executor.plan());
        Activity { counts, waits, threads: executor.pool().stats(), experts }
    }

    /// Counts anew from here.
    pub fn reset_activity(&mut self) {
        self.executor.reset_counts();
    }

    /// What the threads have done, and counts anew from here.
    pub fn take_activity(&mut self) -> Activity {
        let activity = self.activity();
        self.reset_activity();
        activity
    }
}

/// The group whose own each arena is, in the order in which an executor lists them: weights by copy;
/// for each place what its threads share, activations and KV pages; the private buffers of each
/// group.
fn owners(plan: &Plan) -> impl Iterator<Item = Option<usize>> {
    let (copies, places, groups) = (plan.weight_copies(), plan.places(), plan.groups.len());
    let own = move |at, of| if of == groups { Some(at) } else { None };
    let weights = (0..copies).map(move |copy| own(copy, copies));
    let shared = (0..places).flat_map(move |place| [own(place, places); 2]);
    weights.chain(shared).chain((0..groups).map(Some))
}
