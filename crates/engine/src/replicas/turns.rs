//! Whose turn it is: start-time fair queueing (Goyal, Vin and Cheng, 1996, §2) over clients.
//!
//! Every request gets a start tag: the tag of what was begun last, or where its client's requests
//! before it end, whichever is later; a request ends as many tokens after its start as it has at
//! most. The smallest start tag is begun first. So a client alone is served in the order of
//! arrival, two that both have requests waiting get as many tokens each, and one that comes after a
//! pause has saved nothing up. Priorities come before that: a higher one is always begun first.

use std::cmp::Reverse;
use std::collections::HashMap;

/// Clients that are remembered before those with nothing waiting are forgotten: some 2 MiB.
const MOST_CLIENTS: usize = 1 << 16;

/// A request's place in the queue: the least is begun first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Turn {
    priority: Reverse<i8>,
    start: u64,
    arrival: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Turns {
    /// Where each client's requests end, by client and priority.
    ends: HashMap<(u64, i8), u64>,
    /// The start of what was begun last, by priority.
    now: HashMap<i8, u64>,
    arrivals: u64,
}

impl Turns {
    /// The turn of a request of `tokens` tokens.
    pub(crate) fn next(&mut self, priority: i8, client: u64, tokens: u64) -> Turn {
        let now = self.now.get(&priority).copied().unwrap_or(0);
        let end = self.ends.entry((client, priority)).or_insert(0);
        let start = now.max(*end);
        *end = start.saturating_add(tokens);
        self.arrivals += 1;
        if self.ends.len() > MOST_CLIENTS {
            let now = &self.now;
            self.ends.retain(|(_, p), end| *end > now.get(p).copied().unwrap_or(0));
        }
        Turn { priority: Reverse(priority), start, arrival: self.arrivals }
    }

    /// A request is begun.
    pub(crate) fn begun(&mut self, turn: &Turn) {
        let now = self.now.entry(turn.priority.0).or_insert(0);
        *now = turn.start.max(*now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The clients of `requests` (client, priority, tokens) in the order in which they are begun.
    fn order(requests: &[(u64, i8, u64)]) -> Vec<u64> {
        let mut turns = Turns::default();
        let turn = |&(client, priority, tokens)| (turns.next(priority, client, tokens), client);
        let mut all: Vec<(Turn, u64)> = requests.iter().map(turn).collect();
        all.sort_unstable();
        all.into_iter().map(|(_, client)| client).collect()
    }

    #[test]
    fn one_client_is_served_by_arrival_and_several_by_turns() {
        let sizes = [(1, 0, 500), (1, 0, 5), (1, 0, 50)];
        let mut turns = Turns::default();
        let alone = sizes.map(|(client, priority, tokens)| turns.next(priority, client, tokens));
        assert!(alone.is_sorted());
        // Who came with many waits no longer than who came with few.
        assert_eq!(
            order(&[(1, 0, 10), (1, 0, 10), (1, 0, 10), (2, 0, 10), (3, 0, 10)]),
            [1, 2, 3, 1, 1]
        );
        // Long requests count for more.
        assert_eq!(
            order(&[(1, 0, 100), (1, 0, 100), (2, 0, 40), (2, 0, 40), (2, 0, 40)]),
            [1, 2, 2, 2, 1]
        );
    }

    #[test]
    fn a_higher_priority_comes_first() {
        assert_eq!(order(&[(1, 0, 10), (2, -1, 10), (3, 5, 10), (3, 5, 10)]), [3, 3, 1, 2]);
    }

    #[test]
    fn who_pauses_saves_nothing_up() {
        let mut turns = Turns::default();
        for _ in 0..100 {
            let turn = turns.next(0, 1, 10);
            turns.begun(&turn);
        }
        // The newcomer is not owed a hundred requests.
        let both: Vec<Turn> = [2, 1, 2, 1].map(|client| turns.next(0, client, 10)).to_vec();
        assert!(both[0] < both[1] && both[1] < both[2] && both[2] < both[3], "{both:?}");
    }
}
