//! Work of a replica: requests, each a prompt and the answers that are wanted to it, and tasks between steps.

use super::prefixes::PageName;
use super::route::{PROMPT_TOKENS_PER_STEP, Work};
use super::turns::Turn;
use crate::decode::{Asked, Left};
use crate::engine::Engine;
use topology::NodeId;

/// A prompt on its way, with one answer or several.
pub(crate) struct Job {
    pub id: u64,
    pub asked: Asked,
    /// The names of its prompt's whole pages; none where there is one replica, which needs no choice.
    pub pages: Vec<PageName>,
    pub affinity: Option<u64>,
    pub near: Option<NodeId>,
    pub client: u64,
    pub turn: Turn,
    /// Whether it was routed to the replica of its session.
    pub at_home: bool,
    /// The replica that it is routed to.
    pub lane: usize,
}

/// Something that a replica's thread does between two steps.
pub(crate) type Task = Box<dyn FnOnce(&mut Engine) + Send>;

impl Job {
    /// What is left of it before it runs.
    pub(crate) fn left(&self) -> Left {
        let Asked { prompt, answers, .. } = &self.asked;
        Left { prompt: prompt.len(), answer: answers.iter().map(|a| a.left).sum() }
    }

    /// The same by answers, the first of which has the prompt.
    pub(crate) fn lefts(&self) -> impl Iterator<Item = Left> {
        Left::of(self.asked.prompt.len(), &self.asked.answers)
    }

    /// In numbers, but for its session.
    pub(crate) fn work(&self) -> Work {
        let Left { prompt, answer } = self.left();
        Work { prompt: prompt as u64, answer: answer as u64, home: None, wait: 0 }
    }
}

impl Left {
    /// Steps that this takes, at most and about.
    pub(crate) fn steps(self) -> u64 {
        (self.prompt as u64).div_ceil(PROMPT_TOKENS_PER_STEP) + self.answer as u64
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::prefixes::page_names;
    use super::*;
    use crate::decode::tests::asked;

    /// A request of `prompt` tokens for `left` more.
    pub(crate) fn job(prompt: usize, left: usize, affinity: Option<u64>) -> Job {
        Job {
            id: 0,
            asked: asked(prompt, left),
            pages: page_names(&vec![0; prompt], &[]),
            affinity,
            near: None,
            client: 0,
            turn: Turn::default(),
            at_home: false,
            lane: 0,
        }
    }
}
