//! Models by name: found on this machine, or fetched from the Hugging Face Hub and ModelScope.
//!
//! [`Name`] is the name of a model on a command line, [`shorts`] the table of short names. [`Hub::find`] looks in the Hub's
//! cache, which is shared with `huggingface_hub`, and in the folders of LM Studio and Ollama.
//! [`Hub::look`] asks the site for the files of a name, and [`Hub::fetch`] fetches them: over several connections,
//! continued where an earlier try ended, compared with the repository's SHA-256. Nothing is printed; the progress
//! of a download comes as [`Event`]s.
//!
//! # Why not `hf-hub`
//!
//! `hf-hub` 1.0 is asynchronous over `reqwest` and pulls in a client of Xet storage: 297 crates with TLS.
//! `ureq` brings 11 to this workspace, none of which needs CMake or OpenSSL's headers. It
//! lacks most of what this crate does: resuming several connections of one file, the files of other programs,
//! similar names, ModelScope. `ureq` 3 is blocking, small, does TLS by `rustls` with `ring` (a C compiler
//! builds it) and takes proxies from the environment.
//!
//! # Limits
//!
//! Files come by plain HTTP with ranges, which the Hub serves for Xet repositories too; Xet's own protocol
//! of chunks is not spoken. The branch of a repository is always `main`. ModelScope is read without a token.
#![forbid(unsafe_code)]

mod api;
mod at;
mod cache;
mod choose;
mod digest;
mod error;
mod fetch;
mod http;
mod hub;
mod local;
mod name;
mod near;
mod ollama;
mod partial;
mod settings;
mod table;

pub use error::Error;
pub use hub::{Event, Hub, Remote};
pub use local::{Model, Place, encoder_beside};
pub use name::{Name, Pick, Repo, Site};
pub use partial::Unfinished;
pub use settings::Settings;
pub use table::{Short, shorts};
