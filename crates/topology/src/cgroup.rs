//! What the control groups (v1 and v2) grant this process: CPUs, memory nodes, CPU time, memory.
//!
//! `/proc/self/cgroup` gives the process's group in each hierarchy, `/proc/self/mountinfo` where
//! the hierarchy is mounted and which of its groups the mount shows (in a container without a
//! cgroup namespace the path in the first carries a prefix that is not in the mount).
//!
//! Quota and memory bind at every level, so the least of all ancestors counts. A cpuset is taken
//! from the nearest group that has the controller's files, and from that alone: `effective`
//! already accounts for the ancestors, and an ancestor of a cpuset *partition* has lost the CPUs
//! it handed down, so intersecting would give an empty set.

use crate::files::Tree;
use crate::idlist::parse_ids;
use std::path::Path;

#[derive(Debug, Default)]
pub(crate) struct Grants {
    pub(crate) cpus: Option<Vec<u32>>,
    pub(crate) mems: Option<Vec<u32>>,
    /// In CPUs.
    pub(crate) quota: Option<f64>,
    pub(crate) memory_bytes: Option<u64>,
}

const CPUSET: &str = "cpuset";

/// The kernel's default period, in µs; `cpu.max` may leave it out when written.
const DEFAULT_PERIOD: &str = "100000";

/// Longest path of a group in bytes (the kernel's PATH_MAX).
const MAX_PATH: usize = 4096;

pub(crate) fn read(tree: &mut Tree) -> Grants {
    let mut grants = Grants::default();
    let mounts = tree.text("proc/self/mountinfo").map(|text| parse_mounts(&text));
    let mounts = mounts.or_else(|| tree.text("proc/mounts").map(|text| parse_old_mounts(&text)));
    let groups = tree.text("proc/self/cgroup").or_else(|| {
        // Kernels before 2.6.24, and copies of other machines' files, tell of the cpuset alone.
        let path = tree.text("proc/self/cpuset")?;
        let v1 = mounts.iter().flatten().any(|m| m.options.iter().any(|o| o == CPUSET));
        let hierarchy = if v1 { "1:cpuset:" } else { "0::" };
        Some(format!("{hierarchy}{path}"))
    });
    let Some(groups) = groups else {
        tree.note("/proc/self/cgroup is missing: cpuset and quota of the control group unknown");
        return grants;
    };
    if mounts.is_none() {
        tree.note("/proc/self/mountinfo is missing: control groups looked for in /sys/fs/cgroup");
    }
    for line in groups.lines() {
        // `hierarchy:controllers:path`; v2 is `0::path`.
        let mut fields = line.splitn(3, ':');
        let (Some(id), Some(controllers), Some(path)) =
            (fields.next(), fields.next(), fields.next())
        else {
            tree.note("/proc/self/cgroup has a line that is not id:controllers:path");
            continue;
        };
        let v2 = id == "0" && controllers.is_empty();
        let has = |name: &str| v2 || controllers.split(',').any(|c| c == name);
        if !["cpuset", "cpu", "memory"].into_iter().any(has) {
            continue;
        }
        let Some(dirs) = group_dirs(mounts.as_deref(), v2, controllers, path) else {
            let name = if v2 { "v2" } else { controllers };
            tree.note(format!("the {name} control groups are not mounted: their limits unknown"));
            continue;
        };
        if has("cpuset") {
            // The last are those of a hierarchy mounted with `noprefix`, as `/dev/cpuset` mostly is.
            let files: [&[&str]; 2] = if v2 {
                [&["cpuset.cpus.effective"], &["cpuset.mems.effective"]]
            } else {
                [
                    &["cpuset.effective_cpus", "cpuset.cpus", "effective_cpus", "cpus"],
                    &["cpuset.effective_mems", "cpuset.mems", "effective_mems", "mems"],
                ]
            };
            grants.cpus = grants.cpus.or_else(|| nearest_list(tree, &dirs, files[0]));
            grants.mems = grants.mems.or_else(|| nearest_list(tree, &dirs, files[1]));
        }
        for dir in &dirs {
            if has("cpu") {
                grants.quota = least(grants.quota, read_quota(tree, dir, v2));
            }
            if has("memory") {
                grants.memory_bytes = least(grants.memory_bytes, read_memory(tree, dir, v2));
            }
        }
    }
    grants
}

fn least<T: PartialOrd>(a: Option<T>, b: Option<T>) -> Option<T> {
    match (a, b) {
        (Some(a), Some(b)) => Some(if b < a { b } else { a }),
        (a, b) => a.or(b),
    }
}

/// The list in the nearest directory that has one; an empty list means "not set here".
fn nearest_list(tree: &mut Tree, dirs: &[String], files: &[&str]) -> Option<Vec<u32>> {
    let paths = dirs.iter().flat_map(|dir| files.iter().map(move |file| format!("{dir}/{file}")));
    paths
        .filter_map(|path| {
            let text = tree.text(&path)?;
            tree.checked(&path, parse_ids(&text))
        })
        .find(|ids| !ids.is_empty())
}

fn read_quota(tree: &mut Tree, dir: &str, v2: bool) -> Option<f64> {
    let (path, quota, period) = if v2 {
        let path = format!("{dir}/cpu.max");
        let text = tree.text(&path)?;
        let mut words = text.split_whitespace();
        let quota = words.next().unwrap_or_default().to_owned();
        (path, quota, words.next().unwrap_or(DEFAULT_PERIOD).to_owned())
    } else {
        let path = format!("{dir}/cpu.cfs_quota_us");
        let quota = tree.text(&path)?.trim().to_owned();
        let period = tree.text(&format!("{dir}/cpu.cfs_period_us"));
        (path, quota, period.as_deref().unwrap_or(DEFAULT_PERIOD).trim().to_owned())
    };
    if quota == "max" || quota == "-1" {
        return None;
    }
    match (quota.parse::<u64>(), period.parse::<u64>()) {
        (Ok(quota @ 1..), Ok(period @ 1..)) => Some(quota as f64 / period as f64),
        _ => {
            tree.note(format!("/{path} is ignored: quota {quota:?} of period {period:?}"));
            None
        }
    }
}

/// Time for which CPU quotas stopped the threads of a control group: of this process's group and its ancestors, the one
/// that was stopped longest.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Throttling {
    /// Periods in which the group had work.
    pub periods: u64,
    /// Periods in which threads were stopped.
    pub throttled: u64,
    /// Seconds for which threads were stopped, summed over CPUs.
    pub seconds: f64,
}

impl Throttling {
    /// Reads the counts under a root path; `None` if no group has any.
    pub fn read(root: &Path) -> Option<Throttling> {
        let tree = &mut Tree::new(root);
        let mounts = tree.text("proc/self/mountinfo").map(|text| parse_mounts(&text));
        let groups = tree.text("proc/self/cgroup")?;
        let mut most: Option<Throttling> = None;
        for line in groups.lines() {
            let mut fields = line.splitn(3, ':');
            let (id, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
            let v2 = id == "0" && controllers.is_empty();
            if !v2 && !controllers.split(',').any(|c| c == "cpu") {
                continue;
            }
            for dir in group_dirs(mounts.as_deref(), v2, controllers, path).unwrap_or_default() {
                let Some(text) = tree.text(&format!("{dir}/cpu.stat")) else { continue };
                let number = |name: &str| -> Option<u64> {
                    let words = text.lines().find_map(|line| line.strip_prefix(name))?;
                    words.strip_prefix(' ')?.trim().parse().ok()
                };
                let seconds = number("throttled_usec").map(|usec| usec as f64 / 1e6);
                let seconds =
                    seconds.or_else(|| number("throttled_time").map(|ns| ns as f64 / 1e9));
                let counts = (number("nr_periods"), number("nr_throttled"), seconds);
                let (Some(periods), Some(throttled), Some(seconds)) = counts else { continue };
                if most.is_none_or(|most| seconds > most.seconds) {
                    most = Some(Throttling { periods, throttled, seconds });
                }
            }
        }
        most
    }
}

fn read_memory(tree: &mut Tree, dir: &str, v2: bool) -> Option<u64> {
    let path = format!("{dir}/{}", if v2 { "memory.max" } else { "memory.limit_in_bytes" });
    let text = tree.text(&path)?;
    if text.trim() == "max" {
        return None;
    }
    let limit = text.trim().parse::<u64>();
    // v1 prints "no limit" as the largest page-aligned number.
    tree.checked(&path, limit).filter(|&bytes| bytes < 1 << 62)
}

/// A mounted hierarchy.
struct Mount {
    v2: bool,
    /// The controllers among the mount's options (v1).
    options: Vec<String>,
    /// The group shown at the mount point.
    group: String,
    point: String,
}

/// Lines are `id parent dev root point options [tags…] - type source super-options`.
fn parse_mounts(text: &str) -> Vec<Mount> {
    let parse = |line: &str| {
        let (left, right) = line.split_once(" - ")?;
        let mut left = left.split(' ').skip(3);
        let mut right = right.split(' ');
        let v2 = match right.next()? {
            "cgroup2" => true,
            "cgroup" => false,
            _ => return None,
        };
        Some(Mount {
            v2,
            group: unescape(left.next()?),
            point: unescape(left.next()?),
            options: right.nth(1)?.split(',').map(str::to_owned).collect(),
        })
    };
    text.lines().filter_map(parse).collect()
}

/// Lines of `/proc/mounts` are `source point type options dump pass`, and tell no group.
fn parse_old_mounts(text: &str) -> Vec<Mount> {
    let parse = |line: &str| {
        let mut words = line.split(' ').skip(1);
        let (point, kind, options) = (words.next()?, words.next()?, words.next()?);
        let mut options: Vec<String> = options.split(',').map(str::to_owned).collect();
        match kind {
            "cgroup" | "cgroup2" => {}
            // The hierarchy by the name it had first.
            CPUSET => options.push(CPUSET.into()),
            _ => return None,
        }
        Some(Mount { v2: kind == "cgroup2", options, group: "/".into(), point: unescape(point) })
    };
    text.lines().filter_map(parse).collect()
}

/// Mount tables write blank, tab, newline and backslash as `\040` and so on.
fn unescape(text: &str) -> String {
    let codes = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    codes.iter().fold(text.to_owned(), |text, (code, plain)| text.replace(code, plain))
}

/// The directories of the process's group and its ancestors as far as they are visible, nearest
/// first, relative to the root. `None` when the hierarchy is not mounted.
fn group_dirs(
    mounts: Option<&[Mount]>,
    v2: bool,
    controllers: &str,
    path: &str,
) -> Option<Vec<String>> {
    let (point, below) = match mounts {
        None if v2 => ("/sys/fs/cgroup".to_owned(), path),
        None => (format!("/sys/fs/cgroup/{controllers}"), path),
        Some(mounts) => {
            let ours = |m: &&Mount| {
                m.v2 == v2
                    && (v2 || controllers.split(',').all(|c| m.options.iter().any(|o| o == c)))
            };
            // Of several mounts the one that shows our group; failing that, its own top is the
            // nearest that can be seen.
            let mut candidates = mounts.iter().filter(ours);
            let first = candidates.next()?;
            let showing = std::iter::once(first)
                .chain(candidates)
                .find_map(|m| Some((m, strip_group(path, &m.group)?)));
            let (mount, below) = showing.unwrap_or((first, ""));
            (mount.point.clone(), below)
        }
    };
    // `/../x`: the process is outside its cgroup namespace's root; only the top is visible.
    // A path longer than any the kernel makes is no path.
    let outside = below.split('/').any(|part| part == "..") || below.len() > MAX_PATH;
    let below = if outside { "" } else { below };

    let mut dir = point.trim_matches('/').to_owned();
    let mut dirs = vec![dir.clone()];
    for part in below.split('/').filter(|part| !part.is_empty()) {
        dir = format!("{dir}/{part}");
        dirs.push(dir.clone());
    }
    dirs.reverse();
    Some(dirs)
}

/// `path` below `group`, at a component boundary.
fn strip_group<'a>(path: &'a str, group: &str) -> Option<&'a str> {
    let below = path.strip_prefix(group.trim_end_matches('/'))?;
    (below.is_empty() || below.starts_with('/')).then_some(below)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
22 1 0:20 / /proc rw - proc proc rw
30 23 0:26 /docker/ab /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct
31 23 0:27 / /sys/fs/my\\040groups rw,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate
";

    fn dirs(v2: bool, controllers: &str, path: &str) -> Option<Vec<String>> {
        group_dirs(Some(&parse_mounts(MOUNTS)), v2, controllers, path)
    }

    #[test]
    fn groups_are_found_below_their_mount() {
        assert_eq!(
            dirs(true, "", "/a/b").unwrap(),
            ["sys/fs/my groups/a/b", "sys/fs/my groups/a", "sys/fs/my groups"]
        );
        let top = "sys/fs/cgroup/cpu,cpuacct";
        assert_eq!(dirs(false, "cpu,cpuacct", "/docker/ab").unwrap(), [top]);
        let inner = format!("{top}/in");
        assert_eq!(dirs(false, "cpu,cpuacct", "/docker/ab/in").unwrap(), [&*inner, top]);
        // Not below the mounted group, though the text begins alike.
        assert_eq!(dirs(false, "cpu,cpuacct", "/docker/abc").unwrap(), [top]);
        assert_eq!(dirs(true, "", "/../other").unwrap(), ["sys/fs/my groups"]);
        assert_eq!(dirs(false, "cpuset", "/"), None);
    }

    #[test]
    fn the_older_table_of_mounts_will_do() {
        let mounts = parse_old_mounts(
            "proc /proc proc rw 0 0\nnone /dev/cpuset cpuset rw 0 0\nx /my\\040v2 cgroup2 rw 0 0\n",
        );
        let dirs = |v2, controllers| group_dirs(Some(&mounts), v2, controllers, "/a").unwrap();
        assert_eq!(dirs(false, "cpuset"), ["dev/cpuset/a", "dev/cpuset"]);
        assert_eq!(dirs(true, ""), ["my v2/a", "my v2"]);
    }

    #[test]
    fn path_length_is_bounded() {
        assert_eq!(dirs(true, "", &"/x".repeat(2000)).unwrap().len(), 2001);
        assert_eq!(dirs(true, "", &"/x".repeat(100_000)).unwrap().len(), 1);
    }
}
