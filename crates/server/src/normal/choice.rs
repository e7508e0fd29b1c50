//! One choice: from the tokens of a ticket to deltas.
//!
//! Order: decoder (never half a character), stop strings (over everything that the model writes),
//! parser (reasoning and calls apart). Each may hold text back; when the answer ends, all is given.

use super::event::{Delta, Event, Finish, Reason, TokenLogprob, TokenText};
use super::items::{Item, Items, items};
use crate::fault::Fault;
use crate::status::Served;
use arclight_engine::{Logprobs, RequestSummary, StopReason, StopStrings, Text, Ticket, Token};
use axum::http::StatusCode;
use chat::{Parser, Segment};
use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant, SystemTime};
use tokenizer::{DecodeOptions, Decoder, Tokenizer};

/// How tokens become text.
pub(super) struct Reading {
    pub(super) tokenizer: Arc<Tokenizer>,
    pub(super) decode: DecodeOptions,
    pub(super) stop: Vec<String>,
    /// `None` if all text is text.
    pub(super) parser: Option<Parser>,
    /// The answer begins within reasoning.
    pub(super) thinking: bool,
    /// The answer ends with its first call.
    pub(super) one_call: bool,
    pub(super) prompt_tokens: usize,
    pub(super) submitted: Instant,
    /// The one token is computed for the prompt's sake only.
    pub(super) discard: bool,
}

/// A choice that is being answered.
pub(super) struct Choice {
    /// `None` when it has ended.
    items: Option<Items>,
    tokenizer: Arc<Tokenizer>,
    decoder: Decoder<Arc<Tokenizer>>,
    stops: StopStrings,
    parser: Option<Parser>,
    thinking: bool,
    one_call: bool,
    discard: bool,
    called: bool,
    prompt_logprobs: Vec<Logprobs>,
    /// Of tokens that no delta has had yet.
    logprobs: Vec<TokenLogprob>,
    /// The same tokens.
    ids: Vec<u32>,
    prompt_tokens: usize,
    cached_tokens: usize,
    tokens: usize,
    reasoning_tokens: usize,
    /// The token that ended it.
    end_token: Option<u32>,
    /// Who served it, and how long it had waited; known at its end.
    place: Option<(usize, Duration)>,
    submitted: Instant,
    first: Option<Instant>,
    last: Instant,
}

impl Choice {
    pub(super) fn new(ticket: Ticket, reading: Reading) -> Choice {
        Choice {
            items: Some(items(ticket)),
            decoder: Decoder::new(reading.tokenizer.clone(), reading.decode),
            tokenizer: reading.tokenizer,
            stops: StopStrings::new(reading.stop),
            parser: reading.parser,
            thinking: reading.thinking,
            one_call: reading.one_call,
            discard: reading.discard,
            called: false,
            prompt_logprobs: Vec::new(),
            logprobs: Vec::new(),
            ids: Vec::new(),
            prompt_tokens: reading.prompt_tokens,
            cached_tokens: 0,
            tokens: 0,
            reasoning_tokens: 0,
            end_token: None,
            place: None,
            submitted: reading.submitted,
            first: None,
            last: reading.submitted,
        }
    }

    /// Tokens of the answer so far.
    pub(super) fn tokens(&self) -> usize {
        self.tokens
    }

    pub(super) fn ended(&self) -> bool {
        self.items.is_none()
    }

    /// Of the prompt's tokens but the first; complete with the first delta.
    pub(super) fn prompt_logprobs(&self) -> &[Logprobs] {
        &self.prompt_logprobs
    }

    /// Times of the submission, of the first token, and of the last one so far.
    pub(super) fn times(&self) -> (Instant, Option<Instant>, Instant) {
        (self.submitted, self.first, self.last)
    }

    /// What is remembered of it: it has ended so.
    pub(super) fn served(&self, end: &'static str) -> Served {
        Served {
            end,
            ended: SystemTime::now(),
            place: self.place,
            prompt_tokens: self.prompt_tokens,
            cached_tokens: self.cached_tokens,
            tokens: self.tokens,
            first: self.first.map(|first| first - self.submitted),
            rest: self.first.map_or(Duration::ZERO, |first| self.last - first),
        }
    }

    /// Reads what there is next and appends what comes of it, which may be nothing. Ready with
    /// whether it was a token; only to be called while it has not ended.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, out: &mut VecDeque<Delta>) -> Poll<bool> {
        let Some(items) = &mut self.items else { return Poll::Ready(false) };
        let Poll::Ready(item) = items.as_mut().poll_next(cx) else { return Poll::Pending };
        let mut token = false;
        match item {
            Some(Item::Prompt { cached, logprobs }) => {
                (self.cached_tokens, self.prompt_logprobs) = (cached, logprobs);
            }
            Some(Item::Token(next)) => {
                token = true;
                self.take(next, out);
            }
            Some(Item::Ended(outcome)) => self.end(&outcome, out),
            Some(Item::Failed(error)) => self.fail(error.into(), out),
            None => self.items = None,
        }
        Poll::Ready(token)
    }

    fn take(&mut self, token: Token, out: &mut VecDeque<Delta>) {
        self.last = Instant::now();
        self.first.get_or_insert(self.last);
        if self.discard {
            return;
        }
        self.tokens += 1;
        self.ids.push(token.id);
        self.reasoning_tokens += usize::from(self.thinking);
        if let Some(logprobs) = token.logprobs {
            self.logprobs.push(logprob(&self.tokenizer, token.id, &logprobs));
        }
        // A token that would end the answer and was to be ignored has no text of its own.
        if self.tokenizer.is_eog(token.id) {
            return;
        }
        let text = self.decoder.push(token.id);
        if text.is_empty() {
            return;
        }
        let (text, stopped) = match self.stops.push(text) {
            Text::More(text) => (text, false),
            Text::Stop(text) => (text, true),
        };
        let called = self.write(&text, out);
        if stopped || called {
            // Dropping the ticket ends the computing.
            self.items = None;
            self.finish(Reason::Stop, out);
        }
    }

    fn end(&mut self, outcome: &RequestSummary, out: &mut VecDeque<Delta>) {
        self.place = Some((outcome.replica, outcome.queued));
        let reason = match outcome.stopped {
            StopReason::EndToken(_) | StopReason::Interrupted => Reason::Stop,
            StopReason::Limit | StopReason::Context => Reason::Length,
            StopReason::Deadline => {
                let message = "the answer was not finished in the time that a request may take";
                let fault = Fault::new(StatusCode::GATEWAY_TIMEOUT, message).code("timeout");
                return self.fail(fault, out);
            }
        };
        self.items = None;
        if let StopReason::EndToken(token) = outcome.stopped {
            self.end_token = Some(token);
        }
        let rest = self.decoder.flush().to_owned();
        let (text, reason) = match self.stops.push(&rest) {
            Text::More(text) => (text + &self.stops.finish(), reason),
            Text::Stop(text) => (text, Reason::Stop),
        };
        self.write(&text, out);
        self.finish(reason, out);
    }

    fn fail(&mut self, fault: Fault, out: &mut VecDeque<Delta>) {
        self.items = None;
        out.push_back(Event::Failed(fault).into());
    }

    /// Gives text to the parser, and what it says to the client; whether the answer ends with it.
    fn write(&mut self, text: &str, out: &mut VecDeque<Delta>) -> bool {
        if text.is_empty() {
            return false;
        }
        match &mut self.parser {
            None => {
                self.send(Event::Segment(Segment::Text(text.to_owned())), out);
                false
            }
            Some(parser) => {
                let segments = parser.push(text);
                self.send_all(segments, out)
            }
        }
    }

    fn send_all(&mut self, segments: Vec<Segment>, out: &mut VecDeque<Delta>) -> bool {
        for segment in segments {
            self.thinking = matches!(segment, Segment::Reasoning(_));
            self.called |= matches!(segment, Segment::ToolCall { .. });
            let ends_call = matches!(segment, Segment::ToolCallEnd { .. });
            let event = Event::Segment(segment);
            if !ends_call {
                self.send(event, out);
                continue;
            }
            // Log-probabilities go with the next text.
            out.push_back(event.into());
            if self.one_call {
                // The text that the parser still holds is behind the one call.
                self.parser = None;
                return true;
            }
        }
        false
    }

    fn send(&mut self, event: Event, out: &mut VecDeque<Delta>) {
        let (ids, logprobs) = (std::mem::take(&mut self.ids), std::mem::take(&mut self.logprobs));
        out.push_back(Delta { event, ids, logprobs });
    }

    fn finish(&mut self, reason: Reason, out: &mut VecDeque<Delta>) {
        if let Some(parser) = self.parser.take() {
            let cut = reason == Reason::Length;
            let rest = if cut { parser.cut() } else { parser.finish() };
            self.send_all(rest, out);
        }
        if !self.logprobs.is_empty() {
            self.send(Event::Segment(Segment::Text(String::new())), out);
        }
        let reason = if self.called && reason == Reason::Stop { Reason::ToolCalls } else { reason };
        let first = self.first.unwrap_or(self.last);
        let finish = Finish {
            reason,
            stop: self.stops.found().map(str::to_owned),
            end_token: self.end_token,
            queued: self.place.map_or(Duration::ZERO, |(_, queued)| queued),
            prompt_tokens: self.prompt_tokens,
            cached_tokens: self.cached_tokens,
            tokens: self.tokens,
            reasoning_tokens: self.reasoning_tokens,
            first: first - self.submitted,
            rest: self.last - first,
        };
        self.send(Event::Finished(finish), out);
    }
}

impl From<Event> for Delta {
    fn from(event: Event) -> Delta {
        Delta { event, ids: Vec::new(), logprobs: Vec::new() }
    }
}

/// A token's log-probabilities with its text.
pub(super) fn logprob(tokenizer: &Tokenizer, id: u32, logprobs: &Logprobs) -> TokenLogprob {
    TokenLogprob {
        token: token_text(tokenizer, id),
        logprob: Some(logprobs.chosen),
        top: logprobs.top.iter().map(|&(id, l)| (token_text(tokenizer, id), l)).collect(),
    }
}

/// A token with the bytes it stands for.
pub(super) fn token_text(tokenizer: &Tokenizer, id: u32) -> TokenText {
    TokenText { id, bytes: tokenizer.token_bytes(id).unwrap_or_default().to_vec() }
}
