//! Serves a model over HTTP, with the APIs of OpenAI, Anthropic and Ollama.
//!
//! A program makes an [`App`], binds a [`Server`] to it, loads a [`Model`] beside and hands it over with
//! [`App::ready`]; until then requests get 503. [`router`] is the same without connections. Protocols
//! (`openai`, `anthropic`, `ollama`, `responses`) translate to and from one normal form (`normal`), which
//! does all work that concerns models; `http` has connections, limits and keys.
//!
//! Limits: one model, text and images in, text out, HTTP/1.1 without TLS.
#![forbid(unsafe_code)]

mod adapters;
mod anthropic;
mod error;
mod fault;
mod http;
mod lenient;
mod metrics;
mod normal;
mod ollama;
mod openai;
mod openapi;
mod operate;
mod options;
mod rerank;
mod responses;
mod score;
mod slots;
mod state;
mod text;

pub use adapters::ServedAdapter;
pub use error::Error;
pub use fault::Fault;
pub use http::{Server, router};
pub use normal::Media;
pub use options::Options;
pub use state::{App, ChatStyle, Info, Model};
