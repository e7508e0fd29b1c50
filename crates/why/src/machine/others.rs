//! The work of other programs and of other virtual machines.

use super::Check;
use super::clock::Heat;
use super::withheld::Withheld;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use topology::Tree;

/// Below this share of the machine, other programs do not count as a loss.
const BUSY: f64 = 0.02;
/// Number of programs that are named at most.
const NAMED: usize = 3;

/// The work of the machine up to a moment, in the kernel's ticks.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    all: u64,
    idle: u64,
    stolen: u64,
    /// Ticks of this process.
    own: u64,
    /// By process, with its name.
    programs: BTreeMap<u32, (String, u64)>,
    pub(super) withheld: Withheld,
    pub(super) heat: Heat,
}

impl Sample {
    /// Reads `proc` under a root, with the names of all programs but this process.
    pub fn read(root: &Path) -> Sample {
        let mut sample = Sample::read_sums(root);
        let mut tree = Tree::new(root);
        let entries = fs::read_dir(root.join("proc")).into_iter().flatten().flatten();
        let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        for id in ids {
            if id != std::process::id()
                && let Some(program) = program(&mut tree, id)
            {
                sample.programs.insert(id, program);
            }
        }
        sample
    }

    /// Reads the sums without names: one file for all other programs together.
    pub fn read_sums(root: &Path) -> Sample {
        let mut tree = Tree::new(root);
        let mut sample =
            Sample { withheld: Withheld::read(root), heat: Heat::read(root), ..Sample::default() };
        let text = tree.text("proc/stat").unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("cpu ")).unwrap_or_default();
        let ticks: Vec<u64> = line.split_whitespace().flat_map(str::parse).collect();
        // user nice system idle iowait irq softirq steal; guests are part of the first two.
        let at = |i: usize| ticks.get(i).copied().unwrap_or(0);
        sample.all = (0..8).map(at).sum();
        sample.idle = at(3) + at(4);
        sample.stolen = at(7);
        sample.own = program(&mut tree, std::process::id()).map_or(0, |(_, ticks)| ticks);
        sample
    }
}

/// Name and ticks in `/proc/PID/stat`: `1 (a name) R …`; the 14th and 15th field are the ticks.
fn program(tree: &mut Tree, id: u32) -> Option<(String, u64)> {
    let line = tree.text(&format!("proc/{id}/stat"))?;
    let (start, rest) = line.rsplit_once(')')?;
    let name = start.split_once('(')?.1;
    let mut ticks = rest.split_whitespace().skip(11).map(str::parse::<u64>);
    Some((name.to_owned(), ticks.next()?.ok()? + ticks.next()?.ok()?))
}

pub(super) fn check(before: &Sample, after: &Sample) -> [Check; 2] {
    const NAMES: [&str; 2] = ["other programs", "other machines"];
    let all = after.all.saturating_sub(before.all);
    if all == 0 {
        return NAMES.map(|name| Check::unknown(name, "/proc/stat does not change"));
    }
    let share = |ticks: u64| ticks as f64 / all as f64;
    // Programs that have ended between the samples are in these sums, too.
    let idle = after.idle.saturating_sub(before.idle);
    let stolen = after.stolen.saturating_sub(before.stolen);
    let own = after.own.saturating_sub(before.own);
    let by_others = share(all.saturating_sub(idle + stolen + own));
    let mut took: Vec<(u64, u32, &str)> = after
        .programs
        .iter()
        .map(|(&id, (name, ticks))| {
            let earlier = before.programs.get(&id).map_or(0, |(_, ticks)| *ticks);
            (ticks.saturating_sub(earlier), id, name.as_str())
        })
        .collect();
    took.sort_unstable_by(|a, b| b.cmp(a));
    let programs = if by_others < BUSY {
        Check::fine(NAMES[0], format!("{:.0} % of the machine", 100.0 * by_others))
    } else {
        let busy = took.iter().filter(|&&(ticks, ..)| share(ticks) >= BUSY / 2.0).take(NAMED);
        let (names, commands): (Vec<String>, Vec<String>) = busy
            .map(|&(ticks, id, name)| {
                (
                    format!("{name} {:.0} %", 100.0 * share(ticks)),
                    format!("sudo renice -n 19 -p {id}"),
                )
            })
            .unzip();
        let mut seen = format!("{:.0} % of the machine", 100.0 * by_others);
        if !names.is_empty() {
            seen.push_str(&format!(": {}", names.join(", ")));
        }
        let mut commands: Vec<&str> = commands.iter().map(String::as_str).collect();
        if commands.is_empty() {
            commands.push("programs that end soon, such as compilers: wait for them");
        }
        Check::costs(NAMES[0], by_others, seen, &commands)
    };
    let stolen = share(stolen);
    let seen = format!("{:.0} % of the time of these CPUs", 100.0 * stolen);
    let machines = if stolen < BUSY {
        Check::fine(NAMES[1], seen)
    } else {
        let mend = ["the host is overcommitted: ask for dedicated cores"];
        Check::costs(NAMES[1], stolen, seen, &mend)
    };
    [programs, machines]
}
