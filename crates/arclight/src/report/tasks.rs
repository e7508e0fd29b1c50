//! How threads shared the work that is dealt as tasks, which are attention's tiles, and pieces of products while a thread
//! is late: ZigLlama's statistics with their healthy ranges, and what a measure outside its range says here.
//!
//! Limits: matrices and split attention are cut evenly beforehand and are no tasks on a quiet machine, so an answer
//! to one prompt has tasks of the prompt alone. Times are of the threads' own clocks around sets of tasks.

use super::rows::{Row, lay_out, percent};
use serde::Serialize;
use threads::{Health, TaskReport, TaskWarning, ThreadStats, Trouble};

/// The figures.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Tasks {
    /// Run by all threads.
    pub(super) tasks: u64,
    /// By another thread than it was dealt to, of the same node.
    pub(super) stolen_within_node: u64,
    /// Of another node.
    pub(super) stolen_across_nodes: u64,
    /// Of the tasks that another thread might have run; `None` with one thread.
    pub(super) stolen_share: Option<f64>,
    /// Left in a queue when one was taken from it, on average.
    pub(super) depth: f64,
    pub(super) deepest: u64,
    /// Of the time in tasks and in the waits after them.
    pub(super) utilisation: Option<f64>,
    /// What is outside its healthy range.
    pub(super) warnings: Vec<String>,
}

impl Tasks {
    /// `None` if no tasks were run: all work was cut beforehand, or nothing was counted.
    pub(super) fn of(threads: &[ThreadStats]) -> Option<Tasks> {
        let report = TaskReport::of(threads);
        let depth = report.depth()?;
        let counts = report.counts;
        Some(Tasks {
            tasks: counts.count,
            stolen_within_node: counts.near,
            stolen_across_nodes: counts.far,
            stolen_share: report.stolen(),
            depth,
            deepest: counts.deepest,
            utilisation: report.utilisation(),
            warnings: report.warnings().iter().map(words).collect(),
        })
    }

    /// The table.
    pub(super) fn table(&self) -> Vec<String> {
        let Tasks { tasks, stolen_share, depth, utilisation, .. } = self;
        let row = |name, health: Health, value: Option<f64>| -> Option<Row> {
            let show = |value| match health {
                Health::Depth => format!("{value:.1}"),
                Health::Stolen | Health::Utilisation => percent(value),
            };
            let (low, high, trouble) = health.range();
            let trouble = match trouble {
                Trouble::Above(limit) => format!("above {}", show(limit)),
                Trouble::Below(limit) => format!("below {}", show(limit)),
            };
            Some((name, vec![show(value?), format!("{} to {}", show(low), show(high)), trouble]))
        };
        let head = ["", "healthy", "trouble"].map(str::to_owned).to_vec();
        let mut rows = vec![
            ("shared tasks", head),
            ("  tiles", vec![tasks.to_string(), String::new(), String::new()]),
        ];
        rows.extend(row("  stolen", Health::Stolen, *stolen_share));
        rows.extend(row("  left in a queue", Health::Depth, Some(*depth)));
        rows.extend(row("  threads busy", Health::Utilisation, *utilisation));
        let mut lines = lay_out(&rows);
        if stolen_share.is_none() {
            lines.push(
                "  no tile can be stolen: there is no other thread that may take it".to_owned(),
            );
        }
        lines
    }
}

/// What a measure outside its range says to who runs a model.
fn words(warning: &TaskWarning) -> String {
    let TaskWarning { health, value, trouble } = warning;
    let (low, _, _) = health.range();
    let what = match health {
        Health::Stolen if *value < low => {
            "few tiles were stolen: they are even, and the threads equally fast"
        }
        Health::Stolen => {
            "many tiles were stolen: some threads are slower than others, or held up by other programs"
        }
        Health::Depth => {
            "many tiles wait in a queue: they are smaller than so few threads need, which costs little"
        }
        Health::Utilisation => {
            "threads wait for the longest tile: fewer of them would do for steps like these"
        }
    };
    // The document's trouble with depth is work that comes faster than it is done. Here all tiles are dealt
    // at once, and a long prompt on few threads has hundreds for each: no reason to warn.
    let kind = if *trouble && *health != Health::Depth { "warning" } else { "note" };
    format!("{kind}: {what}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use threads::TaskCounts;

    fn thread(count: u64, near: u64, depths: u64, busy_nanos: u64) -> ThreadStats {
        let tasks = TaskCounts {
            count,
            stealable: count,
            near,
            far: 1,
            depths,
            deepest: depths,
            busy_nanos,
            idle_nanos: 1000 - busy_nanos,
        };
        ThreadStats { tasks, ..ThreadStats::default() }
    }

    #[test]
    fn threads_are_summed_and_healthy_figures_are_not_remarked() {
        let tasks = Tasks::of(&[thread(40, 3, 20, 950), thread(60, 5, 100, 990)]).unwrap();
        assert_eq!((tasks.tasks, tasks.stolen_within_node, tasks.stolen_across_nodes), (100, 8, 2));
        assert_eq!((tasks.stolen_share, tasks.depth, tasks.deepest), (Some(0.1), 1.2, 100));
        assert_eq!((tasks.utilisation, tasks.warnings.len()), (Some(0.97), 0));
        let table = tasks.table();
        assert_eq!(table.len(), 5, "{table:#?}");
        let cells = |at: usize| table[at].split("  ").filter(|c| !c.is_empty()).map(str::trim);
        assert_eq!(cells(1).collect::<Vec<_>>(), ["tiles", "100"]);
        let stolen: Vec<_> = cells(2).collect();
        assert_eq!(stolen, ["stolen", "10 %", "5.0 % to 20 %", "above 40 %"]);
        assert_eq!(
            cells(3).collect::<Vec<_>>(),
            ["left in a queue", "1.2", "0.0 to 2.0", "above 10.0"]
        );
        assert_eq!(
            cells(4).collect::<Vec<_>>(),
            ["threads busy", "97 %", "90 % to 100 %", "below 50 %"]
        );
        assert_eq!(Tasks::of(&[ThreadStats::default()]), None);
    }

    #[test]
    fn what_cannot_be_stolen_has_no_healthy_range() {
        let mut alone = thread(40, 0, 20, 950);
        alone.tasks.stealable = 0;
        let table = Tasks::of(&[alone]).unwrap().table();
        assert!(!table.iter().any(|line| line.starts_with("  stolen")), "{table:#?}");
        assert_eq!(
            table.last().unwrap().trim(),
            "no tile can be stolen: there is no other thread that may take it"
        );
    }

    #[test]
    fn what_is_outside_its_range_is_told_and_trouble_is_a_warning() {
        let warnings = |near, depths, busy| {
            Tasks::of(&[thread(100, near, depths, busy)]).unwrap().warnings.join("\n")
        };
        assert_eq!(warnings(9, 0, 950), "");
        assert!(warnings(0, 0, 950).starts_with("note: few tiles were stolen"));
        assert!(warnings(29, 0, 950).starts_with("note: many tiles were stolen"));
        assert!(warnings(59, 0, 950).starts_with("warning: many tiles were stolen"));
        assert!(warnings(9, 1100, 950).starts_with("note: many tiles wait"));
        assert!(warnings(9, 300, 950).starts_with("note: many tiles wait"));
        assert!(warnings(9, 0, 400).starts_with("warning: threads wait"));
        assert_eq!(warnings(59, 1100, 400).lines().count(), 3);
    }
}
