//! Models by name: found on this machine, or fetched from the Hugging Face Hub and ModelScope.
//!
//! [`Name`] is what people type, [`shorts`] the table of short names. [`Hub::find`] looks in the Hub's
//! cache, which is shared with `huggingface_hub`, and in the folders of LM Studio and Ollama.
//! [`Hub::look`] asks the site what a name is, and [`Hub::fetch`] brings it: over several connections, on
//! from where an earlier try ended, compared with the repository's SHA-256. Nothing is printed; how far a
//! download is comes as [`Event`]s.
//!
//! # Why not `hf-hub`
//!
//! `hf-hub` 1.0 is asynchronous over `reqwest` and pulls in a client of Xet storage: 297 crates with TLS.
//! `ureq` brings 11 to this workspace, none of which needs CMake or OpenSSL's headers. What is wanted here
//! beyond it is most of the work: resuming several connections of one file, the files of other programs,
//! near names, ModelScope. `ureq` 3 is blocking, small, does TLS by `rustls` with `ring` (a C compiler
//! builds it) and takes proxies from the environment.
//!
//! # Limits
//!
//! Files come by plain HTTP with ranges, which the Hub serves for Xet repositories too; Xet's own protocol
//! of chunks is not spoken. Of a repository `main` is taken. ModelScope is read without a token.
#![forbid(unsafe_code)]

mod api;
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
pub use local::{Model, Place};
pub use name::{Name, Pick, Repo, Site};
pub use partial::Unfinished;
pub use settings::Settings;
pub use table::{Short, shorts};
