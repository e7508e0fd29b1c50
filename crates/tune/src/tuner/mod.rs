//! The search for how this machine serves this model fastest, by measuring: `arclight tune`.
//!
//! A [`Trace`] of requests comes down to a few [`StepKind`]s. A [`Tuner`] proposes [`Candidate`]s (a
//! [`Scheme`] of groups of CPUs, and a [`Level`] that says how many of each are used) to a
//! [`Measure`], which times steps on the engine, and ends with a scheme and a [`Table`] that has a
//! level for each number of tokens in a step. [`Quick`] asks fewer things in the time that it is
//! given. Of the best plans each gets its matrices tuned, and a [`Contest`] decides between them. What was
//! found becomes a [`Profile`] on disk.
//!
//! What is searched, why levels are nested, the rule for noise and the number of evaluations:
//! `docs/tuning.md`. Source: the search of Zhao, Li, Wu, *Sandwich* (2026), section 4 ([`topotree`]),
//! and its hot switch between plans of prompts and of decoding.
//!
//! Limits: the engine is known by its times alone; groups have as many CPUs as each other
//! (see [`topotree`]); how matrices are multiplied is not searched here but in
//! [`schedule`](crate::schedule).
//!
//! [`topotree`]: topology::topotree

mod contest;
mod descend;
mod families;
mod finals;
mod matrix_text;
pub(crate) mod noise;
mod plan;
mod profile;
mod profile_text;
mod quick;
mod scheme;
mod session;
mod setting;
mod table;
mod trace;
mod trail;
mod tune;

use crate::schedule::TunedSchedules;
use serde::Deserialize;

pub use contest::{Contest, Matrices, Won};
pub use noise::{faster, median};
pub use profile::{Identity, Objective, Profile, Stale};
pub use quick::{Choice, Quick, Start};
pub use scheme::{Candidate, Level, Scheme};
pub use session::{Measure, TuneProgress};
pub use setting::Setting;
pub use table::{Row, Table};
pub use trace::{Request, StepKind, Trace};
pub use trail::{Branch, Stage, Supposed, Team, Trail};
pub use tune::{Searched, Tuner};

/// What a search decided on.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// What to load the model for.
    pub scheme: Scheme,
    /// What each step uses of it.
    pub table: Table,
    /// Name and value of each choice of the caller's.
    pub choices: Vec<(String, String)>,
    /// What it brings, by kind of step.
    pub measured: Vec<Measured>,
    /// Steps timed.
    pub evaluations: usize,
    /// Times the model was loaded.
    pub loads: usize,
    /// False when the search was stopped; then the outcome is the best that was known.
    pub complete: bool,
    /// How matrices are multiplied, by a search of its own ([`crate::schedule`]); none before a
    /// [`Contest`].
    pub schedules: TunedSchedules,
}

/// A kind of step before and after tuning.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// Tokens in the step.
    pub tokens: u32,
    /// Tokens of the sequence before them.
    pub depth: u32,
    /// Tokens a second with the default, by the median of the repetitions.
    pub before: f64,
    /// Tokens a second as tuned; that of the default where nothing was changed.
    pub after: f64,
    /// Repetitions of each.
    pub repetitions: u32,
}
