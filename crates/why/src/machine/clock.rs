//! Clock frequencies: governors, limits, boost, heat.

use super::{Check, State};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use topology::{Cpu, CpuId, CpuList, Tree};

/// The directory of the CPUs.
const CPUS: &str = "sys/devices/system/cpu";
/// Largest loss under a governor that follows the load.
const FOLLOWS: f64 = 0.05;
/// Largest losses with the preferences of a processor that chooses its frequency itself.
const PREFERENCES: [(&str, f64); 3] =
    [("balance_performance", 0.03), ("balance_power", 0.1), ("power", 0.3)];
/// Largest loss without boost, whose frequency is unknown.
const BOOST: f64 = 0.2;

/// From this share of the frequency on, a limit counts as a loss.
const SOME: f64 = 0.02;

/// Milliseconds since the start for which each CPU was slowed down because its core or its processor was too hot.
#[derive(Clone, Debug, Default)]
pub(super) struct Heat(BTreeMap<CpuId, u64>);

impl Heat {
    pub(super) fn read(root: &Path) -> Heat {
        let mut tree = Tree::new(root);
        let entries = fs::read_dir(root.join(CPUS)).into_iter().flatten().flatten();
        let ids = entries
            .filter_map(|e| e.file_name().to_str()?.strip_prefix("cpu")?.parse::<u32>().ok());
        let of = |id: u32| {
            let mut file = |name: &str| {
                let path = format!("{CPUS}/cpu{id}/thermal_throttle/{name}_total_time_ms");
                tree.text(&path)?.trim().parse::<u64>().ok()
            };
            let most = file("core_throttle").into_iter().chain(file("package_throttle")).max()?;
            Some((CpuId(id), most))
        };
        Heat(ids.filter_map(of).collect())
    }
}

/// Checks of the governor, of frequency limits, of boost and of heat.
pub(super) fn check(
    tree: &mut Tree,
    cpus: &[Cpu],
    (before, after): (&Heat, &Heat),
    seconds: f64,
) -> [Check; 4] {
    let ids: Vec<CpuId> = cpus.iter().map(|cpu| cpu.id).collect();
    [governor(tree, &ids), limit(tree, &ids), boost(tree), heat(before, after, &ids, seconds)]
}

fn cpufreq(tree: &mut Tree, CpuId(cpu): CpuId, file: &str) -> Option<String> {
    let text = tree.text(&format!("{CPUS}/cpu{cpu}/cpufreq/{file}"))?;
    Some(text.trim().to_owned())
}

fn khz(tree: &mut Tree, cpu: CpuId, file: &str) -> Option<f64> {
    cpufreq(tree, cpu, file)?.parse().ok()
}

/// The governor with the largest loss, and its CPUs if others have a better one.
fn governor(tree: &mut Tree, cpus: &[CpuId]) -> Check {
    let mut by: Vec<(Check, Vec<CpuId>)> = Vec::new();
    for &cpu in cpus {
        let check = governor_of(tree, cpu);
        match by.iter_mut().find(|(known, _)| known.seen == check.seen) {
            Some((_, ids)) => ids.push(cpu),
            None => by.push((check, vec![cpu])),
        }
    }
    let known = by.iter().filter(|(check, _)| check.state != State::Unknown);
    let several = known.count() > 1;
    match by.into_iter().max_by(|(a, _), (b, _)| a.share().total_cmp(&b.share())) {
        Some((check, ids)) if several && check.share() > 0.0 => {
            Check { seen: format!("{} on CPUs {}", check.seen, CpuList::from_iter(ids)), ..check }
        }
        Some((check, _)) => check,
        None => governor_of(tree, CpuId(0)),
    }
}

fn governor_of(tree: &mut Tree, cpu: CpuId) -> Check {
    const NAME: &str = "governor";
    const MEND: &[&str] = &["sudo cpupower frequency-set -g performance"];
    let Some(governor) = cpufreq(tree, cpu, "scaling_governor") else {
        return Check::unknown(NAME, "no cpufreq: firmware or hypervisor chooses the frequency");
    };
    let driver = cpufreq(tree, cpu, "scaling_driver").unwrap_or_default();
    let itself = matches!(driver.as_str(), "intel_pstate" | "amd-pstate-epp");
    let preference = cpufreq(tree, cpu, "energy_performance_preference").filter(|_| itself);
    let seen = match &preference {
        Some(preference) => format!("{governor} with {preference} ({driver})"),
        None => format!("{governor} ({driver})"),
    };
    match (governor.as_str(), preference.as_deref()) {
        ("performance", _) => Check::fine(NAME, seen),
        (_, Some(preference)) => {
            let share = PREFERENCES.iter().find(|(name, _)| *name == preference);
            match share {
                Some(&(_, share)) => Check::costs(NAME, share, seen, MEND),
                None => Check::fine(NAME, seen),
            }
        }
        // The lowest frequency, always.
        ("powersave", None) if !itself => {
            let least = khz(tree, cpu, "cpuinfo_min_freq");
            let most = khz(tree, cpu, "cpuinfo_max_freq");
            let share = least.zip(most).map_or(0.5, |(least, most)| 1.0 - least / most);
            Check::costs(NAME, share, seen, MEND)
        }
        _ => Check::costs(NAME, FOLLOWS, seen, MEND),
    }
}

/// The largest frequency limit. The slowest core counts, because the others wait for it.
fn limit(tree: &mut Tree, cpus: &[CpuId]) -> Check {
    const NAME: &str = "frequency";
    let mut known = Vec::new();
    for &cpu in cpus {
        let (may, can) = (khz(tree, cpu, "scaling_max_freq"), khz(tree, cpu, "cpuinfo_max_freq"));
        known.extend(may.zip(can).filter(|(_, can)| *can > 0.0).map(|of| (cpu, of)));
    }
    let lost = |(may, can): (f64, f64)| 1.0 - may / can;
    let Some(&(_, worst)) = known.iter().max_by(|a, b| lost(a.1).total_cmp(&lost(b.1))) else {
        return Check::unknown(NAME, "no cpufreq: firmware or hypervisor decides");
    };
    let ghz = |khz: f64| format!("{:.1} GHz", khz / 1e6);
    if lost(worst) < SOME {
        return Check::fine(NAME, format!("up to {}", ghz(worst.1)));
    }
    let ids: Vec<CpuId> =
        known.iter().filter(|(_, of)| *of == worst).map(|(cpu, _)| *cpu).collect();
    let which = match ids.len() == cpus.len() {
        true => "the cores".to_owned(),
        false => format!("CPUs {}", CpuList::from_iter(ids)),
    };
    let seen = format!("{which} may run at {} of {} at most", ghz(worst.0), ghz(worst.1));
    let mend = format!("sudo cpupower frequency-set -u {:.0}MHz", worst.1 / 1e3);
    Check::costs(NAME, lost(worst), seen, &[&mend, "a limit of power in the firmware sets it too"])
}

/// Cores that were too hot and ran slower. The kernel does not report how much slower, so all of that time is lost.
fn heat(before: &Heat, after: &Heat, cpus: &[CpuId], seconds: f64) -> Check {
    const NAME: &str = "heat";
    let ms = |cpu: &CpuId| {
        let (before, after) = (before.0.get(cpu)?, after.0.get(cpu)?);
        Some((after.saturating_sub(*before), *cpu))
    };
    let Some((most, cpu)) = cpus.iter().filter_map(ms).max() else {
        return Check::unknown(NAME, "the kernel does not tell (thermal_throttle)");
    };
    let hot = most as f64 / 1e3;
    let share = (hot / seconds.max(1e-9)).min(1.0);
    if share < SOME {
        return Check::fine(NAME, format!("CPUs were too hot for {hot:.1} s"));
    }
    Check::costs(
        NAME,
        share,
        format!("CPU {} was too hot for {hot:.1} s of {seconds:.1} and ran slower", cpu.0),
        &[
            "better cooling: clean fans and filters, a cooler room; fewer threads (--threads) are cooler too",
        ],
    )
}

fn boost(tree: &mut Tree) -> Check {
    const NAME: &str = "boost";
    let no_turbo = format!("{CPUS}/intel_pstate/no_turbo");
    let boost = format!("{CPUS}/cpufreq/boost");
    match (tree.number(&no_turbo), tree.number(&boost)) {
        (Some(1), _) => Check::costs(
            NAME,
            BOOST,
            "turbo is off",
            &["echo 0 | sudo tee /sys/devices/system/cpu/intel_pstate/no_turbo"],
        ),
        (None, Some(0)) => Check::costs(
            NAME,
            BOOST,
            "off",
            &["echo 1 | sudo tee /sys/devices/system/cpu/cpufreq/boost"],
        ),
        (None, None) => Check::unknown(NAME, "no cpufreq: firmware or hypervisor decides"),
        _ => Check::fine(NAME, "on"),
    }
}
