//! Time that the system withheld from this process: by a quota, a low priority, a lack of memory, sleep.
//!
//! Sources: the kernel's `scheduler/sched-bwc` and `admin-guide/cgroup-v2` (`cpu.stat`), `accounting/psi`.

use super::Check;
use std::path::Path;
use std::time::Instant;
use topology::{Throttling, Tree};

/// Below this share, withheld time does not count as a loss.
const SOME: f64 = 0.02;
/// Below this number of seconds, the difference of both clocks does not count as sleep.
const SLEPT: f64 = 0.5;

/// The counts at a moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Withheld {
    at: Option<Instant>,
    /// Seconds since the start, those of sleep too, which [`Instant`] leaves out.
    uptime: Option<f64>,
    quota: Option<Throttling>,
    nice: i64,
    /// Microseconds for which all of the machine's tasks waited for memory.
    memory: Option<u64>,
}

impl Withheld {
    /// Seconds between two samples, without sleep.
    pub(super) fn seconds_since(&self, before: &Withheld) -> f64 {
        before.at.zip(self.at).map_or(0.0, |(a, b)| (b - a).as_secs_f64())
    }

    pub(super) fn read(root: &Path) -> Withheld {
        let mut tree = Tree::new(root);
        let uptime = tree.text("proc/uptime").and_then(|text| text.split(' ').next()?.parse().ok());
        let at = Some(Instant::now());
        let quota = Throttling::read(root);
        // The 19th field; the name, the second, may have blanks.
        let stat = tree.text("proc/self/stat").unwrap_or_default();
        let nice = stat
            .rsplit_once(')')
            .and_then(|(_, rest)| rest.split_whitespace().nth(16)?.parse().ok());
        let pressure = tree.text("proc/pressure/memory").unwrap_or_default();
        let full = pressure.lines().find_map(|line| line.strip_prefix("full "));
        let memory = full.and_then(|line| line.rsplit_once("total=")?.1.trim().parse().ok());
        Withheld { at, uptime, quota, nice: nice.unwrap_or(0), memory }
    }
}

/// Checks of the time between two samples. `others` is the share that other programs took, and `cpus` the number of CPUs
/// of this process.
pub(super) fn check(before: &Withheld, after: &Withheld, others: f64, cpus: usize) -> [Check; 4] {
    let seconds = after.seconds_since(before);
    [
        throttling(before, after, seconds * cpus as f64),
        priority(after.nice, others),
        memory(before, after, seconds),
        sleep(before, after, seconds),
    ]
}

fn throttling(before: &Withheld, after: &Withheld, cpu_seconds: f64) -> Check {
    const NAME: &str = "throttling";
    let Some((before, after)) = before.quota.zip(after.quota) else {
        return Check::fine(NAME, "no quota");
    };
    let periods = after.periods.saturating_sub(before.periods);
    let stopped = after.throttled.saturating_sub(before.throttled);
    let lost = (after.seconds - before.seconds).max(0.0) / cpu_seconds.max(1e-9);
    if stopped == 0 || lost < SOME {
        return Check::fine(NAME, format!("in {stopped} of {periods} periods"));
    }
    Check::costs(
        NAME,
        lost.min(1.0),
        format!("the control group's quota stopped its threads in {stopped} of {periods} periods"),
        &[
            "in a container: give it more (docker run --cpus, limits.cpu), or fewer threads (--threads)",
            "under systemd: sudo systemctl set-property --runtime UNIT CPUQuota=",
        ],
    )
}

/// A low priority loses the time that other programs take, because they come first.
fn priority(nice: i64, others: f64) -> Check {
    const NAME: &str = "low priority";
    match nice {
        1.. if others >= SOME => Check::costs(
            NAME,
            others,
            format!("this process is nice ({nice}): other programs come first"),
            &[&format!("sudo renice -n 0 -p {}", std::process::id())],
        ),
        _ => Check::fine(NAME, format!("nice {nice}")),
    }
}

fn memory(before: &Withheld, after: &Withheld, seconds: f64) -> Check {
    const NAME: &str = "lack of memory";
    let Some((before, after)) = before.memory.zip(after.memory) else {
        return Check::unknown(NAME, "the kernel does not tell (/proc/pressure/memory)");
    };
    let share = after.saturating_sub(before) as f64 / 1e6 / seconds.max(1e-9);
    let seen = format!("{:.0} % of the time all tasks waited for memory", 100.0 * share);
    match share >= SOME {
        true => Check::costs(
            NAME,
            share.min(1.0),
            seen,
            &[
                "a smaller model or context (--ctx), or keys and values of fewer bits (--kv-type q8_0)",
            ],
        ),
        false => Check::fine(NAME, seen),
    }
}

fn sleep(before: &Withheld, after: &Withheld, seconds: f64) -> Check {
    const NAME: &str = "sleep";
    let uptime = before.uptime.zip(after.uptime).map_or(0.0, |(before, after)| after - before);
    let slept = uptime - seconds;
    match slept >= SLEPT {
        true => Check::costs(
            NAME,
            slept / uptime,
            format!("the machine slept for {slept:.0} s of {uptime:.0}"),
            &["systemd-inhibit --what=sleep arclight …"],
        ),
        false => Check::fine(NAME, "none"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::State;
    use std::time::Duration;
    use topology::fake::FakeMachine;

    fn look(fake: FakeMachine) -> Withheld {
        let root = tempfile::tempdir().unwrap();
        fake.write(root.path()).unwrap();
        Withheld::read(root.path())
    }

    fn pressure(full: u64) -> String {
        format!(
            "some avg10=0.00 avg60=0.00 avg300=0.00 total=9999999\n\
             full avg10=0.00 avg60=0.00 avg300=0.00 total={full}\n"
        )
    }

    /// Two looks ten seconds apart.
    fn looks(fakes: [FakeMachine; 2]) -> [Withheld; 2] {
        let [before, mut after] = fakes.map(look);
        after.at = before.at.map(|at| at + Duration::from_secs(10));
        [before, after]
    }

    fn seen(checks: &[Check]) -> Vec<(&'static str, String, f64)> {
        let costs = checks.iter().filter(|check| matches!(check.state, State::Costs { .. }));
        costs.map(|check| (check.name, check.seen.clone(), check.share())).collect()
    }

    #[test]
    fn each_has_a_sentence_with_its_figure() {
        let at = |stat: &str, full, uptime: &str| {
            FakeMachine::uniform(1, 4)
                .cgroup_v2("/a")
                .cgroup_file("a/cpu.stat", stat)
                .file("proc/self/stat", "1 (a ) b) R 1 1 1 0 -1 0 0 0 0 0 20 30 0 0 30 10 2 0\n")
                .file("proc/pressure/memory", &pressure(full))
                .file("proc/uptime", uptime)
        };
        let [before, after] = looks([
            at("usage_usec 1\nnr_periods 10\nnr_throttled 2\nthrottled_usec 50\n", 0, "100.00 1\n"),
            at(
                "nr_periods 110\nnr_throttled 82\nthrottled_usec 8000050\n",
                2_000_000,
                "140.00 1\n",
            ),
        ]);
        let checks = check(&before, &after, 0.3, 4);
        let text = |text: &str| text.to_owned();
        let expected = [
            (
                "throttling",
                text("the control group's quota stopped its threads in 80 of 100 periods"),
                0.2,
            ),
            ("low priority", text("this process is nice (10): other programs come first"), 0.3),
            ("lack of memory", text("20 % of the time all tasks waited for memory"), 0.2),
            ("sleep", text("the machine slept for 30 s of 40"), 0.75),
        ];
        assert_eq!(seen(&checks), expected);
    }

    #[test]
    fn a_quota_of_the_older_hierarchy_is_seen() {
        let at = |stat: &str| {
            FakeMachine::uniform(1, 2)
                .file("proc/self/cgroup", "4:cpu,cpuacct:/a\n")
                .file("proc/self/mountinfo", "30 23 0:26 / /cg ro - cgroup cgroup rw,cpu,cpuacct\n")
                .file("cg/a/cpu.stat", stat)
        };
        let [before, after] = looks([
            at("nr_periods 0\nnr_throttled 0\nthrottled_time 0\n"),
            at("nr_periods 100\nnr_throttled 50\nthrottled_time 5000000000\n"),
        ]);
        let checks = check(&before, &after, 0.0, 2);
        assert_eq!(seen(&checks).len(), 1);
        assert!((seen(&checks)[0].2 - 0.25).abs() < 1e-9);
    }

    #[test]
    fn what_is_missing_is_no_loss() {
        let [before, after] = looks([0, 1].map(|_| FakeMachine::uniform(1, 2)));
        assert_eq!(seen(&check(&before, &after, 0.5, 2)), []);
    }
}
