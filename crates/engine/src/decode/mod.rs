//! Answering: requests are checked, and answered a step at a time.
//!
//! [`Batch`] is the one loop: what a step has of each request, what is sampled from it, and who gives up pages when
//! there are none. A replica's thread runs it for what its queue gives it ([`replicas`](crate::replicas)), and a
//! [`Generation`] for one request on the caller's thread.

mod answer;
mod asked;
mod batch;
mod counters;

mod generation;
mod guided;
mod pace;
mod pooled;
mod request;
mod running;
mod standing;

pub use asked::Ids;
pub(crate) use asked::{Answer, Asked, Bounds, Event, Heard, Left};
pub(crate) use batch::Batch;
pub use batch::Helpers;
pub use counters::Counters;
pub use generation::Generation;
pub(crate) use pace::Pace;
pub use pooled::{cut, unit};
pub use request::{
    Constraint, Request, RequestSummary, Rows, StopHook, StopReason, Timings, Token,
};
pub(crate) use running::Running;
pub(crate) use standing::{Standing, Waits};

#[cfg(test)]
pub(crate) use asked::tests;
