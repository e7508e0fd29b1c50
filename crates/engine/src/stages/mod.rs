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
mod order;
mod part;
mod port;
mod server;
mod status;
mod tables;
#[cfg(test)]
mod tests;
mod wire;

#[cfg(any(fuzzing, test))]
pub use fuzz::FuzzStage;
pub use greet::StageKey;
pub use part::StageOptions;
pub use server::{StageServer, StageStop};
pub use status::{StageCounts, StageStatus, State as StageState};

pub(crate) use front::{Group, agree};
pub(crate) use order::{Order, Part};
pub(crate) use part::{Cache, LostStage, Whole};

/// Reads bytes as messages, as far as they are some: each is then written as it was read, and page tables are those
/// that were told. For fuzzing.
#[cfg(fuzzing)]
pub fn fuzz_stage_messages(bytes: &[u8]) {
    read_any(bytes);
}

/// Bounds of steps and rows for fuzzing and tests.
#[cfg(any(fuzzing, test))]
struct Any;

#[cfg(any(fuzzing, test))]
impl message::Bounds for Any {
    fn step(&self) -> Result<usize, wire::WireError> {
        Ok(1 << 16)
    }

    fn rows(&self, _: u64, bytes: usize) -> Result<(), wire::WireError> {
        match bytes <= 1 << 16 {
            true => Ok(()),
            false => Err(wire::WireError::Bad("rows that are too long")),
        }
    }
}

/// The same as [`fuzz_stage_messages`], for tests.
#[cfg(any(fuzzing, test))]
fn read_any(mut bytes: &[u8]) {
    use message::Message;
    // Of the reader, and of both ends of a link over which they go on.
    let [mut tables, mut near, mut far] = [(); 3].map(|()| tables::Tables::default());
    while let Ok(message) = Message::read(&mut bytes, &Any) {
        let frame = message.frame();
        let read = Message::read(&mut &*frame, &Any).expect("what was written can be read");
        assert_eq!(read.frame(), frame);
        let limits = ledger::Limits {
            steps: 4,
            order: 1 << 16,
            sequences: 64,
            tokens: 1 << 14,
            context: usize::MAX,
            classes: 1,
            pages: 1 << 10,
        };
        if let Message::Step(told) = message
            && let Ok(order) = told.order(&mut tables, &limits)
        {
            let heard = order::Told::of(&order, &mut near).order(&mut far, &limits);
            assert_eq!(heard.as_ref(), Ok(&order));
        }
    }
}
