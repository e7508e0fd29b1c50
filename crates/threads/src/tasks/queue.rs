//! The tasks of one thread that nobody has taken yet: a range that its owner shortens at the front
//! and thieves at the back.
//!
//! Round, front and back share one word, so every claim is one compare-and-exchange on it: there is
//! no last element that owner and thief could both take (the fault of ZigLlama's deque, whose owner
//! takes without asking), nothing to grow, and nothing to free. What a queue holds at the beginning
//! of a round follows from the deal, which every thread can compute; so nobody fills it. A word of
//! the round before means that all of it is still there, and a thread that comes late finds others at
//! its work already.
//!
//! `crossbeam-deque` is the usual choice. It grows and shrinks as it is pushed to and popped
//! from, which allocates in every round of more than 64 tasks a thread, frees by epochs, and has to be
//! filled; `benches/queues.rs` has the figures and `docs/threads.md` quotes them.
//!
//! Orderings: a claim decides who runs a task and publishes nothing. What tasks read was published by
//! the wait before the round, and what they write is published by the wait after it; so all accesses
//! are relaxed, and all that counts is that read-modify-writes of one word are totally ordered.
//! The wait also keeps everybody within a round: no word is ever two rounds behind.
#![cfg_attr(not(loom), allow(unreachable_pub, reason = "public for the loom models"))]

use crate::sync::{AtomicU64, Ordering::Relaxed};

/// The most tasks that a queue can hold: 2^24 - 1.
pub(super) const MAX_TASKS: usize = (1 << BITS) - 1;

/// Bits of a position.
const BITS: u32 = 24;

/// Which end of a queue a task is taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The owner's.
    Front,
    /// The thieves'.
    Back,
}

/// A task that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Its position in the queue, `0..len`.
    pub position: usize,
    /// How many are left.
    pub left: usize,
}

/// See the module.
pub struct Queue(AtomicU64);

/// 16 bits of the round, then the two positions.
fn pack(round: u64, front: usize, back: usize) -> u64 {
    round << (2 * BITS) | (back as u64) << BITS | front as u64
}

impl Queue {
    /// A queue that is empty as of round 0; the first round is 1.
    #[allow(clippy::new_without_default, reason = "internal")]
    pub fn new() -> Self {
        Self(AtomicU64::new(pack(0, 0, 0)))
    }

    /// Takes a task of a round in which the queue begins with `len` tasks (at most [`MAX_TASKS`]);
    /// `None` when all are taken.
    pub fn take(&self, round: u64, len: usize, end: End) -> Option<Taken> {
        debug_assert!(len <= MAX_TASKS);
        let mut word = self.0.load(Relaxed);
        loop {
            // The round wraps in the word; it is compared only with itself and the one before.
            let begun = word >> (2 * BITS) == round & 0xffff;
            let (front, back) = match begun {
                true => (word as usize & MAX_TASKS, (word >> BITS) as usize & MAX_TASKS),
                false => (0, len),
            };
            if front == back {
                return None;
            }
            let (position, next) = match end {
                End::Front => (front, pack(round, front + 1, back)),
                End::Back => (back - 1, pack(round, front, back - 1)),
            };
            match self.0.compare_exchange_weak(word, next, Relaxed, Relaxed) {
                Ok(_) => return Some(Taken { position, left: back - front - 1 }),
                Err(now) => word = now,
            }
        }
    }

    /// The owner passes a round in which the queue has no task, so that the word does not fall
    /// behind. Nobody else writes to it then.
    pub fn pass(&self, round: u64) {
        self.0.store(pack(round, 0, 0), Relaxed);
    }

    /// Back to the state of [`Self::new`]. Nobody may be in a round.
    pub fn reset(&self) {
        self.0.store(pack(0, 0, 0), Relaxed);
    }
}

/// How many queues of a group are not empty yet, so that a thief need not look into all of them.
///
/// Likewise never set for a round: a word of an earlier one means that none was emptied in this one.
/// 48 bits of the round do not wrap.
pub(super) struct Left(AtomicU64);

impl Left {
    /// As of round 0.
    #[allow(clippy::new_without_default, reason = "internal")]
    pub(super) fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Queues that are not empty, of `all` at the beginning of the round.
    pub(super) fn get(&self, round: u64, all: usize) -> usize {
        let word = self.0.load(Relaxed);
        if word >> 16 == round { (word & 0xffff) as usize } else { all }
    }

    /// One of `all` (at most 65535, more than Linux has CPUs) was emptied.
    pub(super) fn one_less(&self, round: u64, all: usize) {
        debug_assert!(all < 1 << 16);
        let mut word = self.0.load(Relaxed);
        loop {
            let left = if word >> 16 == round { word & 0xffff } else { all as u64 };
            let next = round << 16 | (left - 1);
            match self.0.compare_exchange_weak(word, next, Relaxed, Relaxed) {
                Ok(_) => return,
                Err(now) => word = now,
            }
        }
    }

    /// Back to the state of [`Self::new`]. Nobody may be in a round.
    pub(super) fn reset(&self) {
        self.0.store(0, Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_full_again_in_the_next_round() {
        let queue = Queue::new();
        for round in 1..4 {
            let taken = |position, left| Some(Taken { position, left });
            assert_eq!(queue.take(round, 3, End::Back), taken(2, 2));
            assert_eq!(queue.take(round, 3, End::Front), taken(0, 1));
            assert_eq!(queue.take(round, 3, End::Back), taken(1, 0));
            assert_eq!(queue.take(round, 3, End::Front), None);
            assert_eq!(queue.take(round, 3, End::Back), None);
        }
        let last = Some(Taken { position: MAX_TASKS - 1, left: MAX_TASKS - 1 });
        assert_eq!(queue.take(4, MAX_TASKS, End::Back), last);
    }

    #[test]
    fn what_is_left_of_a_group_is_counted_by_rounds() {
        let left = Left::new();
        for round in 1..4 {
            assert_eq!(left.get(round, 2), 2);
            left.one_less(round, 2);
            assert_eq!((left.get(round, 2), left.get(round + 1, 5)), (1, 5));
            left.one_less(round, 2);
            assert_eq!(left.get(round, 2), 0);
        }
    }
}
