//! The engine of a front: its steps go through other hosts before they come here.

use super::hosts::{Sent, SentStep};
use super::{BatchEntry, Engine};
use crate::error::Error;
use crate::stages::{GivenRows, Order, Part};
use graph::{Inset, Logits};
use std::time::Instant;

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
            let given = GivenRows { rows: Some(&rows), width: staged.group.width() };
            order.run(&mut self.executor, &staged.cache.map, given, |at| outputs[at])?;
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
