//! The engine: a loaded model and its sequences.

use crate::error::Error;
use crate::file::ModelFile;
use crate::kv::{KvCache, SeqId};
use crate::options::LoadOptions;
use graph::{
    Executor, Limits, Logits, NodeBytes, Outputs, Plan, PlanGroup, SeqInput, Shares, WeightSource,
    WeightView,
};
use kernels::{KV_CHUNK, KV_PAGE, Kernels};
use models::{Hparams, Model};
use std::time::{Duration, Instant};
use topology::{Layout, Machine};

/// Tokens in a step unless asked otherwise: enough rows that the weights' unpacking and their way
/// from memory are paid for, few enough that activations stay small.
const STEP_TOKENS: usize = 512;

/// How far loading has come.
#[derive(Copy, Clone, Debug)]
pub struct LoadProgress {
    /// Packed bytes so far.
    pub done: usize,
    /// Packed bytes in all.
    pub total: usize,
}

/// What loading did and how long each part took.
#[derive(Clone, Debug)]
pub struct LoadReport {
    /// Validating the file and building the graph.
    pub build: Duration,
    /// Starting threads, allocating, and packing the weights.
    pub pack: Duration,
    /// Bytes on each node.
    pub nodes: Vec<NodeBytes>,
    /// What was not as it should be; everything works regardless.
    pub warnings: Vec<String>,
}

/// New tokens of one sequence in a step.
#[derive(Copy, Clone, Debug)]
pub struct BatchEntry<'a> {
    /// Whose.
    pub sequence: SeqId,
    /// At least one.
    pub tokens: &'a [u32],
    /// Whose logits are wanted.
    pub outputs: Outputs,
}

/// A loaded model and its sequences.
///
/// The thread that loads an engine is its first worker; take steps from the same thread.
pub struct Engine {
    executor: Executor,
    kv: KvCache,
    hparams: Hparams,
    context: usize,
    report: LoadReport,
}

impl Engine {
    /// Loads a model: one engine per call, one set of threads per engine.
    ///
    /// # Errors
    /// When the file is malformed or its model unsupported, an option is out of range, or memory
    /// or threads cannot be had.
    pub fn load(
        file: &ModelFile,
        options: &LoadOptions,
        progress: &mut dyn FnMut(LoadProgress),
    ) -> Result<Engine, Error> {
        let start = Instant::now();
        options.check()?;
        let kernels = Kernels::detect()?;
        let gguf = file.gguf()?;
        let machine = Machine::read()?;
        let (model, layout) = divide(&gguf, &machine, options)?;
        let Model { hparams, graph } = model;
        let sequences = options.sequences.unwrap_or(1);
        let context = context(&hparams, &graph, &machine, options, sequences)?;
        let ranges = context.div_ceil(KV_CHUNK);
        let limits = Limits {
            kv: options.kv,
            tokens: options.step_tokens.unwrap_or(STEP_TOKENS),
            outputs: options.step_outputs.unwrap_or(sequences),
            pages: context.div_ceil(KV_PAGE) * sequences,
            ranges: ranges * sequences.max(4),
        };
        let groups =
            layout.groups.into_iter().map(|g| PlanGroup { node: g.node, cpus: g.cpus }).collect();
        let plan = Plan { pin: !options.no_pin, ..Plan::new(groups) };
        let build = start.elapsed();
        tracing::info!(
            model = hparams.name,
            nodes = plan.groups.len(),
            threads = plan.threads(),
            kernels = %kernels.isa(),
            context,
            "loading"
        );
        let packing = Instant::now();
        let source = FileWeights { gguf: &gguf, file };
        let executor = Executor::new(graph, plan, limits, kernels, &source, &mut |p| {
            for tensor in p.tensors.iter().filter_map(|name| gguf.tensor(name)) {
                file.release(tensor.data);
            }
            progress(LoadProgress { done: p.done, total: p.total });
        })?;
        let notes = machine.notes().iter().cloned().chain(layout.notes);
        let report = LoadReport {
            build,
            pack: packing.elapsed(),
            nodes: executor.node_bytes(),
            warnings: notes.chain(executor.warnings()).collect(),
        };
        for warning in &report.warnings {
            tracing::warn!("{warning}");
        }
        let kv = KvCache::new(sequences, limits.pages, context);
        Ok(Engine { executor, kv, hparams, context, report })
    }

    /// Begins an empty sequence.
    ///
    /// # Errors
    /// When all sequences are in use.
    pub fn new_sequence(&mut self) -> Result<SeqId, Error> {
        self.kv.create()
    }

    /// Ends a sequence and frees its pages.
    ///
    /// # Errors
    /// When it does not exist.
    pub fn free(&mut self, sequence: SeqId) -> Result<(), Error> {
        self.kv.remove(sequence)
    }

    /// Tokens of a sequence that are in the cache.
    ///
    /// # Errors
    /// When it does not exist.
    pub fn len(&self, sequence: SeqId) -> Result<usize, Error> {
        self.kv.len(sequence)
    }

    /// Forgets all tokens of a sequence after the first `len`.
    ///
    /// # Errors
    /// When it does not exist.
    pub fn truncate(&mut self, sequence: SeqId, len: usize) -> Result<(), Error> {
        self.kv.truncate(sequence, len)
    }

    /// Computes one step over a batch of sequences and returns the logits that were asked for, in
    /// the batch's order.
    ///
    /// The logits of a sequence depend on its tokens only: not on the batch, on how its prompt is
    /// cut into steps, or on the number of threads.
    ///
    /// # Errors
    /// When a sequence is unknown, stands twice in the batch or is out of room, a token is outside
    /// of the vocabulary, or the step is larger than it was loaded for. No sequence has grown then.
    pub fn step(&mut self, batch: &[BatchEntry<'_>]) -> Result<Logits<'_>, Error> {
        for (i, entry) in batch.iter().enumerate() {
            if batch[..i].iter().any(|e| e.sequence == entry.sequence) {
                return Err(Error::RepeatedSequence(entry.sequence));
            }
        }
        for entry in batch {
            if let Err(e) = self.kv.reserve(entry.sequence, entry.tokens.len()) {
                self.give_back(batch);
                return Err(e);
            }
        }
        let kv = &self.kv;
        let inputs = batch.iter().map(|e| SeqInput {
            tokens: e.tokens,
            past: kv.len(e.sequence).expect("reserved above"),
            pages: kv.pages(e.sequence).expect("reserved above"),
            outputs: e.outputs,
        });
        match self.executor.step(inputs) {
            Ok(_) => {
                for entry in batch {
                    self.kv.advance(entry.sequence, entry.tokens.len())?;
                }
                Ok(self.executor.logits())
            }
            Err(e) => {
                self.give_back(batch);
                Err(e.into())
            }
        }
    }

    /// Returns pages that a failed step had reserved.
    fn give_back(&mut self, batch: &[BatchEntry<'_>]) {
        for entry in batch {
            if let Ok(len) = self.kv.len(entry.sequence) {
                let _ = self.kv.truncate(entry.sequence, len);
            }
        }
    }

    /// Sizes and names of the model.
    pub fn hparams(&self) -> &Hparams {
        &self.hparams
    }

    /// Tokens that one sequence can hold.
    pub fn context(&self) -> usize {
        self.context
    }

    /// KV pages that are not in use.
    pub fn free_pages(&self) -> usize {
        self.kv.free_pages()
    }

    /// What loading did.
    pub fn report(&self) -> &LoadReport {
        &self.report
    }

    /// The executor, for measurements.
    pub fn executor(&mut self) -> &mut Executor {
        &mut self.executor
    }

    /// Largest step.
    pub fn limits(&self) -> Limits {
        self.executor.limits()
    }
}

/// The tensors of a file whose pages are given back once they are packed.
struct FileWeights<'a> {
    gguf: &'a gguf::Gguf<'a>,
    file: &'a ModelFile,
}

impl WeightSource for FileWeights<'_> {
    fn tensor(&self, name: &str) -> Option<WeightView<'_>> {
        WeightSource::tensor(self.gguf, name)
    }

    fn release(&self, part: &[u8]) {
        self.file.release(part);
    }
}

/// Chooses groups of cores and builds the graph for them.
fn divide(
    gguf: &gguf::Gguf<'_>,
    machine: &Machine,
    options: &LoadOptions,
) -> Result<(Model, Layout), Error> {
    let threads = options.threads.or_else(|| {
        // Virtual nodes need a thread each, more than there may be cores.
        options.nodes.map(|nodes| machine.usable_cores().max(nodes))
    });
    let layout = topology::layout(machine, options.nodes, threads)?;
    let shares = Shares::new(layout.groups.iter().map(|g| g.cpus.len()).collect());
    Ok((models::build(gguf, shares)?, layout))
}

fn context(
    hparams: &Hparams,
    graph: &graph::Graph,
    machine: &Machine,
    options: &LoadOptions,
    sequences: usize,
) -> Result<usize, Error> {
    let trained = hparams.context;
    match options.context {
        Some(context) if context > trained => Err(Error::ContextTooLong { context, trained }),
        Some(context) => Ok(context),
        None => {
            let memory: u64 = machine.nodes().iter().map(|n| n.memory_bytes).sum();
            let token: usize =
                (0..graph.nodes()).map(|n| graph.kv_bytes_per_token(n, options.kv)).sum();
            let fits = memory as usize / 2 / (token * sequences).max(1);
            // A machine that does not tell its memory is not a machine without any.
            let fits = if memory == 0 { 4096 } else { fits };
            Ok(trained.min((fits / KV_CHUNK * KV_CHUNK).max(KV_CHUNK)))
        }
    }
}

impl LoadOptions {
    fn check(&self) -> Result<(), Error> {
        let sizes = [
            ("the number of nodes", self.nodes),
            ("the number of threads", self.threads),
            ("the context", self.context),
            ("the number of sequences", self.sequences),
            ("tokens per step", self.step_tokens),
            ("outputs per step", self.step_outputs),
        ];
        match sizes.into_iter().find(|(_, size)| *size == Some(0)) {
            Some((name, _)) => Err(Error::Zero(name)),
            None => Ok(()),
        }
    }
}
