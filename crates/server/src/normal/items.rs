//! A ticket as a stream, so that the answers of several can be waited for together.

use arclight_engine::{Error, Logprobs, RequestSummary, Ticket, Token};
use futures_util::{Stream, stream};
use std::pin::Pin;

/// What comes out of a ticket.
pub(super) enum Item {
    /// The prompt is computed; then comes a token, or the end of an answer without any.
    Prompt {
        /// Tokens of it that were in the prefix cache.
        cached: usize,
        /// Of all of them but the first, if asked for.
        logprobs: Vec<Logprobs>,
    },
    /// A token.
    Token(Token),
    /// The answer ended.
    Ended(RequestSummary),
    /// The answer failed.
    Failed(Error),
}

/// What comes out of a ticket, in order. Dropping it drops the ticket, which cancels the request.
pub(super) type Items = Pin<Box<dyn Stream<Item = Item> + Send>>;

enum State {
    Begin(Ticket),
    /// A token that waits until the prompt has been sent.
    Held(Ticket, Token),
    Going(Ticket),
    Over(Option<Item>),
}

/// Makes a stream of a ticket. It ends with [`Item::Ended`] or [`Item::Failed`].
pub(super) fn items(ticket: Ticket) -> Items {
    Box::pin(stream::unfold(State::Begin(ticket), |state| async {
        let (mut ticket, begin) = match state {
            State::Over(last) => return Some((last?, State::Over(None))),
            State::Held(ticket, token) => return Some((Item::Token(token), State::Going(ticket))),
            State::Begin(ticket) => (ticket, true),
            State::Going(ticket) => (ticket, false),
        };
        let next = ticket.recv().await;
        let prompt = |ticket: &Ticket| Item::Prompt {
            cached: ticket.cached(),
            logprobs: ticket.prompt_logprobs().to_vec(),
        };
        Some(match next {
            Some(Ok(token)) if begin => (prompt(&ticket), State::Held(ticket, token)),
            Some(Ok(token)) => (Item::Token(token), State::Going(ticket)),
            Some(Err(error)) => (Item::Failed(error), State::Over(None)),
            None => {
                let end = match ticket.outcome() {
                    Some(outcome) => Item::Ended(outcome.clone()),
                    None => Item::Failed(Error::ReplicasClosed),
                };
                if begin {
                    (prompt(&ticket), State::Over(Some(end)))
                } else {
                    (end, State::Over(None))
                }
            }
        })
    }))
}
