//! Levels: the sets of threads that jobs run on, each within the next, up to all of them.
//!
//! Reading weights from memory needs fewer cores than multiplying prompts does, so an engine runs its
//! steps now on some threads and now on all ("hot switching" in the Sandwich paper). A level takes
//! the first so many threads of every group, which stay the same from job to job: what they have in
//! their caches is what they need again.
//!
//! Why nested: a thread has a *class* then, the lowest level that it is part of, and a job is handed
//! out by opening one gate for each class up to its level. Who is not part of a job sleeps on a gate
//! that nobody touches. Any sets would need a gate for each thread.
#![cfg_attr(not(loom), allow(unreachable_pub, reason = "public for the loom models"))]

use crate::spec::Error;

/// See the module.
pub struct Levels {
    /// Of each level one number per group, and one more: the threads of the level in all groups
    /// before it. One table, because it is looked at for every wait.
    before: Box<[usize]>,
    groups: usize,
}

impl Levels {
    /// The levels of groups of `sizes` threads: those `given`, and all threads.
    ///
    /// # Errors
    /// A level that is not one number for each group, that leaves a group out or asks too much of
    /// it, or that has fewer threads of a group than the level before it.
    pub fn new(sizes: &[usize], given: &[Vec<usize>]) -> Result<Self, Error> {
        let groups = sizes.len();
        for (level, row) in given.iter().enumerate() {
            if row.len() != groups {
                return Err(Error::LevelShape { level, given: row.len(), groups });
            }
            for (group, (&threads, &size)) in row.iter().zip(sizes).enumerate() {
                if threads == 0 || threads > size {
                    return Err(Error::LevelSize { level, group, threads, size });
                }
                let below = level.checked_sub(1).map_or(0, |below| given[below][group]);
                if threads < below {
                    return Err(Error::LevelOrder { level, group, threads, below });
                }
            }
        }
        let mut before = Vec::with_capacity((given.len() + 1) * (groups + 1));
        for row in given.iter().map(Vec::as_slice).chain([sizes]) {
            let mut sum = 0;
            before.push(sum);
            before.extend(row.iter().map(|threads| {
                sum += threads;
                sum
            }));
        }
        Ok(Self { before: before.into(), groups })
    }

    /// How many there are; at least one.
    pub fn count(&self) -> usize {
        self.before.len() / (self.groups + 1)
    }

    /// The level of all threads, the last.
    pub fn all(&self) -> usize {
        self.count() - 1
    }

    /// The number of groups, the same on every level.
    pub fn groups(&self) -> usize {
        self.groups
    }

    /// Numbered through without those left out, group g has the threads `first[g]..first[g + 1]`.
    pub fn first(&self, level: usize) -> &[usize] {
        &self.before[level * (self.groups + 1)..][..=self.groups]
    }

    /// How many threads a level has.
    pub fn threads(&self, level: usize) -> usize {
        self.first(level)[self.groups]
    }

    /// How many of them are of one group.
    pub fn size(&self, level: usize, group: usize) -> usize {
        let first = self.first(level);
        first[group + 1] - first[group]
    }

    /// The lowest level that the thread with this rank in its group is part of.
    pub fn class(&self, group: usize, rank: usize) -> usize {
        let part = |level: &usize| rank < self.size(*level, group);
        (0..self.count()).find(part).expect("the last level has all threads")
    }

    /// How many threads of a group have this class.
    pub fn newcomers(&self, class: usize, group: usize) -> usize {
        let below = class.checked_sub(1).map_or(0, |below| self.size(below, group));
        self.size(class, group) - below
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_part_of_every_level_from_its_class_on() {
        let sizes = [4, 1, 3];
        let given = [vec![1, 1, 1], vec![1, 1, 1], vec![3, 1, 1]];
        let levels = Levels::new(&sizes, &given).unwrap();
        assert_eq!((levels.count(), levels.all(), levels.groups()), (4, 3, 3));
        let firsts: Vec<_> = (0..4).map(|level| levels.first(level)).collect();
        assert_eq!(firsts, [[0, 1, 2, 3], [0, 1, 2, 3], [0, 3, 4, 5], [0, 4, 5, 8]]);
        assert_eq!([0, 1, 2, 3].map(|level| levels.threads(level)), [3, 3, 5, 8]);
        let mut classes = vec![vec![0; sizes.len()]; levels.count()];
        for (group, &size) in sizes.iter().enumerate() {
            for rank in 0..size {
                let class = levels.class(group, rank);
                classes[class][group] += 1;
                for level in 0..levels.count() {
                    assert_eq!(rank < levels.size(level, group), class <= level);
                }
            }
        }
        assert_eq!(classes, [[1, 1, 1], [0, 0, 0], [2, 0, 0], [1, 0, 2]]);
        for (class, row) in classes.iter().enumerate() {
            for (group, &threads) in row.iter().enumerate() {
                assert_eq!(levels.newcomers(class, group), threads);
            }
        }
    }
}
