//! How well tasks were shared, and what to do about it.
//!
//! The measures and their ranges are those of ZigLlama's threading chapter, §8, with what they mean
//! in this pool: tasks are dealt all at once, so a deep queue does not say that work comes faster
//! than it is done; it says that work is cut finer than sharing needs, and every piece costs a claim.

use std::fmt;

use crate::stats::{TaskCounts, ThreadStats};

/// What is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// Tasks run by another thread than they were dealt to, over those that might have been.
    Stolen,
    /// Tasks left in a queue when one is taken from it, on average.
    Depth,
    /// Time in tasks over time in tasks and in waits after them.
    Utilisation,
}

/// When a measure means trouble.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Trouble {
    /// Above this.
    Above(f64),
    /// Below this.
    Below(f64),
}

/// A measure's healthy range, its ends included, and from where on it is trouble.
pub const HEALTH: [(Health, f64, f64, Trouble); 3] = [
    (Health::Stolen, 0.05, 0.20, Trouble::Above(0.40)),
    (Health::Depth, 0.0, 2.0, Trouble::Above(10.0)),
    (Health::Utilisation, 0.90, 1.0, Trouble::Below(0.50)),
];

/// A measure outside its healthy range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TaskWarning {
    /// Which.
    pub health: Health,
    /// What it is: a share of 1, or a number of tasks.
    pub value: f64,
    /// It is not only outside its healthy range, but trouble.
    pub trouble: bool,
}

impl Health {
    /// The measure's line of [`HEALTH`]: the ends of its range, and its trouble.
    pub fn range(self) -> (f64, f64, Trouble) {
        let (_, low, high, trouble) =
            HEALTH.into_iter().find(|line| line.0 == self).expect("every measure has a line");
        (low, high, trouble)
    }

    fn warning(self, value: f64) -> Option<TaskWarning> {
        let (low, high, trouble) = self.range();
        let trouble = match trouble {
            Trouble::Above(limit) => value > limit,
            Trouble::Below(limit) => value < limit,
        };
        (!(low..=high).contains(&value)).then_some(TaskWarning { health: self, value, trouble })
    }

    /// A value as it is written in a sentence.
    fn text(self, value: f64) -> String {
        match self {
            Self::Depth => format!("{value:.1}"),
            Self::Stolen | Self::Utilisation => format!("{:.0} %", value * 100.0),
        }
    }
}

impl fmt::Display for TaskWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |value| self.health.text(value);
        let (value, (low, high, trouble)) = (text(self.value), self.health.range());
        let (said, advice) = match self.health {
            Health::Stolen if self.value < low => (
                format!("{value} of the tasks were stolen"),
                "the deal is even by itself: Policy::Disabled saves the claims",
            ),
            Health::Stolen => (
                format!("{value} of the tasks were stolen"),
                "the deal is uneven: count long tasks as several, or home them where threads are idle",
            ),
            Health::Depth => (
                format!("{value} tasks waited in a queue on average"),
                "the tasks are small: make each of them larger",
            ),
            Health::Utilisation => (
                format!("threads were busy for {value} of the time"),
                "the others wait for the longest task: cut it, number long tasks first, let tasks be \
                 stolen, or use fewer threads",
            ),
        };
        let trouble = match trouble {
            Trouble::Above(limit) => format!("above {}", text(limit)),
            Trouble::Below(limit) => format!("below {}", text(limit)),
        };
        let range = format!("healthy are {} to {}, trouble is {trouble}", text(low), text(high));
        write!(f, "{said} ({range}): {advice}")
    }
}

/// What threads did in sets of tasks, together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskReport {
    /// Sums over the threads; `deepest` is the most of any.
    pub counts: TaskCounts,
}

/// A share, if there is anything to share.
fn share(part: u64, all: u64) -> Option<f64> {
    (all > 0).then(|| part as f64 / all as f64)
}

impl TaskReport {
    /// The report of threads' statistics ([`Pool::stats`](crate::Pool::stats)).
    pub fn of(threads: &[ThreadStats]) -> Self {
        let mut counts = TaskCounts::default();
        threads.iter().for_each(|thread| counts += thread.tasks);
        Self { counts }
    }

    /// The share of tasks that another thread ran than they were dealt to, of those that another
    /// might have run; `None` if there are none.
    pub fn stolen(&self) -> Option<f64> {
        share(self.counts.near + self.counts.far, self.counts.stealable)
    }

    /// The share that went to another group, likewise.
    pub fn stolen_far(&self) -> Option<f64> {
        share(self.counts.far, self.counts.stealable)
    }

    /// How many tasks were left in a queue when one was taken from it, on average.
    pub fn depth(&self) -> Option<f64> {
        share(self.counts.depths, self.counts.count)
    }

    /// The share of time that threads were busy, from coming to a set of tasks to the end of the
    /// wait after it.
    pub fn utilisation(&self) -> Option<f64> {
        share(self.counts.busy_nanos, self.counts.busy_nanos + self.counts.idle_nanos)
    }

    /// What lies outside its healthy range.
    pub fn warnings(&self) -> Vec<TaskWarning> {
        let values = [
            (Health::Stolen, self.stolen()),
            (Health::Depth, self.depth()),
            (Health::Utilisation, self.utilisation()),
        ];
        values.into_iter().filter_map(|(health, value)| health.warning(value?)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(stolen: u64, depths: u64, busy: u64) -> TaskReport {
        let counts = TaskCounts {
            count: 100,
            stealable: 100,
            near: stolen - stolen / 4,
            far: stolen / 4,
            depths,
            deepest: 7,
            busy_nanos: busy,
            idle_nanos: 100 - busy,
        };
        TaskReport::of(&[ThreadStats { tasks: counts, ..ThreadStats::default() }])
    }

    #[test]
    fn the_documents_ranges_are_kept_to_the_point() {
        // Stolen in %, depth in 1/100 tasks, busy in %: the ends of the ranges are healthy.
        for (stolen, depths, busy) in [(5, 0, 90), (20, 200, 100), (12, 100, 95)] {
            assert_eq!(report(stolen, depths, busy).warnings(), [], "{stolen} {depths} {busy}");
        }
        let cases = [
            (report(4, 0, 95), Health::Stolen, 0.04, false),
            (report(21, 0, 95), Health::Stolen, 0.21, false),
            (report(40, 0, 95), Health::Stolen, 0.40, false),
            (report(41, 0, 95), Health::Stolen, 0.41, true),
            (report(10, 201, 95), Health::Depth, 2.01, false),
            (report(10, 1000, 95), Health::Depth, 10.0, false),
            (report(10, 1001, 95), Health::Depth, 10.01, true),
            (report(10, 0, 89), Health::Utilisation, 0.89, false),
            (report(10, 0, 50), Health::Utilisation, 0.50, false),
            (report(10, 0, 49), Health::Utilisation, 0.49, true),
        ];
        for (report, health, value, trouble) in cases {
            assert_eq!(report.warnings(), [TaskWarning { health, value, trouble }]);
        }
        assert_eq!(report(60, 5000, 10).warnings().len(), 3);
    }

    #[test]
    fn warnings_name_the_range_and_what_to_do() {
        let text = |report: TaskReport| report.warnings()[0].to_string();
        let stolen = text(report(60, 0, 95));
        assert!(
            stolen.starts_with("60 % of the tasks were stolen (healthy are 5 % to 20 %, trouble")
        );
        assert!(stolen.contains("above 40 %): the deal is uneven"), "{stolen}");
        assert!(text(report(1, 0, 95)).contains("Policy::Disabled saves the claims"));
        let depth = text(report(10, 1234, 95));
        assert!(
            depth.starts_with("12.3 tasks waited in a queue on average (healthy are 0.0 to 2.0")
        );
        let busy = text(report(10, 0, 30));
        assert!(
            busy.starts_with("threads were busy for 30 % of the time (healthy are 90 % to 100 %")
        );
        assert!(
            busy.contains("trouble is below 50 %): the others wait for the longest task"),
            "{busy}"
        );
    }

    #[test]
    fn threads_are_summed_and_nothing_is_said_of_nothing() {
        let thread = |n: u64| ThreadStats {
            tasks: TaskCounts {
                count: n,
                stealable: n,
                near: n,
                far: n,
                depths: n,
                deepest: n,
                busy_nanos: n,
                idle_nanos: n,
            },
            ..ThreadStats::default()
        };
        let sums = TaskReport::of(&[thread(5), thread(2)]).counts;
        assert_eq!(sums, TaskCounts { deepest: 5, ..thread(7).tasks });
        let nothing = TaskReport::of(&[ThreadStats::default()]);
        assert_eq!(nothing.warnings(), []);
        assert_eq!((nothing.stolen(), nothing.depth(), nothing.utilisation()), (None, None, None));
        // Nobody could steal: a share of zero is no advice.
        let counts = TaskCounts { count: 9, busy_nanos: 9, ..TaskCounts::default() };
        let alone = TaskReport::of(&[ThreadStats { tasks: counts, ..ThreadStats::default() }]);
        assert_eq!(alone.warnings(), []);
        let far = report(20, 0, 95);
        assert_eq!((far.stolen(), far.stolen_far()), (Some(0.20), Some(0.05)));
    }
}
