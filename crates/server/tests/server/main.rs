//! The server from outside: its routes in this process, and real connections where these matter.

mod adapters;
mod anthropic;
mod batches;
mod chat;
mod completions;
mod connections;
mod control_tokens;
mod dropped;
mod embeddings;
mod errors;
mod harmony;
mod images;
mod ollama;
mod operation;
mod origins;
mod page;
mod probes;
mod responses;
mod several;
mod slots;
mod sockets;
mod status;
mod support;
mod transcripts;
mod wire;
