//! One thread's way through a set of tasks: its own queue, its group's, those of other groups.
//!
//! A thief goes through the queues of a group once: within a round they only shrink, so what it has
//! found empty stays empty. It stays with a victim until that has nothing left, and takes one task
//! at a time: what is left can go to others until the very end, which is what makes the end even.
#![cfg_attr(not(loom), allow(unreachable_pub, reason = "public for the loom models"))]

use std::io;

use super::deal::Deal;
use super::queue::{End, Left, MAX_TASKS, Queue};
use crate::page::OwnPage;
use crate::sync::{AtomicU64, Ordering::Relaxed, Padded};
use crate::worker::View;

/// The queues of one group. They should lie in the group's memory node.
///
/// One of each for either view: groups that go apart count their own rounds.
pub struct Desk {
    left: [Padded<Left>; 2],
    seats: OwnPage<[Seat]>,
}

/// What belongs to one thread.
struct Seat {
    /// Thieves write to it too.
    queues: [Padded<Queue>; 2],
    /// Rounds so far. Only the thread itself looks.
    rounds: Padded<[AtomicU64; 2]>,
}

impl Desk {
    /// A desk for `size` threads, on pages of the calling thread's node.
    ///
    /// # Errors
    /// Those of `mmap`.
    pub fn new(size: usize) -> io::Result<Self> {
        let seat = |_| Seat {
            queues: std::array::from_fn(|_| Padded(Queue::new())),
            rounds: Padded(std::array::from_fn(|_| AtomicU64::new(0))),
        };
        let left = std::array::from_fn(|_| Padded(Left::new()));
        Ok(Self { left, seats: OwnPage::slice(size, seat)? })
    }
}

/// The queues of all groups, and who is near to whom.
pub struct Desks {
    desks: Box<[OwnPage<Desk>]>,
    /// Of each group, itself and then the others, the nearest first.
    nearest: Box<[Box<[usize]>]>,
}

/// Whose queue a task was taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// The thread's own.
    Own,
    /// Another thread's of its group.
    Near,
    /// Another group's.
    Far,
}

/// A task that a thread is to run now.
#[derive(Clone, Copy, Debug)]
pub struct Task {
    /// Its number in the set.
    pub number: usize,
    /// Where it comes from.
    pub from: From,
    /// Tasks that are left in the queue that it was taken from.
    pub left: usize,
}

/// Who a thread is, and how it sees the pool.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Its group in the specification, whatever the view.
    pub group: usize,
    /// Its rank there.
    pub rank: usize,
    /// The present view.
    pub view: View,
}

impl Desks {
    /// Desks of groups, between which it is as far as `distances[from][to]`; an empty table makes
    /// the groups go round by their numbers.
    pub fn new(desks: Vec<OwnPage<Desk>>, distances: &[Vec<u32>]) -> Self {
        let groups = desks.len();
        let nearest = |group: usize| {
            let mut order: Box<[usize]> = (0..groups).map(|i| (group + i) % groups).collect();
            if let Some(row) = distances.get(group) {
                // The own group stays first, whatever the table says of it; equally near ones go
                // round, so that not all groups turn to the same one.
                order[1..].sort_by_key(|&other| row[other]);
            }
            order
        };
        Self { desks: desks.into(), nearest: (0..groups).map(nearest).collect() }
    }

    /// Runs what this thread gets of a round that all threads of the view are in. `far` lets it take
    /// from other groups when the pool is seen as one. Returns when nobody has anything left that it
    /// may take; others may still be busy with what they took.
    ///
    /// All threads of the view must call it with the same deal and `far`, and must meet before the
    /// next round.
    pub fn round(&self, me: Place, deal: &Deal<'_>, far: bool, mut run: impl FnMut(Task)) {
        let total = deal.total();
        assert!(total <= MAX_TASKS, "{total} tasks at once: at most {MAX_TASKS} can be dealt");
        let view = me.view as usize;
        let rounds = &self.desks[me.group].seats[me.rank].rounds[view];
        let round = rounds.load(Relaxed) + 1;
        rounds.store(round, Relaxed);
        if deal.run(me.group, me.rank).len == 0 {
            self.desks[me.group].seats[me.rank].queues[view].pass(round);
        }
        let round = Round { desks: self, deal, round, view };
        round.empty(me.group, me.rank, End::Front, From::Own, &mut run);
        let near = &self.nearest[me.group];
        let groups = if far && me.view == View::One { &near[..] } else { &near[..1] };
        for &group in groups {
            let desk = &self.desks[group];
            let (size, all) = (desk.seats.len(), deal.with_tasks(group));
            let from = if group == me.group { From::Near } else { From::Far };
            // Thieves begin beside themselves, so that not all turn to the same victim.
            for rank in (0..size).map(|i| (me.rank + i) % size) {
                if all == 0 || desk.left[view].get(round.round, all) == 0 {
                    break;
                }
                round.empty(group, rank, End::Back, from, &mut run);
            }
        }
    }

    /// Makes all queues as new after a job that some threads left early. Nobody may be in a round.
    pub fn reset(&self) {
        for desk in &self.desks {
            for view in 0..2 {
                desk.left[view].reset();
                for seat in desk.seats.iter() {
                    seat.queues[view].reset();
                    seat.rounds[view].store(0, Relaxed);
                }
            }
        }
    }
}

struct Round<'a> {
    desks: &'a Desks,
    deal: &'a Deal<'a>,
    round: u64,
    view: usize,
}

impl Round<'_> {
    /// Runs tasks from one end of a queue until it is empty.
    fn empty(&self, group: usize, rank: usize, end: End, from: From, run: &mut impl FnMut(Task)) {
        let tasks = self.deal.run(group, rank);
        let desk = &self.desks.desks[group];
        let queue = &desk.seats[rank].queues[self.view];
        while let Some(taken) = queue.take(self.round, tasks.len, end) {
            if taken.left == 0 {
                desk.left[self.view].one_less(self.round, self.deal.with_tasks(group));
            }
            run(Task { number: tasks.task(taken.position), from, left: taken.left });
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sync::{LINES, assert_apart};
    use crate::tasks::{Homes, Policy};

    #[test]
    fn what_threads_write_to_lies_on_lines_of_its_own() {
        // Behind the pointer, which all threads read, are the seats.
        assert_apart!(Desk: [left] [seats]);
        assert_apart!(Seat: [queues] [rounds]);
        let desk = Desk::new(5).unwrap();
        let mut written: Vec<usize> = Vec::new();
        written.extend(desk.left.iter().map(|left| (&raw const *left).addr()));
        for seat in desk.seats.iter() {
            written.extend(seat.queues.iter().map(|queue| (&raw const *queue).addr()));
            written.push((&raw const seat.rounds).addr());
        }
        written.sort_unstable();
        assert_eq!(written.len(), 2 + 5 * 3);
        assert!(written.iter().all(|at| at.is_multiple_of(LINES)), "{written:?}");
        assert!(written.windows(2).all(|two| two[1] - two[0] >= LINES), "{written:?}");
    }

    #[test]
    fn a_word_that_is_not_used_for_long_does_not_come_round() {
        let desks = Desks::new(vec![OwnPage::new(Desk::new(1).unwrap()).unwrap()], &[]);
        let me = Place { group: 0, rank: 0, view: View::One };
        // 65536 rounds later the word would look as if its only task had been taken.
        for round in 0..=1 << 16 {
            let tasks = usize::from(round % (1 << 16) == 0);
            let deal = Deal::new(Policy::Balanced, Homes::None(tasks), View::One, &[0, 1]);
            let mut ran = 0;
            desks.round(me, &deal, true, |_| ran += 1);
            assert_eq!(ran, tasks, "round {round}");
        }
    }

    #[test]
    fn the_nearest_groups_come_first_and_equally_near_ones_go_round() {
        let desks = |distances: &[Vec<u32>]| {
            let desks = (0..4).map(|_| OwnPage::new(Desk::new(1).unwrap()).unwrap()).collect();
            let desks = Desks::new(desks, distances);
            desks.nearest.iter().map(|order| order.to_vec()).collect::<Vec<_>>()
        };
        let round = [[0, 1, 2, 3], [1, 2, 3, 0], [2, 3, 0, 1], [3, 0, 1, 2]];
        assert_eq!(desks(&[]), round);
        // Two packages, groups 0 and 2 in the first one.
        let table = [[10, 32, 12, 32], [32, 10, 32, 12], [12, 32, 10, 32], [32, 12, 32, 10]];
        let near = [[0, 2, 1, 3], [1, 3, 2, 0], [2, 0, 3, 1], [3, 1, 0, 2]];
        assert_eq!(desks(&table.map(Vec::from)), near);
    }
}
