//! Ollama's API: chat, generate, and what models there are.
//!
//! Answers are lines of JSON unless `stream` is false; durations are nanoseconds; the arguments of a
//! call are an object, so a call is told when it is complete. One model is served, under its names
//! and the same with the tag `latest`; it stays loaded, whatever `keep_alive` says. Not here: all that
//! pulls, makes or deletes models.

mod chat;
mod embed;
mod generate;
mod models;
mod options;
mod prompt;
mod stream;
mod wire;

pub(crate) use chat::chat;
pub(crate) use embed::embed;
pub(crate) use generate::generate;
pub(crate) use models::{ps, show, tags, version};
pub(crate) use wire::fault;
#[cfg(test)]
pub(crate) use {chat::ChatBody, embed::EmbedBody, generate::GenerateBody, options::Shared};
