//! Sampling of a request, and the rows of logits that it keeps until a mask is there.

use super::super::answer::Next;
use super::{Ended, Held, Running};
use crate::decode::{Event, StopReason};
use crate::error::Error;
use crate::sampler::Logprobs;
use std::iter::once;
use std::ops::Range;
use std::time::Instant;

/// What was sampled of a step.
#[derive(Clone, Copy, Default)]
pub(crate) struct Sampled {
    /// Tokens that the answer has more.
    pub tokens: usize,
    /// Tokens that were guessed, and those of them that came true; zero while rows are held.
    pub guessed: usize,
    pub right: usize,
}

impl Sampled {
    /// Whether tokens are in the cache that are none of the text.
    pub(crate) fn is_wrong(self) -> bool {
        self.right < self.guessed
    }
}

impl Running {
    /// The other answers to this prompt, which is computed: they go on from copies of its sequence.
    pub(crate) fn split_off(&mut self) -> Vec<Running> {
        let others = self.answers.split_off(1);
        let other = |answer| Running {
            answers: vec![answer],
            sequence: None,
            tokens: self.tokens.clone(),
            guessed: Vec::new(),
            images: self.images.clone(),
            ahead: self.ahead.fork(),
            prompt_logprobs: None,
            held: None,
            adapters: self.adapters.clone(),
            pooled: None,
            ended: None,
            ..*self
        };
        others.into_iter().map(other).collect()
    }

    /// Samples from the rows of logits of its last token and its guess, as long as the guess comes true; waits for masks
    /// up to `until`. If a mask is missing then, it holds the rows that are left, and has nothing to compute.
    pub(crate) fn sample<'l>(
        &mut self,
        mut rows: impl Iterator<Item = &'l [f32]>,
        until: Option<Instant>,
    ) -> Sampled {
        let mut sampled = Sampled::default();
        if self.is_ended() {
            // Its deadline passed while the step was under way.
            return sampled;
        }
        while let Some(logits) = rows.next() {
            if !self.answers[0].is_ready(until) {
                let all = once(logits).chain(rows);
                let rows = all.flatten().copied().collect();
                self.held = Some(Held { rows, width: logits.len() });
                self.ahead.pause();
                return sampled;
            }
            sampled.tokens += usize::from(self.sample_one(logits));
            if self.is_ended() || self.ahead.guess().get(self.right) != self.tokens.last() {
                break;
            }
            // It is in the cache.
            self.right += 1;
            self.computed += 1;
        }
        (sampled.guessed, sampled.right) = (self.ahead.guess().len(), self.right);
        self.right = 0;
        if sampled.guessed > 0 {
            self.timings.guessed += sampled.guessed;
            self.timings.right += sampled.right;
            self.ahead.learn(sampled.right);
        }
        sampled
    }

    /// Whether nothing has to be waited for before it is sampled.
    pub(crate) fn is_ready(&mut self) -> bool {
        self.answers[0].is_ready(None)
    }

    /// Whether a mask is all that it waits for.
    pub(crate) fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// Goes on sampling, if the mask is there now.
    pub(crate) fn resume(&mut self) -> Option<Sampled> {
        if self.is_ended() || !self.is_held() || !self.answers[0].is_ready(None) {
            return None;
        }
        let Held { rows, width } = self.held.take()?;
        Some(self.sample(rows.chunks_exact(width), None))
    }

    /// Of the `rows` rows of logits of tokens behind the first `before`, what they are wanted for: how many of the
    /// likeliest tokens, and the tokens of the prompt that come next.
    pub(crate) fn prompt_behind(
        &self,
        before: usize,
        rows: usize,
    ) -> Option<(usize, Range<usize>)> {
        let (top, found) = self.prompt_logprobs.as_ref()?;
        let next = before.max(found.len()) + 1..(before + rows + 1).min(self.prompt);
        (found.len() >= before && !next.is_empty()).then_some((*top, next))
    }

    /// Tokens of the prompt.
    pub(crate) fn prompt(&self, range: Range<usize>) -> &[u32] {
        &self.tokens[..self.prompt][range]
    }

    /// Notes how likely the next tokens of the prompt were.
    pub(crate) fn note_prompt(&mut self, more: Vec<Logprobs>) {
        let Some((_, found)) = &mut self.prompt_logprobs else { return };
        found.extend(more);
        if found.len() + 1 == self.prompt {
            self.answers.iter().for_each(|answer| answer.tell(Event::Prompt(found.clone())));
        }
    }

    /// Samples the next token from its logits; whether the answer has one more.
    fn sample_one(&mut self, logits: &[f32]) -> bool {
        let so_far = self.tokens.len() - self.prompt;
        let answer = &mut self.answers[0];
        if answer.left == 0 {
            self.ended = Some(Ended::Stopped(StopReason::Limit));
            return false;
        }
        let next = answer.next(logits, so_far);
        self.progress += 1;
        self.timings.tokens += usize::from(so_far > 0 && next.is_ok());
        match next {
            Ok(Next::End(token)) => {
                self.ended = Some(Ended::Stopped(StopReason::EndToken(token)));
            }
            Ok(Next::Token(token)) => {
                self.tokens.push(token);
                self.ended = answer.after(token).map(Ended::Stopped);
                return true;
            }
            Err(error) => {
                let why = match error {
                    Error::Constraint(why) => why,
                    other => other.to_string(),
                };
                self.fail_with(move || Error::Constraint(why.clone()));
            }
        }
        false
    }
}
