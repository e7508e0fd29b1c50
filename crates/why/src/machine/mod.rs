//! Causes that lie in the machine: quotas, affinity, clocks, sleep, other programs, empty memory channels. Each has the
//! command that helps.
//!
//! All files are read under a root path, as [`Machine`] reads them. The work of other programs is the difference of two
//! [`Sample`]s.
//!
//! Sources: the kernel's `admin-guide/pm/cpufreq`, `pm/intel_pstate`, `pm/amd-pstate`, `mm/transhuge`,
//! `sysctl/kernel` (`numa_balancing`) and `filesystems/proc`; the SMBIOS reference specification (DSP0134),
//! section 7.18, for memory modules.

mod clock;
mod modules;
mod others;
mod withheld;

pub use others::Sample;

use crate::Cause;
use serde::Serialize;
use std::collections::BTreeSet;
use std::path::Path;
use topology::{Cpu, Machine, NodeId, Tree, percent};

/// The result of one check of the machine.
#[derive(Clone, Debug, Serialize)]
pub struct Check {
    /// One to three words.
    pub name: &'static str,
    /// The observed state, in words.
    pub seen: String,
    /// Its effect on speed.
    #[serde(flatten)]
    pub state: State,
}

/// The effect of an observed state on speed.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "state", rename_all = "lowercase")]
pub enum State {
    /// Nothing is lost.
    Fine,
    /// The state could not be read; [`Check::seen`] has the reason.
    Unknown,
    /// Speed is lost.
    Costs {
        /// Share of the speed that is lost: measured where it can be, otherwise the most that is usual.
        share: f64,
        /// Remedies: commands, to be run as root if they begin with `sudo`, or other actions.
        mend: Vec<String>,
    },
}

impl Check {
    fn fine(name: &'static str, seen: impl Into<String>) -> Check {
        Check { name, seen: seen.into(), state: State::Fine }
    }

    fn unknown(name: &'static str, seen: impl Into<String>) -> Check {
        Check { name, seen: seen.into(), state: State::Unknown }
    }

    fn costs(name: &'static str, share: f64, seen: impl Into<String>, mend: &[&str]) -> Check {
        let mend = mend.iter().map(|&text| text.to_owned()).collect();
        Check { name, seen: seen.into(), state: State::Costs { share, mend } }
    }

    /// The loss as a cause; `None` if no speed is lost.
    pub fn cause(&self) -> Option<Cause> {
        let State::Costs { share, mend } = &self.state else { return None };
        let text = format!("Up to {} is lost to {}: {}.", percent(*share), self.name, self.seen);
        Some(Cause { text, mend: mend.clone() })
    }

    /// Share of the speed that is lost.
    pub fn share(&self) -> f64 {
        match self.state {
            State::Costs { share, .. } => share,
            State::Fine | State::Unknown => 0.0,
        }
    }
}

/// All checks of a machine whose files are under `root`, the largest loss first. `before` and `after` are samples of its
/// work at two times.
pub fn check(root: &Path, machine: &Machine, before: &Sample, after: &Sample) -> Vec<Check> {
    let mut tree = Tree::new(root);
    let mut all = vec![quota(machine), cores(machine), memory_limit(machine)];
    all.extend(meanwhile(&mut tree, machine, before, after));
    all.extend([
        huge_pages(&mut tree),
        numa_balancing(&mut tree, machine),
        threads(machine),
        modules::check(root),
    ]);
    all.sort_by(|a, b| b.share().total_cmp(&a.share()));
    all
}

/// The checks that found a loss of speed between two samples of a machine whose files are under `root`, the largest loss
/// first.
pub fn check_between(
    root: &Path,
    machine: &Machine,
    before: &Sample,
    after: &Sample,
) -> Vec<Check> {
    let mut all = meanwhile(&mut Tree::new(root), machine, before, after);
    all.retain(|check| matches!(check.state, State::Costs { .. }));
    all.sort_by(|a, b| b.share().total_cmp(&a.share()));
    all
}

fn meanwhile(tree: &mut Tree, machine: &Machine, before: &Sample, after: &Sample) -> Vec<Check> {
    let others = others::check(before, after);
    let taken = others[0].share();
    let heat = (&before.heat, &after.heat);
    let (before, after) = (&before.withheld, &after.withheld);
    let withheld = withheld::check(before, after, taken, machine.cpus().len());
    let clock = clock::check(tree, machine.cpus(), heat, after.seconds_since(before));
    others.into_iter().chain(withheld).chain(clock).collect()
}

fn quota(machine: &Machine) -> Check {
    const NAME: &str = "CPU quota";
    let cores = count(machine.cpus()) as f64;
    match machine.quota() {
        Some(quota) if quota < cores => Check::costs(
            NAME,
            1.0 - quota / cores,
            format!("the control group has {quota:.2} CPUs of time for {cores} cores"),
            &[
                "in a container: give it more (docker run --cpus, limits.cpu)",
                "under systemd: sudo systemctl set-property --runtime UNIT CPUQuota=",
            ],
        ),
        Some(quota) => Check::fine(NAME, format!("{quota:.2} CPUs, more than the cores")),
        None => Check::fine(NAME, "none"),
    }
}

/// Physical cores.
fn count(cpus: &[Cpu]) -> usize {
    cpus.iter().map(|cpu| cpu.core).collect::<BTreeSet<_>>().len()
}

fn cores(machine: &Machine) -> Check {
    const NAME: &str = "allowed cores";
    let (usable, all) = (count(machine.cpus()), count(machine.all_cpus()));
    if usable >= all {
        return Check::fine(NAME, format!("all {all}"));
    }
    Check::costs(
        NAME,
        1.0 - usable as f64 / all as f64,
        format!("{usable} of {all}: an affinity mask, a cpuset or --cpus leaves the others out"),
        &[
            "taskset -c 0-N arclight …, or without numactl",
            "in a container: docker run --cpuset-cpus",
        ],
    )
}

/// A memory limit slows nothing down until the system swaps.
fn memory_limit(machine: &Machine) -> Check {
    const NAME: &str = "memory limit";
    let total: u64 = machine.nodes().iter().map(|node| node.memory_bytes).sum();
    let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    match machine.memory_limit() {
        Some(limit) if limit < total => {
            Check::fine(NAME, format!("{:.1} of {:.1} GiB", gib(limit), gib(total)))
        }
        _ => Check::fine(NAME, "none"),
    }
}

fn threads(machine: &Machine) -> Check {
    let siblings = machine.all_cpus().iter().map(|cpu| cpu.smt_rank + 1).max().unwrap_or(1);
    Check::fine(
        "SMT",
        match siblings {
            1 => "one thread per core".to_owned(),
            n => format!("{n} threads per core, of which one is used"),
        },
    )
}

/// The word in brackets.
fn chosen(text: &str) -> Option<&str> {
    text.split_once('[')?.1.split_once(']').map(|(word, _)| word)
}

/// Weights are streamed: with pages of 4 KiB the cores wait for translations too.
fn huge_pages(tree: &mut Tree) -> Check {
    const NAME: &str = "huge pages";
    const SHARE: f64 = 0.1;
    let Some(text) = tree.text("sys/kernel/mm/transparent_hugepage/enabled") else {
        return Check::unknown(NAME, "the kernel has no transparent huge pages");
    };
    match chosen(&text) {
        Some(word @ ("always" | "madvise")) => Check::fine(NAME, word),
        word => Check::costs(
            NAME,
            SHARE,
            format!("transparent huge pages are off ({})", word.unwrap_or("unknown")),
            &["echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled"],
        ),
    }
}

/// Weights are bound to their nodes and left alone by it; it looks at all other memory, and stops threads for
/// that.
fn numa_balancing(tree: &mut Tree, machine: &Machine) -> Check {
    const NAME: &str = "NUMA balancing";
    const SHARE: f64 = 0.02;
    let nodes: Vec<NodeId> = machine.nodes().iter().map(|node| node.id).collect();
    match tree.number("proc/sys/kernel/numa_balancing") {
        _ if nodes.len() < 2 => Check::fine(NAME, "one memory node"),
        Some(0) => Check::fine(NAME, "off"),
        Some(_) => Check::costs(
            NAME,
            SHARE,
            "on: the kernel looks for pages to move",
            &["sudo sysctl kernel.numa_balancing=0"],
        ),
        None => Check::unknown(NAME, "/proc/sys/kernel/numa_balancing is missing"),
    }
}

#[cfg(test)]
mod tests;
