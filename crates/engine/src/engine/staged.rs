//! The engine of a front: its steps go through other hosts before they come here.

use super::{BatchEntry, Engine};
use crate::control::Control;
use crate::error::Error;
use crate::file::ModelFile;
use crate::kv::{KvCache, Sizes};
use crate::load;
use crate::options::LoadOptions;
use crate::stages::{self, Cache, Group, Order, Part};
use graph::{Inset, Logits, Outputs};
use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;
use topology::Machine;

/// The other hosts of a model, and steps that are under way.
pub(crate) struct Staged {
    group: Group,
    cache: Cache,
    sizes: Sizes,
    sent: VecDeque<Sent>,
    next: u64,
}

/// A step that the stages before this one take, or have taken.
struct Sent {
    order: Order,
    outputs: Vec<Outputs>,
}

/// A step that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SentStep(u64);

/// Options with a cache that fits on all hosts of a model, if it has several; waits until they are there.
pub(crate) fn agree(
    file: &ModelFile,
    machine: &Machine,
    options: &LoadOptions,
    control: &Control,
) -> Result<Option<LoadOptions>, Error> {
    let Some(stage) = &options.stage else { return Ok(None) };
    if !stage.is_front() {
        return Err(Error::BadStage { number: stage.number, of: stage.of });
    }
    let own = load::size(file, machine, std::slice::from_ref(machine), options)?.room;
    let Some(mut group) = Group::new(file, options)? else { return Ok(None) };
    group.wait(&control.stop)?;
    Ok(Some(stages::agree(&mut group, options, (own.context, own.tokens))?))
}

/// Has the other hosts load their layers, if there are such.
pub(super) fn begin(
    file: &ModelFile,
    options: &LoadOptions,
    control: &Control,
) -> Result<Option<Group>, Error> {
    let Some(mut group) = Group::new(file, options)? else { return Ok(None) };
    group.wait(&control.stop)?;
    group.load(options)?;
    Ok(Some(group))
}

impl Staged {
    /// Waits until the others have loaded.
    pub(super) fn new(
        mut group: Group,
        cache: Cache,
        sizes: Sizes,
        control: &Control,
    ) -> Result<Staged, Error> {
        group.ready(&cache.pages(), &|| control.stop.load(Relaxed))?;
        Ok(Staged { group, cache, sizes, sent: VecDeque::new(), next: 0 })
    }

    /// The books of pages that all hosts have.
    pub(super) fn empty_cache(&self) -> KvCache {
        KvCache::new(self.sizes, self.cache.classes.iter().copied())
    }
}

impl Engine {
    /// Whether other hosts have layers of the model.
    pub(crate) fn is_staged(&self) -> bool {
        self.staged.is_some()
    }

    /// How many steps can be under way at once: one, or as many as there are stages.
    pub(crate) fn depth(&self) -> usize {
        self.staged.as_ref().map_or(1, |staged| staged.group.depth())
    }

    /// Sends a step to the hosts before this one. Sequences are as long as they will be then; what is wanted of them
    /// comes with [`finish`](Engine::finish). Steps are finished in their order.
    ///
    /// # Errors
    /// As [`step_with`](Engine::step_with), and when a host is lost.
    ///
    /// # Panics
    /// When there are no other hosts.
    pub(crate) fn send(
        &mut self,
        batch: &[BatchEntry<'_>],
        insets: &[&[Inset<'_>]],
    ) -> Result<SentStep, Error> {
        if insets.iter().any(|insets| !insets.is_empty()) {
            return Err(Error::NotInStages("images"));
        }
        let ids = self.executor.graph().ids();
        let mut tokens = batch.iter().flat_map(|entry| entry.tokens);
        if let Some(&token) = tokens.find(|token| **token as usize >= ids) {
            let vocab = self.executor.graph().vocab();
            return Err(graph::Error::UnknownToken { token, vocab }.into());
        }
        self.reserve_all(batch)?;
        let part = |entry: &BatchEntry<'_>| -> Result<Part, Error> {
            Ok(Part {
                slot: entry.sequence.slot(),
                tokens: entry.tokens.to_vec(),
                past: self.kv.len(entry.sequence)?,
                tables: self.kv.tables(entry.sequence)?.to_vec(),
                saves: self.kv.saves(entry.sequence)?.to_vec(),
            })
        };
        let sequences = batch.iter().map(part).collect::<Result<Vec<_>, Error>>()?;
        let staged = self.staged.as_mut().expect("other hosts have layers");
        let number = staged.next;
        let order = Order { number, copies: self.kv.copies().to_vec(), sequences };
        staged.group.send(&order)?;
        staged.next += 1;
        let outputs = batch.iter().map(|entry| entry.outputs).collect();
        staged.sent.push_back(Sent { order, outputs });
        self.kv.copied();
        for entry in batch {
            self.kv.advance(entry.sequence, entry.tokens)?;
        }
        Ok(SentStep(number))
    }

    /// Takes steps that were sent, up to this one, whose logits and hidden states it returns.
    ///
    /// # Errors
    /// When a host is lost, or the step fails here.
    ///
    /// # Panics
    /// When there are no other hosts.
    pub(crate) fn finish(&mut self, step: SentStep) -> Result<Logits<'_>, Error> {
        if let Some(watchman) = &mut self.watchman {
            watchman.settle(&mut self.executor);
        }
        let staged = self.staged.as_mut().expect("other hosts have layers");
        while let Some(Sent { order, outputs }) = staged.sent.pop_front() {
            let rows = staged.group.rows(order.number)?;
            let begin = Instant::now();
            let rows = (Some(rows.as_slice()), staged.group.width());
            order.run(&mut self.executor, &staged.cache.map, rows, |at| outputs[at])?;
            if let Some(watchman) = &mut self.watchman {
                watchman.observe(&mut self.executor, begin.elapsed());
            }
            if order.number == step.0 {
                break;
            }
        }
        Ok(self.executor.logits())
    }

    /// Takes all steps that were sent, for nobody: pages of the cache hold then what they should.
    ///
    /// # Errors
    /// As [`finish`](Engine::finish).
    pub(crate) fn finish_all(&mut self) -> Result<(), Error> {
        let last = self.staged.as_ref().and_then(|staged| staged.sent.back());
        match last.map(|sent| SentStep(sent.order.number)) {
            Some(last) => self.finish(last).map(|_| ()),
            None => Ok(()),
        }
    }

    /// Whether all hosts of the model are there.
    ///
    /// # Errors
    /// When one is lost.
    pub(crate) fn check_hosts(&mut self) -> Result<(), Error> {
        self.staged.as_mut().map_or(Ok(()), |staged| staged.group.check())
    }

    /// Has `told` called, on another thread, when a host of the model is lost.
    pub(crate) fn tell_of_hosts(&self, told: impl Fn() + Send + 'static) {
        if let Some(staged) = &self.staged {
            staged.group.tell(told);
        }
    }

    /// Forgets all sequences and what the prefix cache has, after a host was lost.
    pub(crate) fn forget_all(&mut self) {
        if let Some(staged) = &mut self.staged {
            staged.group.disconnect();
            staged.sent.clear();
            staged.next = 0;
            self.kv = staged.empty_cache();
        }
    }

    /// Connects to the other hosts again; one attempt, which lasts as long as they load. Soon after `stop` says so it
    /// fails.
    ///
    /// # Errors
    /// When one is not there.
    pub(crate) fn find_hosts(&mut self, stop: &dyn Fn() -> bool) -> Result<(), Error> {
        let Some(staged) = &mut self.staged else { return Ok(()) };
        staged.group.again(&staged.cache.pages(), stop)
    }
}
