//! An answer: the choices of a request, read as they come.

use super::choice::{Choice, logprob, token_text};
use super::event::{Delta, Event, Finish, TokenLogprob};
use crate::adapters::AdaptersHeld;
use crate::fault::Fault;
use crate::keys::KeyUse;
use crate::metrics::Metrics;
use crate::spans::AnswerSpan;
use arclight_engine::ImagePart;
use chat::Segment;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;
use tokenizer::Tokenizer;
use tracing::Span;

/// A prompt as it was computed.
pub struct PromptInfo {
    /// As given, or as the chat template made it.
    pub text: String,
    /// As tokens.
    pub tokens: Vec<u32>,
    pub(crate) images: Vec<ImagePart>,
    /// Tokens at the beginning that are not in the text: BOS.
    pub(crate) added: usize,
}

/// Several choices that are being answered. Choice `prompt × n + i` is the `i`-th of a prompt.
pub struct Answer {
    choices: Vec<Choice>,
    prompts: Vec<PromptInfo>,
    /// Choices of each prompt.
    n: usize,
    tokenizer: Arc<Tokenizer>,
    metrics: Arc<Metrics>,
    /// Those that it names are in use until it has ended.
    _adapters: AdaptersHeld,
    /// Whose tokens they are.
    key: Option<Arc<KeyUse>>,
    /// Where to look next: choices take turns.
    turn: usize,
    /// The request that it answers, for the log.
    span: Span,
    trace: AnswerSpan,
    /// Of one choice, read but not given yet.
    ready: VecDeque<Delta>,
    of: usize,
}

/// All of one choice.
#[derive(Clone, Debug)]
pub struct Whole {
    /// What the model thought.
    pub reasoning: String,
    /// What it said.
    pub text: String,
    /// The tools that it called.
    pub calls: Vec<WholeCall>,
    /// The tokens of all that, without the one that ended it.
    pub ids: Vec<u32>,
    /// Of each of these tokens, if asked for.
    pub logprobs: Vec<TokenLogprob>,
    /// How it ended.
    pub finish: Finish,
}

/// A tool call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WholeCall {
    /// The tool.
    pub name: String,
    /// JSON text.
    pub arguments: String,
}

impl Answer {
    pub(super) fn new(
        choices: Vec<Choice>,
        prompts: Vec<PromptInfo>,
        tokenizer: Arc<Tokenizer>,
        (metrics, adapters, key): (Arc<Metrics>, AdaptersHeld, Option<Arc<KeyUse>>),
        trace: AnswerSpan,
    ) -> Answer {
        let n = choices.len() / prompts.len().max(1);
        let (ready, span) = (VecDeque::new(), Span::current());
        Answer {
            choices,
            prompts,
            n,
            tokenizer,
            metrics,
            _adapters: adapters,
            key,
            turn: 0,
            span,
            trace,
            ready,
            of: 0,
        }
    }

    /// When it was submitted; now if it has no choices.
    pub(crate) fn submitted(&self) -> Instant {
        self.choices.first().map_or_else(Instant::now, |choice| choice.times().0)
    }

    /// How many there are.
    pub fn choices(&self) -> usize {
        self.choices.len()
    }

    /// The prompts.
    pub fn prompts(&self) -> &[PromptInfo] {
        &self.prompts
    }

    /// The prompt of a choice.
    pub fn prompt_of(&self, choice: usize) -> usize {
        choice / self.n.max(1)
    }

    /// Log-probabilities of the tokens of a choice's prompt that are in its text: for requests that
    /// asked for echo, from the first delta on.
    pub fn prompt_logprobs(&self, choice: usize) -> Vec<TokenLogprob> {
        let prompt = &self.prompts[self.prompt_of(choice)];
        let known = self.choices.get(choice).map_or(&[][..], Choice::prompt_logprobs);
        let tokens = prompt.tokens.iter().enumerate().skip(prompt.added);
        tokens
            .map(|(at, &id)| match at.checked_sub(1).and_then(|at| known.get(at)) {
                Some(of) => logprob(&self.tokenizer, id, of),
                None => TokenLogprob {
                    token: token_text(&self.tokenizer, id),
                    logprob: None,
                    top: Vec::new(),
                },
            })
            .collect()
    }

    /// The next piece of any choice; `None` when all have ended, or after a failure. Can be dropped
    /// and called again without losing anything.
    pub async fn next(&mut self) -> Option<(usize, Delta)> {
        poll_fn(|cx| self.poll(cx)).await
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<(usize, Delta)>> {
        loop {
            if let Some(delta) = self.ready.pop_front() {
                if matches!(delta.event, Event::Failed(_)) {
                    // A fault of one choice ends the answer: the others are not computed further.
                    self.metrics.failed();
                    let failed = self.choices.get(self.of);
                    failed.into_iter().for_each(|c| {
                        self.trace.choice(&c.served("error"), c.times());
                        self.metrics.recent.note(c.served("error"));
                    });
                    if let Event::Failed(fault) = &delta.event {
                        let _in = self.span.enter();
                        tracing::warn!(
                            status = fault.status.as_u16(),
                            "answer failed: {}",
                            fault.message
                        );
                    }
                    self.choices.clear();
                    self.ready.clear();
                }
                return Poll::Ready(Some((self.of, delta)));
            }
            let count = self.choices.len();
            let mut pending = false;
            let mut read = false;
            for step in 0..count {
                let at = (self.turn + step) % count;
                let choice = &mut self.choices[at];
                if choice.ended() {
                    continue;
                }
                let before = choice.times();
                match choice.poll(cx, &mut self.ready) {
                    Poll::Pending => pending = true,
                    Poll::Ready(token) => {
                        if token {
                            self.metrics.token(before, choice.times());
                        }
                        if let Some(Delta { event: Event::Finished(finish), .. }) =
                            self.ready.back()
                        {
                            self.metrics.finished(finish, choice.times());
                            let served = choice.served(finish.reason.word());
                            self.trace.choice(&served, choice.times());
                            self.metrics.recent.note(served);
                            self.span.in_scope(|| log(finish));
                        }
                        (self.turn, self.of, read) = (at + 1, at, true);
                        break;
                    }
                }
            }
            match (read, pending) {
                (true, _) => {}
                (false, true) => return Poll::Pending,
                (false, false) => return Poll::Ready(None),
            }
        }
    }

    /// Waits for everything.
    ///
    /// # Errors
    /// Whatever made the answer fail.
    pub async fn collect(&mut self) -> Result<Vec<Whole>, Fault> {
        let mut parts: Vec<Part> = (0..self.choices.len()).map(|_| Part::default()).collect();
        while let Some((choice, delta)) = self.next().await {
            let part = &mut parts[choice];
            part.ids.extend(delta.ids);
            part.logprobs.extend(delta.logprobs);
            match delta.event {
                Event::Segment(Segment::Reasoning(text)) => part.reasoning.push_str(&text),
                Event::Segment(Segment::Text(text)) => part.text.push_str(&text),
                Event::Segment(Segment::ToolCall { name, .. }) => {
                    part.calls.push(WholeCall { name, arguments: String::new() });
                }
                Event::Segment(Segment::Arguments { index, delta }) => {
                    if let Some(call) = part.calls.get_mut(index) {
                        call.arguments.push_str(&delta);
                    }
                }
                Event::Segment(Segment::ToolCallEnd { .. }) => {}
                Event::Finished(finish) => part.finish = Some(finish),
                Event::Failed(fault) => return Err(fault),
            }
        }
        let whole = |part: Part| {
            let Part { reasoning, text, calls, ids, logprobs, finish } = part;
            let finish = finish.ok_or_else(|| Fault::internal("an answer ended without a reason"));
            Ok(Whole { reasoning, text, calls, ids, logprobs, finish: finish? })
        };
        parts.into_iter().map(whole).collect()
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        let answers: usize = self.choices.iter().map(Choice::tokens).sum();
        let prompts: usize = self.prompts.iter().map(|prompt| prompt.tokens.len()).sum();
        if let Some(key) = &self.key {
            key.count((answers + prompts) as u64);
        }
        self.trace.end(prompts, answers);
        let cut: Vec<&Choice> = self.choices.iter().filter(|choice| !choice.ended()).collect();
        if !cut.is_empty() {
            for choice in &cut {
                self.metrics.cancelled();
                self.trace.choice(&choice.served("abort"), choice.times());
                self.metrics.recent.note(choice.served("abort"));
            }
            let cut = cut.len();
            self.span.in_scope(|| tracing::info!(choices = cut, "answer cancelled"));
        }
    }
}

fn log(finish: &Finish) {
    tracing::info!(
        reason = ?finish.reason,
        prompt_tokens = finish.prompt_tokens,
        cached_tokens = finish.cached_tokens,
        tokens = finish.tokens,
        first_ms = finish.first.as_millis() as u64,
        rest_ms = finish.rest.as_millis() as u64,
        "answer"
    );
}

#[derive(Default)]
struct Part {
    reasoning: String,
    text: String,
    calls: Vec<WholeCall>,
    ids: Vec<u32>,
    logprobs: Vec<TokenLogprob>,
    finish: Option<Finish>,
}
