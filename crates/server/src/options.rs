//! How a server is to behave.

use crate::adapters::ServedAdapter;
use crate::batch::FileStore;
use crate::http::files;
use crate::keys::Keys;
use crate::normal::Media;
use crate::ollama::Recipe;
use crate::page::PageTools;
use crate::status::MeasureReads;
use arclight_engine::{Pooling, SamplerParams};
use std::path::PathBuf;
use std::time::Duration;

/// Options of a [`Server`](crate::Server).
#[derive(Clone, Debug)]
pub struct Options {
    /// What the model is called on the wire; the first name is its id, the others are known too.
    pub names: Vec<String>,
    /// Adapters that the model is loaded with, in the order of their numbers.
    pub adapters: Vec<ServedAdapter>,
    /// API keys, any of which gives access. None: no key is needed.
    pub keys: Keys,
    /// Origins of web pages that may call the server, or `*` for all. Empty: none.
    pub origins: Vec<String>,
    /// Names by which browsers may address a server without keys, or `*` for all; IP addresses and `localhost` always
    /// may. Pages of these names are the server's own, for a proxy that serves them.
    pub hosts: Vec<String>,
    /// Largest request in bytes.
    pub body_limit: usize,
    /// Memory that the process may have, if it is bounded: requests that are being read take an eighth of it at most.
    pub memory: Option<u64>,
    /// Time for a request to arrive, head and body each.
    pub read_timeout: Duration,
    /// Time that a client may take to read what was sent, before it is cut off.
    pub write_timeout: Duration,
    /// Time for an answer, the wait in the queue included. `None`: no limit.
    pub request_timeout: Option<Duration>,
    /// Silence in a stream after which a comment is sent as a sign of life.
    pub ping: Duration,
    /// Connections that have requests at once; as many can wait for one. A request on a further one gets 503.
    pub connections: usize,
    /// Connections of one address. `None`: three quarters of `connections`, and all of them for this machine's own
    /// addresses.
    pub per_address: Option<usize>,
    /// Most choices of one request: `n` times its prompts.
    pub choices: usize,
    /// Time for requests to end when the server stops.
    pub drain: Duration,
    /// Sampling where a request does not say.
    pub sampler: SamplerParams,
    /// What the model is told before a conversation that has no message of the system's.
    pub system: Option<String>,
    /// What the model was made of, if it was made of another.
    pub recipe: Recipe,
    /// Texts that end an answer, where a request names none.
    pub stop: Vec<String>,
    /// Most tokens of an answer, where a request does not say.
    pub answer_limit: Option<usize>,
    /// Folder in which clients may save what slots have left; [`open_slot_folder`](crate::open_slot_folder) makes it.
    /// The model must be loaded with [`saves`](arclight_engine::ReplicaOptions::saves).
    pub slot_saves: Option<PathBuf>,
    /// Bytes that the files of that folder may have together.
    pub slot_save_bytes: u64,
    /// How hidden states become the vector of a text. `None`: as the model's file says, which means the
    /// last token's if it says nothing.
    pub pooling: Option<Pooling>,
    /// What images of requests may be.
    pub media: Media,
    /// Where files and batches are kept. `None`: there are none.
    pub files: Option<FileStore>,
    /// Tools that the page may have called, if there are any.
    pub page_tools: Option<PageTools>,
    /// Whether there is a page at `/` and at `/status`.
    pub page: bool,
    /// Time before a model that has failed is loaded again; it doubles with each time that follows.
    pub reload_wait: Duration,
    /// How it is measured what memory can deliver, for `/status.json`. `None`: it is not told.
    pub measure_reads: Option<MeasureReads>,
}

impl Options {
    /// Files that are open for connections at most.
    pub fn files(&self) -> usize {
        files(self.connections)
    }
}

impl Default for Options {
    fn default() -> Options {
        Options {
            names: vec!["default".to_owned()],
            adapters: Vec::new(),
            keys: Keys::default(),
            origins: Vec::new(),
            hosts: Vec::new(),
            body_limit: 16 << 20,
            memory: None,
            read_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(60),
            request_timeout: Some(Duration::from_secs(3600)),
            ping: Duration::from_secs(10),
            connections: 1024,
            per_address: None,
            choices: 128,
            drain: Duration::from_secs(30),
            sampler: SamplerParams {
                temperature: 1.0,
                top_k: 0,
                top_p: 1.0,
                min_p: 0.0,
                ..SamplerParams::default()
            },
            system: None,
            recipe: Recipe::default(),
            stop: Vec::new(),
            answer_limit: None,
            slot_saves: None,
            slot_save_bytes: 16 << 30,
            pooling: None,
            media: Media::default(),
            files: None,
            page_tools: None,
            page: true,
            reload_wait: Duration::from_secs(1),
            measure_reads: None,
        }
    }
}
