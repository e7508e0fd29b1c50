//! A request inside of the queue and the replicas: a prompt and the answers that are wanted to it.

use super::prefixes::PageName;
use super::route::{PROMPT_TOKENS_PER_STEP, Work};
use super::ticket::{Constraint, Event, StopHook};
use super::turns::Turn;
use crate::error::Error;
use crate::images::Images;
use crate::sampler::Sampler;
use async_channel::Sender;
use graph::Adapted;
use models::Pooling;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;
use topology::NodeId;

/// A prompt on its way, with one answer or several.
pub(crate) struct Job {
    pub id: u64,
    pub prompt: Vec<u32>,
    pub images: Images,
    /// The names of its prompt's whole pages; none where there is one replica, which needs no choice.
    pub pages: Vec<PageName>,
    /// At least one.
    pub answers: Vec<Answer>,
    pub prompt_logprobs: Option<usize>,
    pub adapters: Vec<Adapted>,
    pub pooling: Option<Pooling>,
    pub affinity: Option<u64>,
    pub near: Option<NodeId>,
    pub priority: i8,
    pub client: u64,
    pub turn: Turn,
    pub deadline: Option<Instant>,
    /// Whether it was routed to the replica of its session.
    pub at_home: bool,
    /// The replica that it is routed to.
    pub lane: usize,
    pub submitted: Instant,
}

/// An answer that is wanted.
pub(crate) struct Answer {
    pub sampler: Sampler,
    pub min_tokens: usize,
    pub end_tokens: Vec<u32>,
    pub stop: Option<StopHook>,
    pub constraint: Option<Box<dyn Constraint>>,
    pub logprobs: Option<usize>,
    /// Tokens that may still come: what was asked for, or what there is room for.
    pub left: usize,
    /// Whether that is what was asked for.
    pub limited: bool,
    pub events: Sender<Event>,
    pub cancelled: Arc<AtomicBool>,
}

impl Answer {
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Relaxed)
    }

    /// Tells the caller, if there still is one.
    pub(crate) fn tell(&self, event: Event) {
        let _ = self.events.try_send(event);
    }
}

impl Job {
    /// What is left of it before it runs.
    pub(crate) fn left(&self) -> Left {
        Left { prompt: self.prompt.len(), answer: self.answers.iter().map(|a| a.left).sum() }
    }

    /// The same by answers, the first of which has the prompt.
    pub(crate) fn lefts(&self) -> impl Iterator<Item = Left> {
        let prompts = std::iter::once(self.prompt.len()).chain(std::iter::repeat(0));
        prompts.zip(&self.answers).map(|(prompt, answer)| Left { prompt, answer: answer.left })
    }

    /// In numbers, but for its session.
    pub(crate) fn work(&self) -> Work {
        let Left { prompt, answer } = self.left();
        Work { prompt: prompt as u64, answer: answer as u64, home: None, wait: 0 }
    }

    /// Tells all its callers.
    pub(crate) fn fail(&self, error: impl Fn() -> Error) {
        self.answers.iter().for_each(|answer| answer.tell(Event::Failed(error())));
    }
}

/// What is left of a request.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Left {
    /// Tokens of the prompt.
    pub prompt: usize,
    /// Tokens of the answer, at most.
    pub answer: usize,
}

impl Left {
    pub(crate) fn tokens(self) -> u64 {
        self.prompt as u64 + self.answer as u64
    }

    /// Steps that this takes, at most and about.
    pub(crate) fn steps(self) -> u64 {
        (self.prompt as u64).div_ceil(PROMPT_TOKENS_PER_STEP) + self.answer as u64
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::prefixes::page_names;
    use super::*;
    use crate::sampler::SamplerParams;

    /// A request of `prompt` tokens for `left` more.
    pub(crate) fn job(prompt: usize, left: usize, affinity: Option<u64>) -> Job {
        let answer = Answer {
            sampler: Sampler::new(SamplerParams::greedy()).unwrap(),
            min_tokens: 0,
            end_tokens: Vec::new(),
            stop: None,
            constraint: None,
            logprobs: None,
            left,
            limited: true,
            events: async_channel::unbounded().0,
            cancelled: Arc::default(),
        };
        Job {
            id: 0,
            prompt: vec![0; prompt],
            images: Images::default(),
            pages: page_names(&vec![0; prompt], &[]),
            answers: vec![answer],
            prompt_logprobs: None,
            adapters: Vec::new(),
            pooling: None,
            affinity,
            near: None,
            priority: 0,
            client: 0,
            turn: Turn::default(),
            deadline: None,
            at_home: false,
            lane: 0,
            submitted: Instant::now(),
        }
    }
}
