//! The engine: a loaded model and its sequences.

pub(crate) mod hosts;
mod sequences;
mod staged;

use crate::adapter::{AdapterUse, usual_set};
use crate::company::{Company, Watchman};
use crate::control::Control;
use crate::decode::{Bounds, Ids};
use crate::disk::Disk;
use crate::error::Error;
use crate::fewer::Trials;
use crate::file::ModelFile;
use crate::kv::{CacheEvent, KvCache, PageCounts, Sizes};
use crate::load::{self, LoadProgress, LoadReport, Loaded};
use crate::options::LoadOptions;
use crate::room;
use crate::sequence::SeqId;
use graph::{Adapted, Executor, Inset, Limits, Logits, Outputs, Recalled, SeqInput};
use hosts::Staged;
use models::{Hparams, Projection};
use std::sync::Arc;
use std::time::Instant;
use topology::Machine;

/// New tokens of one sequence in a step.
#[derive(Copy, Clone, Debug)]
pub struct BatchEntry<'a> {
    /// Whose.
    pub sequence: SeqId,
    /// At least one.
    pub tokens: &'a [u32],
    /// What is wanted of it.
    pub outputs: Outputs,
}

/// Tokens of a sequence for the layer that predicts further tokens.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Prediction<'a> {
    /// Whose.
    pub sequence: SeqId,
    /// The position of the first.
    pub position: usize,
    /// At least one.
    pub tokens: &'a [u32],
    /// The hidden state that each comes with.
    pub recalled: &'a [Recalled],
    /// What is wanted of it.
    pub outputs: Outputs,
}

/// A loaded model and its sequences.
///
/// The thread that loads an engine is its first worker; take steps from the same thread.
pub struct Engine {
    pub(crate) executor: Executor,
    pub(crate) kv: KvCache,
    pub(crate) disk: Option<Disk>,
    hparams: Hparams,
    projection: Option<Arc<Projection>>,
    context: usize,
    /// Those that are loaded, and the set of sequences of which nothing else is said.
    pub(crate) adapters: Vec<AdapterUse>,
    pub(crate) usual: Vec<Adapted>,
    report: LoadReport,
    strayed: bool,
    /// Who looks after its cores, unless they are fixed.
    watchman: Option<Watchman>,
    /// Who tries fewer threads on its steps.
    trials: Option<Trials>,
    /// What it was loaded on, and who has a say in loading: for what works beside it.
    machine: Machine,
    control: Control,
    /// The other hosts of the model, if it has several.
    pub(crate) staged: Option<Staged>,
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
        Engine::load_on(file, &Machine::read()?, options, progress)
    }

    /// Loads a model on a machine that has been described already, such as a
    /// [part](Machine::divide) of this one. Options that choose nodes or CPUs choose among its own.
    ///
    /// # Errors
    /// As [`Engine::load`].
    pub fn load_on(
        file: &ModelFile,
        machine: &Machine,
        options: &LoadOptions,
        progress: &mut dyn FnMut(LoadProgress),
    ) -> Result<Engine, Error> {
        let machine = load::restrict(machine, options)?;
        let control = Control::default();
        match hosts::agree(file, &machine, options, &control)? {
            Some(agreed) => Engine::load_part(file, &machine, &agreed, &control, progress),
            None => Engine::load_part(file, &machine, options, &control, progress),
        }
    }

    /// See [`load::load`].
    pub(crate) fn load_part(
        file: &ModelFile,
        machine: &Machine,
        options: &LoadOptions,
        control: &Control,
        progress: &mut dyn FnMut(LoadProgress),
    ) -> Result<Engine, Error> {
        let group = hosts::begin(file, options, control)?;
        let Loaded { mut executor, hparams, projection, context, sequences, cache, report } =
            load::load(file, machine, options, control, progress)?;
        // Loading was work, too.
        executor.reset_counts();
        let staged = match (group, cache) {
            (Some(group), Some(cache)) => {
                let sizes = Sizes { sequences, context, interval: cache.interval };
                Some(Staged::new(group, cache, sizes, control)?)
            }
            _ => None,
        };
        let kv = match &staged {
            Some(staged) => staged.empty_cache(),
            None => {
                let classes = executor.graph().classes().iter().copied();
                let classes = classes.zip(executor.limits().pages);
                let interval = room::interval(executor.graph(), options.kv);
                KvCache::new(Sizes { sequences, context, interval }, classes)
            }
        };
        let (disk, strayed) = (None, false);
        let watchman = Watchman::new(&mut executor, machine, options.fixed_cores);
        let free = options.phases.is_empty() && staged.is_none();
        let tell = options.try_fewer.clone().filter(|_| free);
        let trials = tell.and_then(|tell| Trials::new(&executor, tell));
        let adapters = options.adapters.clone();
        let usual = usual_set(&adapters);
        Ok(Engine {
            executor,
            kv,
            disk,
            hparams,
            projection: projection.map(Arc::new),
            context,
            adapters,
            usual,
            report,
            strayed,
            watchman,
            trials,
            machine: machine.clone(),
            control: control.clone(),
            staged,
        })
    }

    /// Loads what works beside this engine, on the same cores: call it on the same thread.
    pub(crate) fn load_beside(
        &self,
        file: &ModelFile,
        options: &LoadOptions,
        progress: &mut dyn FnMut(LoadProgress),
    ) -> Result<Engine, Error> {
        // What is known of threads is of the other model's steps.
        let options = LoadOptions { few_threads: Vec::new(), try_fewer: None, ..options.clone() };
        Engine::load_part(file, &self.machine, &options, &self.control, progress)
    }

    /// Computes one step over a batch of sequences and returns the logits and hidden states that were
    /// asked for, in the batch's order.
    ///
    /// The logits of a sequence depend on its tokens and adapters only: not on the batch, on how its prompt is
    /// cut into steps, or on the number of threads.
    ///
    /// # Errors
    /// When a sequence is unknown, stands twice in the batch or is out of room, a token is outside
    /// of the vocabulary, or the step is larger than it was loaded for. No sequence has grown then.
    pub fn step(&mut self, batch: &[BatchEntry<'_>]) -> Result<Logits<'_>, Error> {
        self.step_with(batch, &[])
    }

    /// The same where sequences have rows of numbers beside tokens: those of each in the batch's order, all of them from
    /// its beginning on. Ids of tokens in their places tell only which rows are alike, and must be alike nowhere else.
    ///
    /// # Errors
    /// As [`step`](Engine::step), and when rows that see each other are not all in the step.
    pub fn step_with(
        &mut self,
        batch: &[BatchEntry<'_>],
        insets: &[&[Inset<'_>]],
    ) -> Result<Logits<'_>, Error> {
        if self.staged.is_some() {
            let ticket = self.send(batch, insets)?;
            return self.finish(ticket);
        }
        let got = self.reserve_all(batch)?;
        self.copy_pages()?;
        if let Some(trials) = &mut self.trials {
            let alone = self.watchman.as_ref().is_none_or(Watchman::sees_nobody);
            trials.settle(&mut self.executor, got, alone);
        }
        if let Some(watchman) = &mut self.watchman {
            watchman.settle(&mut self.executor);
        }
        let begin = Instant::now();
        let kv = &self.kv;
        let inputs = batch.iter().enumerate().map(|(at, e)| SeqInput {
            tokens: e.tokens,
            past: kv.len(e.sequence).expect("reserved above"),
            tables: kv.tables(e.sequence).expect("reserved above"),
            outputs: e.outputs,
            saves: kv.saves(e.sequence).expect("reserved above"),
            insets: insets.get(at).copied().unwrap_or_default(),
        });
        let sets = batch.iter().map(|e| kv.adapters(e.sequence).expect("reserved above"));
        let taken = self.executor.step_adapted(inputs, sets).map(|_| begin.elapsed());
        if let Some(trials) = &mut self.trials {
            trials.observe(&mut self.executor, got, taken.as_ref().ok().copied());
        }
        match taken {
            Ok(took) => {
                if let Some(watchman) = &mut self.watchman {
                    watchman.observe(&mut self.executor, took);
                }
                if self.executor.strayed() && !self.strayed {
                    self.strayed = true;
                    tracing::warn!(
                        "the system has moved threads off the cores they were pinned to (a cpuset \
                         that has changed?): memory that was near them is not any more; load the \
                         model again to place it anew"
                    );
                }
                for entry in batch {
                    self.kv.advance(entry.sequence, entry.tokens)?;
                }
                if let Some(disk) = &mut self.disk {
                    disk.observe(got, begin.elapsed());
                }
                Ok(self.executor.logits())
            }
            Err(e) => {
                self.give_back(batch);
                Err(e.into())
            }
        }
    }

    /// Does `work` for each of these with the last step's results, on the threads of the model.
    ///
    /// # Errors
    /// When `work` panicked.
    pub(crate) fn each<T: Send>(
        &mut self,
        items: &mut [T],
        work: impl Fn(Logits<'_>, &mut T) + Sync,
    ) -> Result<(), Error> {
        Ok(self.executor.each(items, work)?)
    }

    /// Checks a batch, and takes the pages that it needs; its tokens.
    fn reserve_all(&mut self, batch: &[BatchEntry<'_>]) -> Result<usize, Error> {
        for (i, entry) in batch.iter().enumerate() {
            if batch[..i].iter().any(|e| e.sequence == entry.sequence) {
                return Err(Error::RepeatedSequence(entry.sequence));
            }
        }
        // Pages are counted for steps that are not larger.
        let (got, max) = (batch.iter().map(|e| e.tokens.len()).sum(), self.limits().tokens);
        if got > max {
            return Err(graph::Error::StepTooLarge { what: "tokens", got, max }.into());
        }
        for entry in batch {
            if let Err(e) = self.kv.reserve(entry.sequence, entry.tokens.len()) {
                self.give_back(batch);
                return Err(e);
            }
        }
        Ok(got)
    }

    /// Has the layer that predicts further tokens take tokens, and returns the logits of those that come behind. It
    /// keeps keys and values of its own beside the model's; sequences stay as long as they are. There are pages
    /// for all positions already.
    ///
    /// # Errors
    /// When the model was loaded without such a layer, or the step is malformed.
    pub(crate) fn predict(&mut self, batch: &[Prediction<'_>]) -> Result<Logits<'_>, Error> {
        self.copy_pages()?;
        let kv = &self.kv;
        let mut inputs = Vec::with_capacity(batch.len());
        for entry in batch {
            inputs.push(SeqInput {
                tokens: entry.tokens,
                past: entry.position,
                tables: kv.tables(entry.sequence)?,
                outputs: entry.outputs,
                saves: &[],
                insets: &[],
            });
        }
        let recalled = batch.iter().flat_map(|entry| entry.recalled).copied();
        Ok(self.executor.predict(inputs.iter().copied(), recalled)?)
    }

    /// Copies the pages that are to be copied before they are written.
    pub(crate) fn copy_pages(&mut self) -> Result<(), Error> {
        if !self.kv.copies().is_empty() {
            self.executor.copy_pages(self.kv.copies())?;
            self.kv.copied();
        }
        Ok(())
    }

    /// Returns pages that a failed step had reserved.
    fn give_back(&mut self, batch: &[BatchEntry<'_>]) {
        for entry in batch {
            if let Ok(len) = self.kv.len(entry.sequence) {
                let _ = self.kv.truncate(entry.sequence, len);
            }
        }
    }

    /// Keeps in mind from now on what changes in the prefix cache.
    pub(crate) fn tell_cache_events(&mut self) {
        self.kv.tell_events();
    }

    /// What has changed since this was asked.
    pub(crate) fn take_cache_events(&mut self) -> Vec<CacheEvent> {
        self.kv.take_events()
    }

    /// Whether tokens see those behind them: then a step has whole texts.
    pub fn reads_texts(&self) -> bool {
        self.executor.graph().reads_texts()
    }

    /// What is made of pooled hidden states, if the file has something behind them.
    pub(crate) fn projection(&self) -> Option<Arc<Projection>> {
        self.projection.clone()
    }

    /// What requests can have; `sees`: with an image encoder.
    pub(crate) fn bounds(&self, sees: bool) -> Bounds {
        let graph = self.executor.graph();
        let (ids, writes) = (Ids::of(graph), graph.has_head());
        let Limits { tokens: step, outputs, .. } = self.limits();
        Bounds { context: self.context, step, outputs, ids, writes, sees }
    }

    /// Sizes and names of the model.
    pub fn hparams(&self) -> &Hparams {
        &self.hparams
    }

    /// Tokens that one sequence can hold.
    pub fn context(&self) -> usize {
        self.context
    }

    /// KV pages of all classes, by who holds them.
    pub fn pages(&self) -> PageCounts {
        self.kv.counts()
    }

    /// The adapters that are loaded, in the order of their numbers.
    pub fn adapters(&self) -> &[AdapterUse] {
        &self.adapters
    }

    /// What it has seen of other programs on its cores; `None` where the cores are fixed or nothing can be seen.
    pub fn company(&self) -> Option<&Company> {
        self.watchman.as_ref().map(Watchman::seen)
    }

    /// Tries no fewer threads any more ([`LoadOptions::try_fewer`]): somebody has measured which are best.
    pub fn end_trials(&mut self) {
        self.trials = None;
    }

    /// What loading did.
    pub fn report(&self) -> &LoadReport {
        &self.report
    }

    /// Largest step.
    pub fn limits(&self) -> Limits {
        self.executor.limits()
    }
}
