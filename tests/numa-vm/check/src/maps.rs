//! Where this process's memory is, by the kernel's own account: `/proc/self/numa_maps`.
//!
//! This knows nothing of the engine's arenas. Every mapping with a policy `bind:N` says where its
//! pages are meant to be, and beside it where they are; so a page on the wrong node shows here
//! whatever the engine believes, and weights that were left in unbound memory show as bound bytes
//! that are missing.
//!
//! Source: `Documentation/filesystems/proc.rst` and `numa_memory_policy.rst` of Linux.

use crate::error::Error;
use std::collections::BTreeMap;
use std::fs;

/// Pages of this process by what their mapping asks for.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Maps {
    /// Of mappings bound to one node, by that node.
    pub(crate) bound: BTreeMap<u32, Bound>,
    /// Bytes of anonymous memory that is not bound, by node: stacks, heap, the runtime.
    pub(crate) unbound: BTreeMap<u32, u64>,
    /// Bytes of mappings with another policy (interleave, bound to several), by node.
    pub(crate) other: BTreeMap<u32, u64>,
}

/// What is bound to a node.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Bound {
    /// Bytes that are there.
    pub(crate) right: u64,
    /// Bytes that are on another node.
    pub(crate) wrong: u64,
}

impl Maps {
    /// Reads this process's own.
    pub(crate) fn read() -> Result<Maps, Error> {
        let path = "/proc/self/numa_maps";
        let text = fs::read_to_string(path).map_err(|source| Error::Io {
            verb: "read",
            path: path.into(),
            source,
        })?;
        Maps::parse(&text)
    }

    fn parse(text: &str) -> Result<Maps, Error> {
        let mut maps = Maps::default();
        for line in text.lines() {
            maps.add(line).ok_or_else(|| Error::Maps(line.to_owned()))?;
        }
        Ok(maps)
    }

    /// `7f12a000 bind:1 anon=512 dirty=512 active=0 N1=512 kernelpagesize_kB=4`; pages are of the
    /// size at the end, huge ones counted as so many of them.
    fn add(&mut self, line: &str) -> Option<()> {
        let mut words = line.split_ascii_whitespace().skip(1);
        let policy = words.next()?;
        let mut on = vec![];
        let mut page = 4096;
        let mut file = false;
        for word in words {
            if let Some((key, value)) = word.split_once('=') {
                match key.strip_prefix('N').map(str::parse::<u32>) {
                    Some(Ok(node)) => on.push((node, value.parse::<u64>().ok()?)),
                    _ if key == "kernelpagesize_kB" => page = value.parse::<u64>().ok()? * 1024,
                    _ => file |= key == "file",
                }
            }
        }
        let home = policy.strip_prefix("bind:").map(str::parse::<u32>);
        for (node, pages) in on {
            let bytes = pages * page;
            match home {
                Some(Ok(home)) => {
                    let bound = self.bound.entry(home).or_default();
                    *(if node == home { &mut bound.right } else { &mut bound.wrong }) += bytes;
                }
                _ if file => {}
                // The first thread's stack and heap prefer its node.
                _ if policy == "default" || policy.starts_with("prefer:") => {
                    *self.unbound.entry(node).or_default() += bytes;
                }
                _ => *self.other.entry(node).or_default() += bytes,
            }
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_counted_by_what_was_asked_for() {
        let text = "\
55d0 default file=/bin/check mapped=10 mapmax=2 N0=4 N1=6 kernelpagesize_kB=4
7f00 bind:1 anon=515 dirty=515 active=0 N0=3 N1=512 kernelpagesize_kB=4
7f10 bind:1 anon=2 dirty=2 N1=2 kernelpagesize_kB=2048
7f20 bind:0-1 anon=1 N0=1 kernelpagesize_kB=4
7f30 interleave:0-1 anon=2 dirty=2 N0=1 N1=1 kernelpagesize_kB=4
7f40 default anon=5 dirty=5 N1=5 kernelpagesize_kB=4
7f50 bind:0
7ffe prefer:0 stack anon=3 dirty=3 N0=3 kernelpagesize_kB=4
";
        let maps = Maps::parse(text).unwrap();
        let one = Bound { right: 512 * 4096 + (4 << 20), wrong: 3 * 4096 };
        assert_eq!(maps.bound, [(1, one)].into());
        assert_eq!(maps.unbound, [(0, 3 * 4096), (1, 5 * 4096)].into());
        assert_eq!(maps.other, [(0, 2 * 4096), (1, 4096)].into());
        assert!(Maps::parse("7f00 bind:1 N1=many kernelpagesize_kB=4").is_err());
        assert!(Maps::parse("7f00").is_err());
    }
}
