//! The book of work: what instructions read, multiply, write and send, as functions of the step.
//!
//! Every instruction states its work once, as [`Line`]s: an amount of something ([`What`]) for each unit
//! of something that a step has ([`Per`]). A matrix is read once if there are rows to multiply, a lookup
//! table costs the rows that are looked up, keys cost what tokens see of them. How many units a step has
//! is its [`Extent`]. Counts of an executor ([`Counts`]), profiles, floors of benchmarks, `arclight plan`
//! and its model of time are sums over these lines.
//!
//! Limits: amounts are of a place's whole team, or of each of its threads ([`Dealt`]). Bytes count once
//! however many threads of a team read them: what a shared cache does for them is not in the book. Keys
//! count once for each sequence of a step.

mod cost;
mod counts;
mod entries;
mod extent;
mod needs;

pub(crate) use cost::Cost;
pub use cost::{PlaceCounts, WaitCounts};
pub use counts::Counts;
pub(crate) use entries::{Desk, Entry, FLOAT, Owned, product, slot};
pub use extent::Extent;
pub use needs::{Demand, Needs};

use crate::buffer::BufId;
use crate::weight::MatrixId;
use kernels::Product;

/// Memory that is read or written.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Memory {
    /// Packed weights that a product streams.
    Weights(MatrixId),
    /// Rows of a matrix that are looked up.
    Table(MatrixId),
    /// What a layer keeps for sequences: the cache of this number.
    State(usize),
    /// Rows of a buffer.
    Rows(BufId),
}

/// What an amount is of.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// Bytes that are read from memory of a place.
    Read(Memory, usize),
    /// Bytes that are written to memory of a place.
    Write(Memory, usize),
    /// Multiply-accumulates; attention's are of single precision.
    Multiply(Product),
    /// Elements of rows that are normed, added, quantised or joined.
    Pass,
}

/// Rows of a step.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum RowsOf {
    /// Its tokens.
    Tokens,
    /// Rows of logits and hidden states that are asked for.
    Outputs,
    /// Rows of logits alone.
    Logits,
    /// Hidden states alone.
    Hidden,
}

/// Units of a step that amounts are for.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Per {
    /// The step, if it has such rows.
    Step(RowsOf),
    /// Each such row.
    Row(RowsOf),
    /// Each key of a sequence that a token of the step sees, in a class.
    Key(usize),
    /// Each key, for each token that sees it.
    Pair(usize),
    /// Each range of keys, for each token that sees some of it.
    Range(usize),
    /// Each sequence, whose state of fixed size is read and written once.
    Sequence,
    /// Each token whose row of the table lies in a place.
    Lookup(MatrixId, usize),
    /// Each expert of a class that some token chose.
    Expert(Choice),
    /// Each token, for each of its experts of a class.
    Slot(Choice),
    /// The step, if some of its rows have the adapter of this number.
    Adapter(u32),
    /// Each row that has it.
    Adapted(u32, RowsOf),
}

/// A class of the experts that tokens choose from.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Which of the model's routers.
    pub route: u32,
    /// The class, and how many experts it has.
    pub class: u32,
    /// See there.
    pub members: u32,
    /// Experts in all.
    pub experts: u32,
    /// Experts that a token goes to.
    pub chosen: u32,
}

/// Who does it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Dealt {
    /// The threads of the team share it.
    Team,
    /// Every thread does all of it for itself.
    Each,
}

/// A statement of the book.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Bytes, products or elements.
    pub amount: u64,
    /// Of what.
    pub what: What,
    /// For each of which units.
    pub per: Per,
    /// By whom.
    pub dealt: Dealt,
}

impl Line {
    /// Bytes that cross from one place to another, as `place` executes it.
    pub fn exchanged(&self, place: usize) -> u64 {
        match self.what {
            What::Read(_, at) | What::Write(_, at) if at != place => self.amount,
            _ => 0,
        }
    }
}
