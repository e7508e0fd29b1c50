//! The last messages about changes, which all connections read: there is no queue for each.

use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// A message about the changes of a step.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub topic: Bytes,
    pub payload: Bytes,
}

/// How much is kept: messages, and bytes of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Most {
    pub messages: usize,
    pub bytes: usize,
}

/// The last messages, with their numbers. The oldest give way to new ones.
#[derive(Debug)]
pub(super) struct Kept {
    most: Most,
    messages: Mutex<Messages>,
    /// The number of the next message.
    next: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Messages {
    all: VecDeque<Change>,
    /// The number of the first.
    first: u64,
    bytes: usize,
}

impl Kept {
    pub(super) fn new(most: Most) -> Kept {
        Kept { most, messages: Mutex::default(), next: watch::Sender::new(0) }
    }

    fn messages(&self) -> MutexGuard<'_, Messages> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a message; waits for no connection.
    pub(super) fn push(&self, change: Change) {
        let mut messages = self.messages();
        messages.bytes += change.payload.len();
        messages.all.push_back(change);
        // The newest stays, however long.
        while messages.all.len() > 1
            && (messages.all.len() > self.most.messages || messages.bytes > self.most.bytes)
        {
            let oldest = messages.all.pop_front();
            messages.bytes -= oldest.map_or(0, |oldest| oldest.payload.len());
            messages.first += 1;
        }
        let next = messages.first + messages.all.len() as u64;
        self.next.send_replace(next);
    }

    /// Reports the number of the next message each time there is one.
    pub(super) fn news(&self) -> watch::Receiver<u64> {
        self.next.subscribe()
    }

    /// Up to `most` messages from a number on, or from the first one after it that is kept.
    pub(super) fn from(&self, number: u64, most: usize) -> Vec<(u64, Change)> {
        let messages = self.messages();
        let number = number.max(messages.first);
        let skip = usize::try_from(number - messages.first).unwrap_or(usize::MAX);
        let some = messages.all.iter().skip(skip).take(most);
        (number..).zip(some.cloned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_give_way_and_numbers_have_a_gap() {
        let kept = Kept::new(Most { messages: 4, bytes: 100 });
        let push = |length: usize| {
            kept.push(Change { topic: Bytes::new(), payload: vec![0; length].into() });
        };
        let numbers = |from| kept.from(from, 3).iter().map(|(n, _)| *n).collect::<Vec<u64>>();
        assert!(numbers(0).is_empty());
        (0..3).for_each(|_| push(10));
        assert_eq!((numbers(0), numbers(2), numbers(3)), (vec![0, 1, 2], vec![2], vec![]));
        (0..3).for_each(|_| push(10));
        assert_eq!((numbers(0), numbers(5)), (vec![2, 3, 4], vec![5]));
        assert_eq!(numbers(u64::MAX), [0; 0]);
        push(80);
        assert_eq!(numbers(0), [4, 5, 6]);
        push(200);
        assert_eq!((numbers(0), *kept.news().borrow()), (vec![7], 8));
    }
}
