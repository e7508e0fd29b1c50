//! One model over several hosts: each has a run of its layers, a *stage*.
//!
//! The last stage is the *front*. It has the head and with it logits, samplers, grammars and the queue; it tells all
//! other stages which steps to take ([`order`]). Rows of the residual stream go from each stage to the next
//! ([`link`]), and from the last but one to the front: nothing else but tokens and page numbers crosses a link.
//!
//! Stages take steps in the order in which the front sends them, so a page means the same everywhere although only the
//! front knows of sequences: it keeps the books for all ([`part::Cache`]). While one step is in one stage, another is in
//! the next.
//!
//! A stage that cannot go on, or says nothing for [`greet::SILENCE`], ends all that is under way. The front then looks for
//! all stages again, and begins with an empty cache; stages keep their weights.

mod front;
#[cfg(any(fuzzing, test))]
mod fuzz;
mod greet;
mod ledger;
mod link;
mod message;
mod options;
mod order;
mod part;
mod port;
mod server;
mod session;
mod status;
mod tables;
#[cfg(test)]
mod tests;
mod wire;

#[cfg(any(fuzzing, test))]
pub use fuzz::FuzzStage;
#[cfg(fuzzing)]
pub use fuzz::fuzz_stage_messages;
pub use options::{StageKey, StageOptions};
pub use server::{StageServer, StageStop};
pub use status::{StageCounts, StageStatus, State as StageState};

pub(crate) use front::{Group, agree};
pub(crate) use order::{GivenRows, Order, Part};
pub(crate) use part::{Cache, LostStage, Whole};
