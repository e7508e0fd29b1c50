//! A load generator for servers that speak OpenAI's API: this project's, llama-server, vLLM.
//!
//! A benchmark is a list of runs against one [`Server`]:
//!
//! 1. [`Server::find`] learns the model's name, which fields the server takes, how it counts tokens.
//! 2. A [`Workload`] describes the requests: lengths by distribution, or a user's file.
//! 3. [`Server::prepare`] makes prompts of it and [`Server::run`] sends them by a [`Load`]: arrivals of
//!    an open loop, or streams of a closed one.
//! 4. [`Figures`], [`Slo`] and [`Effect`] summarise the [`Record`]s; [`Report`] is all of it as JSON, and
//!    [`plot`] as a picture.
//!
//! What each figure means, and where its definition comes from, is in `docs/serving-bench.md`.
//!
//! Limits: HTTP/1.1 without TLS; one choice per request; a generator of one thread, which is good for
//! some ten thousand events a second (the lag in the figures says when it was not).
#![forbid(unsafe_code)]

mod arrivals;
mod client;
mod effect;
mod error;
mod exchange;
mod lengths;
pub mod plot;
mod prompt;
mod record;
mod report;
mod rng;
mod run;
mod server;
mod slo;
mod sse;
mod stats;
mod wire;
mod words;
mod workload;

pub use arrivals::Arrivals;
pub use client::Client;
pub use effect::Effect;
pub use error::Error;
pub use lengths::{Lengths, Trace};
pub use record::{Failure, Outcome, Reason, Record};
pub use report::{Head, Level, Report};
pub use rng::Rng;
pub use run::{Intruder, Load, Prepared, Run, block_on};
pub use server::{Options, Server};
pub use slo::{Attainment, Goodput, Slo};
pub use stats::{Failures, Figures, Summary};
pub use wire::{Dialect, Endpoint};
pub use workload::{Ask, Prompt, Workload};
