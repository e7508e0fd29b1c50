//! The model of time: how fast would this model prefill and decode on that machine, placed like this?
//!
//! Decoding streams every weight once per token; a prompt multiplies each with many tokens. So a stage
//! of a step takes *max(bytes / bandwidth, products / peak)*, and on top come *waits × latency* and
//! what threads do not share (Amdahl's serial part). A few types describe this and one function evaluates
//! them:
//!
//! - [`MachineModel`]: cores per memory node, the read-bandwidth matrix, a core's own rates
//!   ([`CoreRead`], [`CoreMath`]), and what a barrier costs ([`WaitModel`]);
//! - [`ModelGraphs`]: the compiled programs of a model's graph, with the work of their stages by the book;
//! - [`Work`]: how many new tokens after how many others;
//! - [`Engine`]: which nodes share the model, where its bytes lie, and how often threads wait; with a model,
//!   work and a number of threads per node it becomes a [`StepModel`];
//! - [`predict`]: seconds of a step, stage by stage, with the [`Resource`] that limits each;
//! - [`best`]: the number of threads per node that is fastest.
//!
//! [`known`] holds published machines, models and engines. Formulas, the origin of every number
//! and the comparison with the figures of ArcLight and Arm are in `docs/cost-model.md`.
//!
//! [`hosts`] is how steps follow each other where several hosts have a model's layers.
//!
//! [`tuner`] is the search on the machine itself: with measured times in place of the model's; and
//! [`schedule`] that for how its matrices are multiplied.
//!
//! Limits: one sequence; no jitter between threads. Nodes are positions in the machine's
//! matrix, not the kernel's node ids, which may have gaps.
//!
//! ```
//! # extern crate arclight_tune as tune;
//! use tune::{Engine, Work, known, predict};
//! let (machine, model) = (known::kunpeng_920(), known::qwen3_4b_q4_0());
//! let step = Engine::tensor_parallel().step(&model, Work::decode(128), &[48; 4])?;
//! let prediction = predict(&machine, &step)?;
//! let (weights, _) = model.bytes(1, 128)?;
//! assert!(prediction.tokens_per_second() > 3.2 * 102e9 / weights);
//! # Ok::<(), tune::Error>(())
//! ```
#![forbid(unsafe_code)]

mod engine;
mod error;
pub mod hosts;
pub mod known;
mod machine;
mod machines;
mod model;
mod predict;
mod scaling;
pub mod schedule;
mod search;
pub mod simulated;
mod step;
pub mod tuner;
mod waits;

pub use engine::{Engine, Placement};
pub use error::Error;
pub use machine::{CoreMath, CoreRead, MachineModel, Matrix, parse_matrix};
pub use model::ModelGraphs;
pub use predict::{Prediction, Resource, StagePrediction, predict};
pub use scaling::Amdahl;
pub use search::{Best, Job, best, threads_on};
pub use step::{Pages, StepModel, Waits, Work};
pub use waits::{Barrier, WaitModel};
