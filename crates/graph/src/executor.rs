//! The executor: a loaded model that takes steps.

use crate::buffer::{BufId, Buffers};
use crate::builder::Graph;
use crate::compile::{Stage, compile};
use crate::error::Error;
use crate::exec::{self, Step, tile_tokens};
use crate::load::{Progress, Weights};
use crate::lower::{Variant, lower};
use crate::op::Op;
use crate::plan::{FormLimits, Plan, StepShape};
use crate::step::{Prepared, SeqInput};
use crate::storage::{Limits, NodeBytes, Storage};
use crate::weight::WeightSource;
use kernels::Kernels;
use memory::Block;
use std::collections::HashMap;
use threads::{GroupSpec, Pool, PoolSpec};

/// A graph with its weights, its memory and its threads.
pub struct Executor {
    graph: Graph,
    plan: Plan,
    kernels: &'static Kernels,
    limits: Limits,
    form: FormLimits,
    programs: HashMap<Variant, Vec<Stage>>,
    forced: Option<Variant>,
    tile: usize,
    input: Prepared,
    logits: BufId,
    // Dropped in this order: the threads first, then what they worked on.
    pool: Pool,
    storage: Storage,
    weights: Weights,
}

/// Logits of one step: a row of `vocab` f32 for every output that was asked for.
#[derive(Copy, Clone, Debug)]
pub struct Logits<'a> {
    values: &'a [f32],
    rows: usize,
    stride: usize,
    vocab: usize,
}

impl<'a> Logits<'a> {
    /// Number of rows.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Whether nobody asked for logits.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Row `i`, in the order of sequences and their tokens: `[vocab]`.
    ///
    /// # Panics
    /// When there are not so many rows.
    pub fn row(&self, i: usize) -> &'a [f32] {
        assert!(i < self.rows, "row {i} of {} rows of logits", self.rows);
        &self.values[i * self.stride..][..self.vocab]
    }
}

impl Executor {
    /// Makes the pool, allocates all memory and packs the weights.
    ///
    /// `progress` is called after each matrix, on the calling thread, which becomes the pool's
    /// first worker: call [`Executor::step`] from the same thread.
    ///
    /// # Errors
    /// When a thread or memory cannot be had, or the weights do not fit the graph.
    ///
    /// # Panics
    /// When the plan has another number of groups than the graph has nodes.
    pub fn new(
        graph: Graph,
        plan: Plan,
        limits: Limits,
        kernels: &'static Kernels,
        source: &dyn WeightSource,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Executor, Error> {
        assert_eq!(plan.groups.len(), graph.nodes, "the plan must fit the graph");
        let groups = plan.groups.iter().map(|g| GroupSpec { cpus: g.cpus.clone() }).collect();
        let mut pool = Pool::new(&PoolSpec { groups, pin: plan.pin, ..PoolSpec::default() })?;
        let mut buffers = Buffers::new(graph.nodes, graph.vocab);
        let programs: HashMap<Variant, Vec<Stage>> = Variant::all(graph.nodes)
            .into_iter()
            .map(|v| (v, lower(&graph, v, &mut buffers)))
            .collect::<Vec<_>>()
            .into_iter()
            .map(|(v, instrs)| (v, compile(instrs, &buffers, graph.nodes, plan.sync)))
            .collect();
        let logits = buffers.logits();
        let form = form_limits(&graph, &plan, limits);
        let scratch = exec::scratch_len(&graph, programs.values().flatten());
        let storage = Storage::new(&graph, &buffers, &plan, limits, form.private_rows, scratch)?;
        let weights = Weights::load(&graph, &plan, &mut pool, source, progress)?;
        let tile = graph.caches.iter().map(tile_tokens).min().unwrap_or(1);
        Ok(Executor {
            graph,
            plan,
            kernels,
            limits,
            form,
            programs,
            forced: None,
            tile,
            input: Prepared::default(),
            logits,
            pool,
            storage,
            weights,
        })
    }

    /// Computes one step: appends the keys and values of all new tokens to their pages and returns
    /// the logits that were asked for.
    ///
    /// # Errors
    /// When the step is malformed or larger than the limits; nothing is changed then. When a worker
    /// panicked; the contents of the pages that were written to are undefined then.
    pub fn step<'s>(
        &mut self,
        sequences: impl Iterator<Item = SeqInput<'s>> + Clone,
    ) -> Result<Logits<'_>, Error> {
        self.input.set(sequences, self.graph.vocab, self.limits.pages, self.tile)?;
        let check = |what, got, max| match got > max {
            true => Err(Error::StepTooLarge { what, got, max }),
            false => Ok(()),
        };
        check("tokens", self.input.tokens.len(), self.limits.tokens)?;
        check("rows of logits", self.input.outputs.len(), self.limits.outputs)?;
        let shape = self.shape();
        let forced = self.forced.filter(|v| v.fits(shape, self.form));
        let variant = forced.unwrap_or_else(|| self.plan.variant(shape, self.form));
        debug_assert!(variant.fits(shape, self.form));
        let step = Step {
            graph: &self.graph,
            kernels: self.kernels,
            plan: &self.plan,
            storage: &self.storage,
            weights: &self.weights,
            input: &self.input,
            stages: &self.programs[&variant],
        };
        self.pool.run(&|worker| exec::run(&step, worker))?;
        Ok(self.logits())
    }

    /// The logits of the last step.
    pub fn logits(&self) -> Logits<'_> {
        let block: Block = self.storage.on(self.logits, 0);
        // SAFETY: no step is under way: one needs `&mut self` until its threads are done.
        let values = unsafe { block.as_slice::<f32>() };
        let stride = self.storage.stride(self.logits, 0) / size_of::<f32>();
        Logits { values, rows: self.input.outputs.len(), stride, vocab: self.graph.vocab }
    }

    fn shape(&self) -> StepShape {
        StepShape {
            tokens: self.input.tokens.len(),
            outputs: self.input.outputs.len(),
            ranges: self.input.ranges.len(),
            tiles: self.input.tiles.len(),
            single: self.input.single,
        }
    }

    /// Makes every following step that can be run in form `variant` use it; `None` leaves the choice
    /// to the plan again. For tests and measurements: all forms give the same bits.
    ///
    /// # Errors
    /// When no such form is compiled.
    pub fn force_variant(&mut self, variant: Option<Variant>) -> Result<(), Error> {
        if let Some(v) = variant.filter(|v| !self.programs.contains_key(v)) {
            return Err(Error::BadStep(format!("no program is compiled for {v:?}")));
        }
        self.forced = variant;
        Ok(())
    }

    /// The graph.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The limits.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// The kernels in use.
    pub fn kernels(&self) -> &'static Kernels {
        self.kernels
    }

    /// The compiled stages of a form.
    pub fn program(&self, variant: Variant) -> Option<&[Stage]> {
        self.programs.get(&variant).map(Vec::as_slice)
    }

    /// Bytes of weights, KV pages and activations on each node.
    pub fn node_bytes(&self) -> Vec<NodeBytes> {
        let weights = self.weights.bytes();
        self.storage
            .bytes()
            .iter()
            .zip(weights)
            .map(|(b, weights)| NodeBytes { weights, ..*b })
            .collect()
    }

    /// What the system refused when threads and memory were made; the model works regardless.
    pub fn warnings(&self) -> Vec<String> {
        let pins = self.pool.warnings().iter().map(ToString::to_string);
        pins.chain(self.storage.warnings()).chain(self.weights.warnings()).collect()
    }

    /// The pool, for measurements on the model's own threads.
    pub fn pool(&mut self) -> &mut Pool {
        &mut self.pool
    }
}

fn form_limits(graph: &Graph, plan: &Plan, limits: Limits) -> FormLimits {
    let hidden = graph
        .ops
        .iter()
        .find_map(|n| matches!(n.op, Op::Embed { .. }).then(|| graph.bundle(n.out).width))
        .unwrap_or(1);
    let nodes = 0..graph.nodes;
    let caches = || nodes.clone().flat_map(|n| graph.caches.iter().map(move |h| (h, n)));
    FormLimits {
        private_rows: plan.private_rows(hidden),
        hidden,
        nodes: graph.nodes,
        states: limits.ranges,
        state_elements: caches()
            .map(|(h, n)| h.q_len(n) * kernels::attn_state_len(h.dim))
            .max()
            .unwrap_or(0),
        kv_heads: caches().map(|(h, n)| h.kv_len(n)).filter(|&n| n > 0).min().unwrap_or(1),
        group_threads: plan.groups.iter().map(|g| g.cpus.len()).max().unwrap_or(1),
    }
}
