//! Who has which tasks at the beginning: plain arithmetic, so that any thread knows any other's.
#![cfg_attr(not(loom), allow(unreachable_pub, reason = "public for the loom models"))]

use super::round::{From, Task};
use super::{Homes, Policy};
use crate::worker::View;

/// The tasks that a thread is dealt: `first, first + step, ...`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    first: usize,
    step: usize,
    /// How many.
    pub len: usize,
}

impl Run {
    /// The task at a position.
    pub fn task(&self, position: usize) -> usize {
        self.first + position * self.step
    }
}

/// Which threads the tasks of a thread's group or pool are shared by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shares {
    /// Consecutive tasks to each thread of the group, of the group's own tasks.
    Home,
    /// Consecutive tasks to each thread of the pool.
    Pool,
    /// One after the other to the threads of the group, of the group's own tasks.
    HomeInTurn,
    /// One after the other to the threads of the pool: the first of each group, then the second of
    /// each, and so on. So neighbours go to different groups, and equally many to each thread.
    PoolInTurn,
}

/// The deal of a set of tasks.
#[derive(Clone, Copy)]
pub struct Deal<'a> {
    homes: Homes<'a>,
    shares: Shares,
    /// Group g has the threads `first[g]..first[g + 1]`.
    first: &'a [usize],
}

/// The consecutive share of `rank` of `size`; sizes differ by at most one.
fn share(tasks: usize, size: usize, rank: usize) -> Run {
    let (each, more) = (tasks / size, tasks % size);
    let first = rank * each + rank.min(more);
    Run { first, step: 1, len: each + usize::from(rank < more) }
}

/// Every `size`-th from `rank` on.
fn in_turn(tasks: usize, size: usize, rank: usize) -> Run {
    Run { first: rank, step: size, len: tasks.saturating_sub(rank).div_ceil(size) }
}

impl<'a> Deal<'a> {
    /// The deal under a policy for threads that see the pool as `view`.
    pub fn new(policy: Policy, homes: Homes<'a>, view: View, first: &'a [usize]) -> Self {
        let groups = first.len() - 1;
        if let Homes::Counts(counts) = homes {
            let n = counts.len();
            assert!(n == groups, "tasks have {n} homes, but the pool has {groups} groups");
        }
        let shares = match (view, policy) {
            (View::Groups, Policy::Interleave) => Shares::HomeInTurn,
            (View::Groups, _) => Shares::Home,
            (View::One, Policy::Interleave) => Shares::PoolInTurn,
            (View::One, Policy::Disabled) => Shares::Pool,
            (View::One, Policy::Local | Policy::Balanced) => match homes {
                Homes::Counts(_) => Shares::Home,
                Homes::None(_) => Shares::Pool,
            },
        };
        Self { homes, shares, first }
    }

    /// All tasks; of all homes, whether this thread's view can reach them or not.
    pub fn total(&self) -> usize {
        match self.homes {
            Homes::None(tasks) => tasks,
            Homes::Counts(counts) => counts.iter().sum(),
        }
    }

    /// The first task of a group, and how many it has.
    fn of_home(&self, group: usize) -> (usize, usize) {
        match self.homes {
            Homes::None(tasks) => (0, tasks),
            Homes::Counts(counts) => (counts[..group].iter().sum(), counts[group]),
        }
    }

    fn size(&self, group: usize) -> usize {
        self.first[group + 1] - self.first[group]
    }

    /// Where a thread stands when the first of each group comes first, then the second of each.
    fn turn(&self, group: usize, rank: usize) -> usize {
        let before =
            |g: usize| rank.min(self.size(g)) + usize::from(g < group && rank < self.size(g));
        (0..self.first.len() - 1).map(before).sum()
    }

    /// The tasks of the thread with a rank in a group.
    pub fn run(&self, group: usize, rank: usize) -> Run {
        let threads = self.first[self.first.len() - 1];
        match self.shares {
            Shares::Pool => share(self.total(), threads, self.first[group] + rank),
            Shares::PoolInTurn => in_turn(self.total(), threads, self.turn(group, rank)),
            Shares::Home | Shares::HomeInTurn => {
                let (first, tasks) = self.of_home(group);
                let deal = if self.shares == Shares::Home { share } else { in_turn };
                let run = deal(tasks, self.size(group), rank);
                Run { first: run.first + first, ..run }
            }
        }
    }

    /// Runs the tasks of a thread that nobody else takes from.
    pub fn alone(&self, group: usize, rank: usize, mut run: impl FnMut(Task)) {
        let tasks = self.run(group, rank);
        for at in 0..tasks.len {
            run(Task { number: tasks.task(at), from: From::Own, left: tasks.len - at - 1 });
        }
    }

    /// How many threads of a group have tasks.
    pub fn with_tasks(&self, group: usize) -> usize {
        let size = self.size(group);
        match self.shares {
            Shares::Home | Shares::HomeInTurn => size.min(self.of_home(group).1),
            Shares::Pool => size.min(self.total().saturating_sub(self.first[group])),
            Shares::PoolInTurn => {
                let total = self.total();
                if total >= self.first[self.first.len() - 1] {
                    return size;
                }
                // A group's later threads come later in turn.
                (0..size).take_while(|&rank| self.turn(group, rank) < total).count()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICIES: [Policy; 4] =
        [Policy::Local, Policy::Interleave, Policy::Balanced, Policy::Disabled];

    fn firsts(sizes: &[usize]) -> Vec<usize> {
        let ends = sizes.iter().scan(0, |end, n| {
            *end += n;
            Some(*end)
        });
        std::iter::once(0).chain(ends).collect()
    }

    fn tasks(deal: &Deal<'_>, group: usize, rank: usize) -> Vec<usize> {
        let run = deal.run(group, rank);
        (0..run.len).map(|at| run.task(at)).collect()
    }

    #[test]
    fn tasks_go_where_the_policy_says() {
        let first = firsts(&[2, 1, 3]);
        let counts = [5, 0, 4];
        let dealt = |policy, homes, view| -> Vec<Vec<usize>> {
            let deal = Deal::new(policy, homes, view, &first);
            let threads = [(0, 0), (0, 1), (1, 0), (2, 0), (2, 1), (2, 2)];
            threads.iter().map(|&(group, rank)| tasks(&deal, group, rank)).collect()
        };
        let homes = Homes::Counts(&counts);
        let at_home = vec![vec![0, 1, 2], vec![3, 4], vec![], vec![5, 6], vec![7], vec![8]];
        assert_eq!(dealt(Policy::Local, homes, View::One), at_home);
        assert_eq!(dealt(Policy::Balanced, homes, View::One), at_home);
        for policy in [Policy::Local, Policy::Balanced, Policy::Disabled] {
            assert_eq!(dealt(policy, homes, View::Groups), at_home);
        }
        // Neighbours go to different groups: 0 to group 0, 1 to group 1, 2 to group 2, and round.
        let turns = vec![vec![0, 6], vec![3], vec![1, 7], vec![2, 8], vec![4], vec![5]];
        assert_eq!(dealt(Policy::Interleave, homes, View::One), turns);
        let own = vec![vec![0, 2, 4], vec![1, 3], vec![], vec![5, 8], vec![6], vec![7]];
        assert_eq!(dealt(Policy::Interleave, homes, View::Groups), own);
        // Nobody asks where a task is at home: equal runs over all threads.
        let runs = vec![vec![0, 1], vec![2, 3], vec![4, 5], vec![6], vec![7], vec![8]];
        assert_eq!(dealt(Policy::Disabled, homes, View::One), runs);
        for policy in [Policy::Local, Policy::Balanced, Policy::Disabled] {
            assert_eq!(dealt(policy, Homes::None(9), View::One), runs);
        }
        // A group's own four.
        let four = vec![vec![0, 1], vec![2, 3], vec![0, 1, 2, 3], vec![0, 1], vec![2], vec![3]];
        assert_eq!(dealt(Policy::Balanced, Homes::None(4), View::Groups), four);
    }

    #[test]
    fn every_task_is_dealt_once_and_evenly_and_the_groups_know_how_many_have_some() {
        for sizes in [&[1][..], &[4], &[2, 2], &[1, 3, 2], &[1, 1, 1, 1], &[5, 2]] {
            let first = firsts(sizes);
            for (policy, total) in POLICIES.into_iter().flat_map(|p| (0..30).map(move |n| (p, n))) {
                let counts: Vec<usize> = (0..sizes.len()).map(|g| total * g % 7).collect();
                for homes in [Homes::None(total), Homes::Counts(&counts)] {
                    let deal = Deal::new(policy, homes, View::One, &first);
                    let mut seen = vec![0; deal.total()];
                    for (group, &size) in sizes.iter().enumerate() {
                        let lens = (0..size).map(|rank| {
                            let tasks = tasks(&deal, group, rank);
                            tasks.iter().for_each(|&task| seen[task] += 1);
                            tasks.len()
                        });
                        let lens: Vec<usize> = lens.collect();
                        let some = lens.iter().filter(|&&len| len > 0).count();
                        assert_eq!(deal.with_tasks(group), some, "{sizes:?} {policy:?} {homes:?}");
                        assert!(lens[0] <= lens[size - 1] + 1, "{sizes:?} {policy:?} {homes:?}");
                    }
                    assert!(seen.iter().all(|&n| n == 1), "{sizes:?} {policy:?} {homes:?}");
                }
            }
        }
    }

    #[test]
    #[should_panic(expected = "tasks have 1 homes, but the pool has 2 groups")]
    fn homes_must_be_groups() {
        Deal::new(Policy::Local, Homes::Counts(&[3]), View::One, &[0, 1, 2]);
    }
}
