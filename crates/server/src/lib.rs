//! Serves a model over HTTP, with the APIs of OpenAI, Anthropic and Ollama.
//!
//! A program makes an [`App`], binds a [`Server`] to it, loads a [`Model`] beside and hands it over with
//! [`App::ready`]; until then requests get 503. [`router`] is the same without connections. Protocols
//! (`openai`, `anthropic`, `ollama`, `responses`) translate to and from one normal form (`normal`), which
//! does all work that concerns models; `http` has connections, limits and keys.
//!
//! Several models are [`Models`]: an [`App`] each, loaded when a request names it.
//!
//! [`local`] is for programs that have a model in themselves.
//!
//! Limits: text and images in, text out.
#![forbid(unsafe_code)]

mod adapters;
mod anthropic;
mod batch;
mod blocking;
mod cluster;
mod disk;
mod error;
mod fault;
mod hold;
mod http;
mod keys;
mod lenient;
pub mod local;
mod metrics;
mod model;
mod models;
mod normal;
mod ollama;
mod openai;
mod openapi;
mod operate;
mod options;
mod owned;
mod page;
mod recover;
mod rerank;
mod responses;
mod saves;
mod score;
mod slots;
mod spans;
mod stage;
mod stamp;
mod state;
mod status;
mod text;

pub use adapters::ServedAdapter;
pub use batch::{FileOptions, FileStore};
pub use cluster::events::CachePublisher;
#[cfg(any(fuzzing, test))]
#[doc(hidden)]
pub use cluster::fuzz_event_peer;
pub use error::Error;
pub use fault::Fault;
pub use hold::Hold;
pub use http::{Background, Listener, Server, Site, Tls, router};
pub use keys::{Key, Keys};
pub use model::{Abilities, ChatStyle, Info, Model};
pub use models::{
    ModelChange, ModelEntry, ModelKeeper, ModelLimits, ModelSource, Models, PullStep,
};
pub use normal::Media;
pub use ollama::Recipe;
pub use options::Options;
pub use page::{PageTools, ToolServers};
pub use saves::open_slot_folder;
pub use stage::StageSite;
pub use state::App;
pub use status::MeasureReads;
