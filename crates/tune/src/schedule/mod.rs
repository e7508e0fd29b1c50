//! The search for how each matrix is multiplied fastest, by measuring: micro-kernel, slices, the grid of
//! threads, and prefetch, by the number of tokens.
//!
//! A [`Scheduler`] proposes a [`Schedule`] for a [`Problem`] (a weight matrix and the threads that multiply
//! it) to a [`Bench`], which times it, and ends with [`TunedSchedules`]: for each matrix a table that has a
//! schedule for every count of tokens up to the largest, or says that the default stays. As text they
//! are part of a [`Profile`](crate::tuner::Profile).
//!
//! What is searched, which counts are looked at, and how many evaluations that takes:
//! `docs/tuning.md`. Source: kernel orchestration of Zhao, Li, Wu, *Sandwich* (2026), section 5.
//!
//! Limits: a product is known by its time alone, by itself, so what it leaves in caches for the next one
//! does not count; matrices are searched one after the other.

mod counts;
mod run;
mod search;
mod session;
mod shape;
mod table;

pub use graph::{Grid, MatrixShape, Schedule, Slice};
pub use run::{Found, Scheduler};
pub use session::{Bench, ScheduleProgress};
pub use shape::{Kernel, Problem, grids};
pub use table::{Compared, Tuned, TunedRow, TunedSchedules};
