//! The executor: a loaded model that takes steps.

mod pages;
mod report;

use crate::adapter::{Adapted, LowRank};
use crate::book::Counts;
use crate::buffer::{BufId, Buffers};
use crate::compile::Stage;
use crate::error::Error;
use crate::exec::{self, LocalReplica, Replica, StepPart, replicate, tile_tokens};
use crate::graph::Graph;
use crate::inset::Together;
use crate::levels::Levels;
use crate::load::{PackProgress, Weights};
use crate::logits::{Logits, Table};
use crate::placement::share;
use crate::places::Scratch;
use crate::plan::{FormLimits, Plan, StepShape};
use crate::profile::Recorder;
use crate::programs::Compiled;
use crate::squares::{Squares, TensorSquares};
use crate::stages::Spans;
use crate::state::State;
use crate::step::{self, Ids, Outputs, Recalled, SeqInput, StepInput};
use crate::storage::{Limits, Sizes, Storage};
use crate::tally::Tally;
use crate::variant::Variant;
use crate::weight::WeightSource;
use kernels::{Kernels, KvTypes};
use memory::Block;
use std::sync::{Mutex, PoisonError};
use threads::{Pool, Worker};
use topology::Machine;

/// A graph with its weights, its memory and its threads.
pub struct Executor {
    pub(crate) replicas: Vec<LocalReplica>, // [group]
    pub(crate) kernels: &'static Kernels,
    pub(crate) machine: Machine,
    limits: Limits,
    pub(crate) form: FormLimits,
    pub(crate) levels: Levels,
    pub(crate) forced: Option<Variant>,
    tile: usize,
    row_width: usize,
    input: StepInput,
    parts: Vec<StepInput>,  // of a step that goes through a pipeline in several
    remembered: [usize; 2], // tokens of the last step, and of the last that predicted
    pub(crate) logits: BufId,
    pub(crate) hidden: BufId,
    pub(crate) buffers: Buffers,
    pub(crate) scratch: Scratch,
    pub(crate) counts: Counts,
    tally: Tally,
    pub(crate) recorder: Option<Recorder>,
    pub(crate) squares: Option<Squares>,
    adapters: usize,
    refused: Option<String>,
    pub(crate) strayed: bool,
    /// Whether threads take over tiles of products from late ones.
    pub(crate) shares_products: bool,
    /// The plan of which some cores are [left out](Executor::leave_out).
    pub(crate) whole: Option<Plan>,
    // Dropped in this order: the threads first, then what they worked on.
    pub(crate) pool: Pool,
    pub(crate) storage: Storage,
    weights: Weights,
}

impl Executor {
    /// Makes the pool, allocates all memory and packs the weights.
    ///
    /// `progress` is called whenever some of the weights are packed, on the calling thread, which becomes the pool's
    /// first worker: call [`Executor::step`] from the same thread.
    ///
    /// # Errors
    /// When the plan's phases or schedules are malformed, a thread or memory cannot be had, a node of
    /// `machine` has too little of it, the weights do not fit the graph, or a pipeline has more stages than
    /// layers.
    ///
    /// # Panics
    /// When the graph was built for another number of nodes than the plan wants.
    pub fn new(
        graph: Graph,
        plan: Plan,
        limits: Limits,
        kernels: &'static Kernels,
        machine: &Machine,
        source: &dyn WeightSource,
        progress: &mut dyn FnMut(PackProgress),
    ) -> Result<Executor, Error> {
        assert_eq!(plan.graph_nodes(), graph.nodes(), "the plan must fit the graph");
        plan.check()?;
        let spans = Spans::new(&graph, &plan)?;
        let mut pool = Pool::new(&plan.pool(machine))?;
        let mut refused = None;
        if plan.pin && machine.nodes().len() > 1 {
            // The first job pins this thread; what it touches from then on is near.
            pool.run(&|_| {})?;
            let home = plan.groups[0].node.map(memory::bring_home);
            refused = home.and_then(Result::err).map(|e| {
                format!("mbind: {e}: the first thread's stack and heap stay where they are")
            });
        }
        let mut weights = Weights::allocate(&graph, &plan, &spans, kernels)?;
        let asked = weights.weight_table.splits_asked();
        let Compiled { programs, mut buffers, scratch } =
            Compiled::new(&graph, &plan, &spans, limits, &asked);
        let levels = Levels::of(&plan, &weights.weight_table);
        let form = form_limits(&graph, &plan, limits.ranges, limits.kv);
        let (logits, hidden) = (buffers.logits(), buffers.hidden(form.hidden));
        let sizes = Sizes { limits, private_rows: form.private_rows, scratch };
        let storage = Storage::new(&graph, &buffers, &plan, &spans, sizes)?;
        // A full node that an arena is bound to would end the process.
        let arenas = weights.arenas().iter().chain(storage.arenas());
        let needs = arenas.filter_map(|a| Some((a.node()?, a.used() as u64)));
        memory::check_room(machine, needs)?;
        weights.pack_all(&graph, &mut pool, source, progress)?;
        let (tile, row_width) = (query_tile(&graph), graph.row_width());
        let (places, weight_table) = (storage.places.clone(), weights.weight_table.clone());
        let replica = Replica { graph, plan, programs, places, weight_table };
        let counts = Counts::new(&replica.plan);
        let tally = Tally::new(replica.graph.routed(), replica.plan.pieces(limits.tokens));
        let replicas = replicate(replica, &mut pool)?;
        Ok(Executor {
            replicas,
            buffers,
            scratch,
            counts,
            tally,
            recorder: None,
            squares: None,
            adapters: 0,
            refused,
            strayed: false,
            shares_products: false,
            whole: None,
            kernels,
            machine: machine.clone(),
            limits,
            form,
            levels,
            forced: None,
            tile,
            row_width,
            input: StepInput::default(),
            parts: Vec::new(),
            remembered: [0; 2],
            logits,
            hidden,
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
        self.step_adapted(sequences, std::iter::empty())
    }

    /// The same where sequences have adapters ([`Executor::set_adapters`]): `sets` has those of each sequence in
    /// turn, and may end before. Logits of a sequence without any are bit for bit those of a step without.
    ///
    /// # Errors
    /// As [`Executor::step`], and when there is no such adapter, or a sequence has one twice.
    pub fn step_adapted<'s>(
        &mut self,
        sequences: impl Iterator<Item = SeqInput<'s>> + Clone,
        sets: impl Iterator<Item = &'s [Adapted]> + Clone,
    ) -> Result<Logits<'_>, Error> {
        for (at, set) in sets.clone().enumerate() {
            for (i, one) in set.iter().enumerate() {
                let number = one.adapter;
                if number as usize >= self.adapters {
                    let all = self.adapters;
                    return Err(Error::BadStep(format!(
                        "sequence {at} has adapter {number} of {all}"
                    )));
                }
                if set[..i].iter().any(|other| other.adapter == number) {
                    return Err(Error::BadStep(format!(
                        "sequence {at} has adapter {number} twice"
                    )));
                }
            }
        }
        self.prepare(sequences.clone())?;
        let lens = sequences.clone().map(|s| s.tokens.len());
        self.input.adapt(lens.zip(sets.clone()));
        let pieces = self.split(sequences, sets)?;
        self.remembered = [self.input.tokens.len(), 0];
        self.take(pieces, false)?;
        Ok(self.logits())
    }

    /// Computes one step of the operators that predict further tokens. `recalled` says of every token in turn which
    /// hidden state it comes with: that of the token before it. Keys and values of predicting layers are
    /// appended; what the model's layers keep stays as it is.
    ///
    /// # Errors
    /// As [`Executor::step`], and when the graph has no such operators, or one of the hidden states is not there.
    pub fn predict<'s>(
        &mut self,
        sequences: impl Iterator<Item = SeqInput<'s>> + Clone,
        recalled: impl Iterator<Item = Recalled>,
    ) -> Result<Logits<'_>, Error> {
        if self.graph().predicting_ops().is_none() {
            return Err(Error::BadStep("the graph has nothing that predicts".to_owned()));
        }
        self.prepare(sequences)?;
        self.input.recalled.extend(recalled);
        let [model, predicted] = self.remembered.map(|rows| rows as u32);
        let there = |recalled: &Recalled| match *recalled {
            Recalled::Nothing => true,
            Recalled::Step(at) => at < model,
            Recalled::Predicted(at) => at < predicted,
        };
        let StepInput { recalled, tokens, .. } = &self.input;
        if recalled.len() != tokens.len() || !recalled.iter().all(there) {
            return Err(Error::BadStep(format!(
                "{} tokens come with {recalled:?} of {model} and {predicted}",
                tokens.len()
            )));
        }
        self.remembered[1] = tokens.len();
        self.take(1, true)?;
        Ok(self.logits())
    }

    /// Checks a step and derives its work items.
    fn prepare<'s>(
        &mut self,
        sequences: impl Iterator<Item = SeqInput<'s>> + Clone,
    ) -> Result<(), Error> {
        let graph = &self.replicas[0].graph;
        let logits = |outputs| matches!(outputs, Outputs::Last | Outputs::Tail(_) | Outputs::All);
        if !graph.has_head() && sequences.clone().any(|seq| logits(seq.outputs)) {
            return Err(Error::NoLogits);
        }
        let ids = Ids { width: self.row_width, ..graph.token_ids() };
        self.input.set(sequences, ids, &graph.classes, &self.limits.pages, self.tile)?;
        let check = |what, got, max| match got > max {
            true => Err(Error::StepTooLarge { what, got, max }),
            false => Ok(()),
        };
        check("tokens", self.input.tokens.len(), self.limits.tokens)?;
        check("outputs", self.input.outputs.len(), self.limits.outputs)
    }

    /// Executes the prepared step in so many parts.
    fn take(&mut self, pieces: usize, predicts: bool) -> Result<(), Error> {
        let level = self.levels.of_step(self.input.tokens.len());
        let inputs = match pieces {
            1 => std::slice::from_ref(&self.input),
            _ => &self.parts[..pieces],
        };
        let (mut logits_before, mut hidden_before, mut at) = (0, 0, 0);
        let tally = &self.tally;
        let mut part = |input| {
            let limits = self.form_at(level, input);
            let variant = choose(input, &self.replicas[0].plan, limits, self.forced);
            let adapts = !predicts && !input.uses[0].is_empty();
            let variant = Variant { predicts, adapts, ..variant };
            let tally = Some(tally);
            let part = StepPart { input, variant, logits_before, hidden_before, at, tally };
            at += 1;
            logits_before += part.input.logits;
            hidden_before += part.input.outputs.len() - part.input.logits;
            part
        };
        // One part, the usual case, allocates nothing.
        let (one, many);
        let parts: &[StepPart<'_>] = if let [input] = inputs {
            one = [part(input)];
            &one
        } else {
            many = inputs.iter().map(part).collect::<Vec<_>>();
            &many
        };
        let (replicas, kernels) = (&self.replicas, self.kernels);
        let policy = replicas[0].plan.tasks;
        let shares = self.shares_products && policy.is_some_and(threads::Policy::steals);
        if let Some(shadow) = &self.storage.places.shadow {
            shadow.begin(parts.len() + replicas[0].plan.groups.len());
        }
        match &mut self.recorder {
            _ if let Some(squares) = &self.squares => {
                self.pool.run_on(level, &|worker| {
                    exec::run(replicas, kernels, parts, level, shares, worker, &mut &*squares);
                })?;
            }
            None => {
                self.pool.run_on(level, &|worker| {
                    exec::run(replicas, kernels, parts, level, shares, worker, &mut ());
                })?;
            }
            Some(recorder) => {
                recorder.begin_step(parts, level, parts.len() + self.replicas[0].plan.groups.len());
                let log = |worker: &Worker| recorder.watch(worker.thread());
                let ran = self.pool.run_on(level, &|worker| {
                    exec::run(replicas, kernels, parts, level, shares, worker, &mut *log(worker));
                });
                recorder.end_step();
                ran?;
            }
        }
        if !self.strayed && self.pool.strayed().next().is_some() {
            // Threads may share a CPU now.
            self.strayed = true;
            self.pool.stop_spinning();
        }
        self.counts.add(&self.replicas[0], parts, level);
        Ok(())
    }

    /// Begins to sum the squares of what steps multiply, which takes some of their time. What a profile records
    /// meanwhile is nothing.
    pub fn begin_squares(&mut self) {
        self.squares = Some(Squares::new(self.graph().matrices()));
    }

    /// Ends that, and gives the sums of every tensor that was multiplied by.
    pub fn take_squares(&mut self) -> Vec<TensorSquares> {
        let squares = self.squares.take();
        squares.map(|squares| squares.take(self.graph().matrices())).unwrap_or_default()
    }

    /// What the form of a part of a step depends on at a level.
    pub(crate) fn form_at(&self, level: usize, input: &StepInput) -> FormLimits {
        let splits = self.levels.splits(level, input.tokens.len());
        FormLimits { team_threads: self.levels.team_threads(level), splits, ..self.form }
    }

    /// Whether an adapter fits the model.
    ///
    /// # Errors
    /// When it does not: the error names the tensor.
    pub fn check_adapter(&self, adapter: &[LowRank]) -> Result<(), Error> {
        self.graph().clone().set_adapters(&[adapter])
    }

    /// Loads adapters, in place of those before: sequences may have each by its number. The model stays as it is.
    /// Counts begin anew, a recording ends, and the last step's logits are gone.
    ///
    /// # Errors
    /// When an adapter does not fit the model, or a node has too little memory. Nothing is changed then.
    pub fn set_adapters(&mut self, adapters: &[&[LowRank]]) -> Result<(), Error> {
        let mut first: Replica = (*self.replicas[0]).clone();
        first.graph.set_adapters(adapters)?;
        let plan = first.plan.clone();
        let arenas = first.weight_table.place_lows(&first.graph, &plan)?;
        let needs = arenas.iter().filter_map(|a| Some((a.node()?, a.used() as u64)));
        memory::check_room(&self.machine, needs)?;
        first.weight_table.pack_lows(&first.graph, adapters, &mut self.pool)?;
        self.adopt_from(first, plan, None, 1)?;
        self.reset_counts();
        self.weights.keep_adapters(arenas);
        self.adapters = adapters.len();
        Ok(())
    }

    /// Cuts a step into the parts that follow each other through a pipeline; how many there are.
    fn split<'s>(
        &mut self,
        sequences: impl Iterator<Item = SeqInput<'s>> + Clone,
        sets: impl Iterator<Item = &'s [Adapted]> + Clone,
    ) -> Result<usize, Error> {
        let tokens = self.input.tokens.len();
        let pieces = self.replicas[0].plan.pieces(tokens);
        // Rows that see each other are one part.
        let together =
            |s: SeqInput<'_>| s.insets.iter().any(|inset| inset.together != Together::No);
        if pieces == 1 || sequences.clone().any(together) {
            return Ok(1);
        }
        self.parts.resize_with(pieces.max(self.parts.len()), StepInput::default);
        let graph = &self.replicas[0].graph;
        let mut before = 0;
        for (at, part) in self.parts[..pieces].iter_mut().enumerate() {
            let range = share(tokens, pieces, at);
            debug_assert_eq!(range.start, before);
            before = range.end;
            let ids = Ids { width: self.row_width, ..graph.token_ids() };
            let pieces = step::cut(sequences.clone(), range.clone());
            part.set(pieces, ids, &graph.classes, &self.limits.pages, self.tile)?;
            let lens = step::within(sequences.clone(), range).map(|(_, own)| own.len());
            part.adapt(lens.zip(sets.clone()));
        }
        Ok(pieces)
    }

    /// The logits and hidden states of the last step.
    pub fn logits(&self) -> Logits<'_> {
        results(&self.storage, self.tables())
    }

    /// Where these are: buffer, rows, and width of a row.
    fn tables(&self) -> [(BufId, usize, usize); 2] {
        let StepInput { outputs, logits, .. } = &self.input;
        [
            (self.logits, *logits, self.replicas[0].graph.logits_width()),
            (self.hidden, outputs.len() - logits, self.form.hidden),
        ]
    }

    /// Does `work` for each of these with the last step's results, on the threads that took the step. Each takes the
    /// next one that nobody has begun; one alone is done by the calling thread.
    ///
    /// # Errors
    /// When `work` panicked.
    pub fn each<T: Send>(
        &mut self,
        items: &mut [T],
        work: impl Fn(Logits<'_>, &mut T) + std::marker::Sync,
    ) -> Result<(), Error> {
        let results = results(&self.storage, self.tables());
        if let [item] = items {
            work(results, item);
            return Ok(());
        }
        let level = self.levels.of_step(self.input.tokens.len());
        let items = Mutex::new(items.iter_mut());
        let next = || items.lock().unwrap_or_else(PoisonError::into_inner).next();
        self.pool.run_on(level, &|_| {
            while let Some(item) = next() {
                work(results, item);
            }
        })?;
        Ok(())
    }

    /// Makes every following step that can be run in form `variant` use it; `None` leaves the choice
    /// to the plan again. For tests and measurements: all forms give the same bits.
    ///
    /// # Errors
    /// When no such form is compiled.
    pub fn force_variant(&mut self, variant: Option<Variant>) -> Result<(), Error> {
        if let Some(v) = variant.filter(|v| !self.replicas[0].programs.contains_key(v)) {
            return Err(Error::BadStep(format!("no program is compiled for {v:?}")));
        }
        self.forced = variant;
        Ok(())
    }

    /// The graph.
    pub fn graph(&self) -> &Graph {
        &self.replicas[0].graph
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.replicas[0].plan
    }

    /// The limits.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// The kernels in use.
    pub fn kernels(&self) -> &'static Kernels {
        self.kernels
    }

    /// The compiled stages of a form, for each stage of a pipeline (one where there is none).
    pub fn program(&self, variant: Variant) -> Option<&[Vec<Stage>]> {
        self.replicas[0].programs.get(&variant).map(|f| f.stages.as_slice())
    }

    /// The pool, for measurements on the model's own threads.
    pub fn pool(&mut self) -> &mut Pool {
        &mut self.pool
    }
}

/// Rows of logits and of hidden states.
fn results(storage: &Storage, tables: [(BufId, usize, usize); 2]) -> Logits<'_> {
    let [logits, hidden] = tables.map(|(buffer, rows, width)| {
        let block: Block = storage.places.on(buffer, 0);
        // SAFETY: no step is under way while somebody has them: one needs the executor to itself until its threads are
        // done, and nothing else writes what is the caller's.
        let values = unsafe { block.as_slice::<f32>() };
        Table::new(values, rows, storage.places.stride(buffer, 0) / size_of::<f32>(), width)
    });
    Logits::new(logits, hidden)
}

/// The form in which a part of a step is executed.
fn choose(input: &StepInput, plan: &Plan, limits: FormLimits, forced: Option<Variant>) -> Variant {
    let shape = StepShape {
        tokens: input.tokens.len(),
        outputs: input.outputs.len(),
        ranges: input.ranges(),
        tiles: input.tiles.len(),
        single: input.single,
    };
    let forced = forced.filter(|v| v.fits(shape, limits));
    let variant = forced.unwrap_or_else(|| plan.variant(shape, limits));
    debug_assert!(variant.fits(shape, limits));
    variant
}

/// Tokens of a query tile, the same in all layers.
pub(crate) fn query_tile(graph: &Graph) -> usize {
    graph.tables.states.iter().filter_map(State::heads).map(tile_tokens).min().unwrap_or(1)
}

/// What the choice depends on when `ranges` (token, KV range) pairs fit.
pub(crate) fn form_limits(graph: &Graph, plan: &Plan, ranges: usize, kv: KvTypes) -> FormLimits {
    let hidden = graph.hidden_width();
    let nodes = 0..graph.nodes();
    let heads = || graph.tables.states.iter().filter_map(State::heads);
    let caches = || nodes.clone().flat_map(|n| heads().map(move |heads| (heads, n)));
    FormLimits {
        private_rows: plan.private_rows(hidden),
        hidden,
        nodes: graph.nodes(),
        states: ranges,
        state_elements: caches()
            .map(|(h, n)| h.q_len(n) * kernels::attn_state_len(h.stored(kv)))
            .max()
            .unwrap_or(0),
        kv_heads: caches().map(|(h, n)| h.kv_len(n)).filter(|&n| n > 0).min().unwrap_or(1),
        // These two depend on the step.
        team_threads: plan.threads(),
        splits: 1,
    }
}
