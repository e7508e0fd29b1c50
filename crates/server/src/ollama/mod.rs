//! Ollama's API: chat, generate, and what models there are.
//!
//! Answers are lines of JSON unless `stream` is false; durations are nanoseconds; the arguments of a
//! call are an object, so a call is sent when it is complete. A model is served under its names and the
//! same with the tag `latest`; a server's only model stays loaded, whatever `keep_alive` says. What pulls, makes
//! or deletes models is in `models::change`.

mod chat;
mod embed;
mod generate;
mod models;
mod options;
mod prompt;
mod recipe;
pub(crate) mod shapes;
mod stream;
mod wire;

pub(crate) use chat::{ChatBody, chat};
pub(crate) use embed::{EmbedBody, Embedded, One, OneBody, embed, embeddings};
pub(crate) use generate::{GenerateBody, generate};
pub(crate) use models::{Models, ShowBody, Shown, Tag, Version, ps, show, tags, version};
pub(crate) use options::Shared;
pub use recipe::Recipe;
pub(crate) use wire::fault;
