//! How fast cores may run.

use super::Check;
use crate::files::Tree;

/// Lost at most under a governor that follows the load.
const FOLLOWS: f64 = 0.05;
/// Lost at most with the preferences of a processor that chooses its frequency itself.
const PREFERENCES: [(&str, f64); 3] =
    [("balance_performance", 0.03), ("balance_power", 0.1), ("power", 0.3)];
/// Lost at most without boost, where nothing says how high it goes.
const BOOST: f64 = 0.2;

fn cpufreq(tree: &mut Tree, file: &str) -> Option<String> {
    let text = tree.text(&format!("sys/devices/system/cpu/cpu0/cpufreq/{file}"))?;
    Some(text.trim().to_owned())
}

pub(super) fn governor(tree: &mut Tree) -> Check {
    const NAME: &str = "governor";
    const MEND: &[&str] = &["sudo cpupower frequency-set -g performance"];
    let Some(governor) = cpufreq(tree, "scaling_governor") else {
        return Check::unknown(NAME, "no cpufreq: firmware or hypervisor chooses the frequency");
    };
    let driver = cpufreq(tree, "scaling_driver").unwrap_or_default();
    let itself = matches!(driver.as_str(), "intel_pstate" | "amd-pstate-epp");
    let preference = cpufreq(tree, "energy_performance_preference").filter(|_| itself);
    let seen = match &preference {
        Some(preference) => format!("{governor} with {preference} ({driver})"),
        None => format!("{governor} ({driver})"),
    };
    let khz = |text: Option<String>| text.and_then(|text| text.parse::<f64>().ok());
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
            let least = khz(cpufreq(tree, "cpuinfo_min_freq"));
            let most = khz(cpufreq(tree, "cpuinfo_max_freq"));
            let share = least.zip(most).map_or(0.5, |(least, most)| 1.0 - least / most);
            Check::costs(NAME, share, seen, MEND)
        }
        _ => Check::costs(NAME, FOLLOWS, seen, MEND),
    }
}

pub(super) fn boost(tree: &mut Tree) -> Check {
    const NAME: &str = "boost";
    let no_turbo = "sys/devices/system/cpu/intel_pstate/no_turbo";
    let boost = "sys/devices/system/cpu/cpufreq/boost";
    match (tree.number(no_turbo), tree.number(boost)) {
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
