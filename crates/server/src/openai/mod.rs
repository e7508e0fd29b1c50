//! OpenAI's API: chat completions, completions, embeddings, models.
//!
//! Fields that are not known are ignored, as OpenAI does. Fields that are known and cannot be
//! honoured are refused with 400 instead of being ignored.

pub(crate) mod chat;
pub(crate) mod chat_stream;
mod chunks;
pub(crate) mod completions;
mod completions_stream;
pub(crate) mod custom;
pub(crate) mod embeddings;
pub(crate) mod llama;
pub(crate) mod messages;
pub(crate) mod models;
pub(crate) mod sampling;
pub(crate) mod shapes;
pub(crate) mod tools;
pub(crate) mod wire;
