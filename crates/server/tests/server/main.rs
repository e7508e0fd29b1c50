//! The server from outside: its routes in this process, and real connections where these matter.

mod adapters;
mod anthropic;
mod chat;
mod completions;
mod connections;
mod embeddings;
mod errors;
mod harmony;
mod images;
mod ollama;
mod operation;
mod probes;
mod responses;
mod slots;
mod support;
mod transcripts;
mod wire;
