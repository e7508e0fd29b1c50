//! A request that was checked, and what is told of its answer.

use super::guided::Guided;
use super::pooled::Gives;
use super::request::{Constraint, Request, RequestSummary, Rows, StopHook, Token};
use crate::error::Error;
use crate::images::{Images, StepSize};
use crate::sampler::{Logprobs, Sampler};
use async_channel::{Receiver, Sender};
use graph::{Adapted, Graph};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

/// Numbers that tokens can have.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Ids {
    /// Tokens of one type.
    pub tokens: usize,
    /// Types of tokens: two where models tell the texts of a pair apart.
    pub types: usize,
}

impl Ids {
    pub(crate) fn of(graph: &Graph) -> Ids {
        Ids { tokens: graph.vocab(), types: graph.ids() / graph.vocab().max(1) }
    }

    /// How a token of the second text of a pair is given; as any other if there is one type.
    pub fn second(self, token: u32) -> u32 {
        if self.types > 1 { token + self.tokens as u32 } else { token }
    }
}

/// What requests can have of a loaded model.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Tokens that one sequence can hold.
    pub context: usize,
    /// Tokens of a step.
    pub step: usize,
    /// Rows of logits and hidden states of a step.
    pub outputs: usize,
    pub ids: Ids,
    /// Whether the model gives logits.
    pub writes: bool,
    /// Whether there is an image encoder.
    pub sees: bool,
}

impl Bounds {
    /// Checks a request whose sequence is to have these adapters. What it asks for, and where the answer is heard.
    pub(crate) fn accept(
        &self,
        request: Request,
        adapters: Vec<Adapted>,
    ) -> Result<(Asked, Receiver<Event>), Error> {
        let gives = request.rows.map(Gives::Rows).or(request.pooling.map(Gives::Vector));
        let images = self.check(&request, gives)?;
        let mut sampler = Sampler::new(request.sampler)?;
        sampler.observe_prompt(&request.prompt);
        // The last token of an answer is not computed any more, so it needs no room.
        let room = self.context + 1 - request.prompt.len();
        // A bounded channel allocates its whole length at once. This one has at most `left` tokens, and a few events of
        // the prompt and the end.
        let (events, received) = async_channel::unbounded();
        let answer = Answer {
            sampler,
            min_tokens: request.min_tokens,
            end_tokens: request.end_tokens,
            stop: request.stop,
            constraint: request.constraint,
            guided: None,
            logprobs: request.logprobs,
            left: match gives {
                Some(_) => 0,
                None => request.limit.map_or(room, |limit| limit.min(room)),
            },
            limited: request.limit.is_some_and(|limit| limit <= room),
            events,
            cancelled: Arc::default(),
        };
        let asked = Asked {
            prompt: request.prompt,
            images,
            answers: vec![answer],
            prompt_logprobs: request.prompt_logprobs,
            adapters,
            gives,
            priority: request.priority,
            deadline: request.deadline,
            submitted: Instant::now(),
        };
        Ok((asked, received))
    }

    /// The images of a request that can be served.
    fn check(&self, request: &Request, gives: Option<Gives>) -> Result<Images, Error> {
        let Bounds { context, ids, .. } = *self;
        let (tokens, vocab) = (request.prompt.len(), ids.tokens * ids.types);
        if tokens == 0 {
            return Err(Error::EmptyPrompt);
        }
        let hidden =
            matches!((request.rows, request.pooling), (Some(Rows::Hidden), _) | (None, Some(_)));
        if !hidden && !self.writes {
            return Err(Error::WritesNothing);
        }
        if tokens > context {
            return Err(Error::PromptTooLong { tokens, context });
        }
        let rows = gives.is_some_and(Gives::wants_all).then_some(self.outputs);
        let step = StepSize { tokens: self.step, rows };
        let images = Images::new(request.images.clone(), tokens, step)?;
        if !images.is_empty() && !self.sees {
            return Err(Error::NoEncoder);
        }
        if !images.is_empty() && request.prompt_logprobs.is_some() {
            return Err(Error::ImageLogprobs);
        }
        let unknown = |&(at, &token): &(usize, &u32)| token as usize >= vocab && !images.have(at);
        match request.prompt.iter().enumerate().find(unknown) {
            Some((_, &token)) => Err(graph::Error::UnknownToken { token, vocab }.into()),
            None => Ok(images),
        }
    }
}

/// A prompt with one answer that is wanted to it, or several.
pub(crate) struct Asked {
    pub prompt: Vec<u32>,
    pub images: Images,
    /// At least one.
    pub answers: Vec<Answer>,
    pub prompt_logprobs: Option<usize>,
    pub adapters: Vec<Adapted>,
    pub gives: Option<Gives>,
    pub priority: i8,
    pub deadline: Option<Instant>,
    pub submitted: Instant,
}

impl Asked {
    /// Whether another's prompt is computed with this one's.
    pub(crate) fn is_like(&self, other: &Asked) -> bool {
        self.prompt == other.prompt
            && self.prompt_logprobs == other.prompt_logprobs
            && self.gives == other.gives
            && self.adapters == other.adapters
    }

    /// Tells all its callers that it failed.
    pub(crate) fn fail(&self, error: impl Fn() -> Error) {
        self.answers.iter().for_each(|answer| answer.tell(Event::Failed(error())));
    }
}

/// An answer that is wanted.
pub(crate) struct Answer {
    pub sampler: Sampler,
    pub min_tokens: usize,
    pub end_tokens: Vec<u32>,
    pub stop: Option<StopHook>,
    /// Until it runs; then it is guided by it.
    pub constraint: Option<Box<dyn Constraint>>,
    pub guided: Option<Guided>,
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

/// What is left of a request.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Left {
    /// Tokens of the prompt.
    pub prompt: usize,
    /// Tokens of the answer, at most.
    pub answer: usize,
}

impl Left {
    /// What each answer has left; the first has what is left of the prompt.
    pub(crate) fn of(prompt: usize, answers: &[Answer]) -> impl Iterator<Item = Left> {
        let prompts = std::iter::once(prompt).chain(std::iter::repeat(0));
        prompts.zip(answers).map(|(prompt, answer)| Left { prompt, answer: answer.left })
    }

    pub(crate) fn tokens(self) -> u64 {
        self.prompt as u64 + self.answer as u64
    }
}

/// What is told of an answer.
pub(crate) enum Event {
    /// Pages are there; of the prompt's tokens so many are in them already.
    Begun {
        cached: usize,
    },
    /// Of the prompt's tokens but for the first.
    Prompt(Vec<Logprobs>),
    /// The prompt's hidden states as one vector, or a row for each of its tokens.
    Pooled(Vec<f32>),
    Token(Token),
    Done(RequestSummary),
    Failed(Error),
}

/// What was heard of an answer so far.
#[derive(Default)]
pub(crate) struct Heard {
    pub ended: bool,
    pub outcome: Option<RequestSummary>,
    pub cached: usize,
    pub prompt: Vec<Logprobs>,
    pub pooled: Vec<f32>,
}

impl Heard {
    /// Takes what is told; what its reader is to have, if that is a token or a failure.
    pub(crate) fn take(&mut self, event: Event) -> Option<Result<Token, Error>> {
        self.ended = matches!(event, Event::Done(_) | Event::Failed(_));
        match event {
            Event::Token(token) => return Some(Ok(token)),
            Event::Failed(error) => return Some(Err(error)),
            Event::Begun { cached } => self.cached = cached,
            Event::Prompt(logprobs) => self.prompt = logprobs,
            Event::Pooled(vector) => self.pooled = vector,
            Event::Done(outcome) => self.outcome = Some(outcome),
        }
        None
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::sampler::SamplerParams;

    /// A prompt of `prompt` tokens for `left` more.
    pub(crate) fn asked(prompt: usize, left: usize) -> Asked {
        let ids = Ids { tokens: 1, types: 1 };
        let context = prompt + left;
        let bounds = Bounds { context, step: prompt, outputs: 1, ids, writes: true, sees: false };
        let sampler = SamplerParams::greedy();
        let request = Request { sampler, limit: Some(left), ..Request::new(vec![0; prompt]) };
        bounds.accept(request, Vec::new()).unwrap().0
    }
}
