//! What processors consume, by their own meters (RAPL).
//!
//! Each package has a counter of microjoules that starts again after its largest number (`power/powercap` in the
//! kernel's documentation). Most systems let only root read it. It counts for all programs together; memory has a
//! counter of its own on some servers, which is added.

use crate::files::Tree;
use std::path::Path;

/// The directory of all meters.
const METERS: &str = "sys/class/powercap";
/// Packages, and memory within a package, at most.
const MOST: usize = 64;

/// The meters at a moment: microjoules, and the largest number of each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Energy {
    meters: Vec<(u64, u64)>,
}

impl Energy {
    /// Reads the meters below a root; `None` if there are none, or this process may not read them.
    pub fn read(root: &Path) -> Option<Energy> {
        let mut tree = Tree::new(root);
        let mut meters = Vec::new();
        for package in 0..MOST {
            let at = format!("{METERS}/intel-rapl:{package}");
            let Some(name) = tree.text(&format!("{at}/name")) else { break };
            if name.starts_with("package") {
                meters.push(meter(&mut tree, &at)?);
            }
            for part in 0..MOST {
                let at = format!("{METERS}/intel-rapl:{package}:{part}");
                let Some(name) = tree.text(&format!("{at}/name")) else { break };
                // Cores are part of their package; memory is not.
                if name.trim() == "dram" {
                    meters.push(meter(&mut tree, &at)?);
                }
            }
        }
        (!meters.is_empty()).then_some(Energy { meters })
    }

    /// Joules since another look, if that was of the same meters. A counter that has started again is taken to have
    /// done so once: it takes a minute or more at the power of a server.
    pub fn since(&self, before: &Energy) -> Option<f64> {
        if self.meters.len() != before.meters.len() {
            return None;
        }
        let pairs = self.meters.iter().zip(&before.meters);
        let each = pairs.map(|(&(now, most), &(before, _))| match now >= before {
            true => now - before,
            false => (most - before.min(most)) + now,
        });
        Some(each.sum::<u64>() as f64 / 1e6)
    }
}

fn meter(tree: &mut Tree, at: &str) -> Option<(u64, u64)> {
    let mut number = |file: &str| tree.text(&format!("{at}/{file}"))?.trim().parse::<u64>().ok();
    Some((number("energy_uj")?, number("max_energy_range_uj")?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeMachine;

    fn look(meters: &[(&str, &str, u64)]) -> Option<Energy> {
        let root = tempfile::tempdir().unwrap();
        let mut fake = FakeMachine::uniform(2, 2);
        for (id, name, energy) in meters {
            let at = format!("{METERS}/intel-rapl:{id}");
            fake = fake
                .file(&format!("{at}/name"), name)
                .file(&format!("{at}/energy_uj"), &format!("{energy}\n"))
                .file(&format!("{at}/max_energy_range_uj"), "1000000000\n");
        }
        fake.write(root.path()).unwrap();
        Energy::read(root.path())
    }

    #[test]
    fn packages_and_memory_add_up_and_counters_start_again() {
        let all = |a, b, c| {
            look(&[
                ("0", "package-0\n", a),
                ("0:0", "core\n", 7),
                ("0:1", "dram\n", b),
                ("1", "package-1\n", c),
                ("2", "psys\n", 9),
            ])
            .unwrap()
        };
        let (before, after) =
            (all(5_000_000, 0, 999_000_000), all(25_000_000, 3_000_000, 4_000_000));
        assert_eq!(after.since(&before), Some(20.0 + 3.0 + 5.0));
        assert_eq!(before.since(&before), Some(0.0));
        assert_eq!(look(&[("0", "package-0\n", 1)]).unwrap().since(&before), None);
        assert_eq!(look(&[]), None);
        assert_eq!(look(&[("0", "psys\n", 1)]), None);
    }
}
