//! Anthropic's API: messages, and how many tokens they are.
//!
//! An answer is a list of blocks: thoughts, text, calls of tools. In a stream every event has its name
//! in an `event:` line; a client that does not find it there takes no notice of the event. Versions:
//! 2023-06-01 and those since; the header may be left out. Of the betas none is needed, and the header
//! that asks for them is not read.

mod blocks;
mod messages;
pub(crate) mod shapes;
mod stream;
mod tools;
mod wire;

pub(crate) use messages::{Count, CountBody, MessagesBody, count_tokens, messages};
pub(crate) use wire::fault;
