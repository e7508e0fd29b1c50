//! The model of time: how fast would this model decode on that machine, placed like this?
//!
//! Decode streams every weight once per token, so a step takes *bytes / bandwidth + waits ×
//! latency*. Three values say what that means and one function evaluates them:
//!
//! - [`MachineModel`]: cores per memory node, the read-bandwidth matrix, a core's own rate, and
//!   what a barrier costs ([`WaitModel`]);
//! - [`ModelShape`]: bytes of each matrix of a dense transformer;
//! - [`Engine`]: who reads which bytes from which node, and how often threads wait; with a shape
//!   and a number of threads per node it becomes a [`StepModel`];
//! - [`predict`]: seconds of a step, stage by stage, with the [`Resource`] that limits each.
//!
//! [`known`] holds published machines, models and engines. Formulas, the origin of every number
//! and the comparison with the ArcLight paper's figures are in `docs/cost-model.md`.
//!
//! Limits: one sequence, one token per step; memory and waiting only, no multiply peak (prefill is
//! not predicted), no jitter between threads. Nodes are positions in the machine's matrix, not the
//! kernel's node ids, which may have gaps.
//!
//! ```
//! # extern crate arclight_tune as tune;
//! use tune::{Engine, known, predict};
//! let (machine, model) = (known::kunpeng_920(), known::qwen3_4b_q4_0());
//! let step = Engine::tensor_parallel().step(&model, 128, &[48, 48, 48, 48])?;
//! let prediction = predict(&machine, &step)?;
//! assert!(prediction.tokens_per_second() > 3.5 * 102e9 / model.bytes());
//! # Ok::<(), tune::Error>(())
//! ```
#![forbid(unsafe_code)]

mod engine;
mod error;
pub mod known;
mod machine;
mod model;
mod predict;
mod step;
mod waits;

pub use engine::{Engine, Placement};
pub use error::Error;
pub use machine::{CoreRead, MachineModel, Matrix, parse_matrix};
pub use model::ModelShape;
pub use predict::{Prediction, Resource, StagePrediction, predict};
pub use step::{Pages, Stage, StepModel, Waits};
pub use waits::{Barrier, WaitModel};
