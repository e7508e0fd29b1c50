//! An answer: its next token, and what becomes of it.

use super::asked::{Answer, Event};
use super::guided::{Bell, Guided};
use super::request::{StopReason, Token};
use crate::error::Error;
use std::time::Instant;

/// What was sampled.
pub(super) enum Next {
    Token(u32),
    End(u32),
}

impl Answer {
    /// Starts its constraint, if it has one, with masks of `words` words.
    pub(super) fn guide(&mut self, words: usize, bell: &Bell) {
        let constraint = self.constraint.take();
        self.guided = constraint.map(|constraint| Guided::new(constraint, words, bell));
    }

    /// Whether its next token can be sampled; waits until then for a mask.
    pub(super) fn is_ready(&mut self, until: Option<Instant>) -> bool {
        self.left == 0 || self.guided.as_mut().is_none_or(|guided| guided.is_ready(until))
    }

    /// Samples a token after `so_far` others and tells it.
    pub(super) fn next(&mut self, logits: &[f32], so_far: usize) -> Result<Next, Error> {
        let short = so_far < self.min_tokens;
        let masked = short || self.guided.is_some();
        let mut mask = match &mut self.guided {
            Some(guided) => guided.mask().map_err(Error::Constraint)?,
            None if short => vec![u32::MAX; logits.len().div_ceil(32)],
            None => Vec::new(),
        };
        for &token in self.end_tokens.iter().filter(|_| short) {
            if let Some(word) = mask.get_mut(token as usize / 32) {
                *word &= !(1 << (token % 32));
            }
        }
        let among = masked.then_some(mask.as_slice());
        let token = self.sampler.sample_among(logits, among);
        let token = token.ok_or_else(|| Error::Constraint("no token may come next".into()))?;
        if self.end_tokens.contains(&token) {
            return Ok(Next::End(token));
        }
        if let Some(guided) = &self.guided {
            guided.accept(token, mask);
        }
        let logprobs = self.logprobs.map(|top| self.sampler.logprobs(logits, token, top));
        // Without a reader the next round drops it.
        self.tell(Event::Token(Token { id: token, logprobs }));
        self.left -= 1;
        Ok(Next::Token(token))
    }

    /// Why nothing comes after `token`.
    pub(super) fn after(&mut self, token: u32) -> Option<StopReason> {
        if self.stop.as_mut().is_some_and(|stop| stop(token)) {
            return Some(StopReason::Interrupted);
        }
        let why = if self.limited { StopReason::Limit } else { StopReason::Context };
        (self.left == 0).then_some(why)
    }
}
