//! A client of servers that speak MCP, the Model Context Protocol: it starts them or connects to them, lists their
//! tools, and calls these.
//!
//! [`Target`] says where a server is, [`read_config`] reads several from the file that other clients have, and
//! [`Server`] is a connection.
//!
//! # Why not `rmcp`
//!
//! The official SDK is asynchronous, and `arclight chat` is not. It brings 15 crates for servers that are started, and
//! some 40 more (`reqwest`) for those that are reached by HTTP. What is needed of the protocol are four requests of
//! JSON, for which all crates are in the tree already.
//!
//! # Limits
//!
//! Tools only: no resources, prompts, sampling, roots or elicitation. Requests of a server's are answered with an error,
//! `ping` but for. A list of tools is read once. The older transport of HTTP with server-sent events (2024-11-05) is
//! not spoken, and there is no OAuth: a token is a header of the configuration.
#![forbid(unsafe_code)]

mod config;
mod error;
mod http;
mod message;
mod server;
mod stdio;

pub use config::{Target, read_config};
pub use error::Error;
pub use server::{Offer, Outcome, Server, Tool, offers};
