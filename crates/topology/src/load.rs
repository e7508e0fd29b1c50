//! What each CPU did, by the kernel's count.

use crate::CpuId;
use crate::files::Tree;
use std::collections::BTreeMap;
use std::path::Path;

/// Ticks of a CPU since the system started (`proc_stat(5)`), 10 ms each on most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTicks {
    /// All of them.
    pub all: u64,
    /// Nobody wanted to run.
    pub idle: u64,
    /// Another virtual machine ran instead.
    pub stolen: u64,
}

impl CpuTicks {
    /// Those of every CPU that is online, by `proc/stat` under a root; none if it cannot be read.
    pub fn read(root: &Path) -> BTreeMap<CpuId, CpuTicks> {
        parse(&Tree::new(root).text("proc/stat").unwrap_or_default())
    }

    /// Ticks since another look.
    pub fn since(self, before: CpuTicks) -> CpuTicks {
        CpuTicks {
            all: self.all.saturating_sub(before.all),
            idle: self.idle.saturating_sub(before.idle),
            stolen: self.stolen.saturating_sub(before.stolen),
        }
    }
}

/// Lines are `cpuN user nice system idle iowait irq softirq steal …`; guests are part of the first two.
fn parse(text: &str) -> BTreeMap<CpuId, CpuTicks> {
    let of_line = |line: &str| {
        let mut words = line.strip_prefix("cpu")?.split_ascii_whitespace();
        let id = words.next()?.parse().ok()?;
        let ticks: Vec<u64> = words.map_while(|word| word.parse().ok()).take(8).collect();
        let at = |i: usize| ticks.get(i).copied().unwrap_or(0);
        let all = ticks.iter().sum();
        Some((CpuId(id), CpuTicks { all, idle: at(3) + at(4), stolen: at(7) }))
    };
    // The sum of all is the first line, what is not of CPUs comes after them.
    text.lines().skip(1).map_while(of_line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cpu_has_a_line() {
        let text = "cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 1 2 3 40 5 6 7 8 1 2\ncpu7 1 0 0 9\nintr 5 4\n";
        let ticks = |all, idle, stolen| CpuTicks { all, idle, stolen };
        let expected = [(CpuId(0), ticks(72, 45, 8)), (CpuId(7), ticks(10, 9, 0))];
        assert_eq!(parse(text), BTreeMap::from(expected));
        assert_eq!(ticks(72, 45, 8).since(ticks(12, 40, 9)), ticks(60, 5, 0));
        for bad in ["", "cpu 1", "cpu 1\ncpux 1 2", "cpu 1\ncpu99999999999 1"] {
            assert!(parse(bad).is_empty(), "{bad:?}");
        }
    }
}
