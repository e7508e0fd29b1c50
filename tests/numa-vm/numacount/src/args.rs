//! The plugin's arguments.
//!
//! | argument | meaning |
//! |---|---|
//! | `nK=LO-HI` | guest-physical addresses of node K, end exclusive; may be given more than once |
//! | `cK=A-B` | processors of node K |
//! | `l2=KIB` | also model a private cache of this size |
//! | `top=N` | also print the N virtual pages with most bytes of remote accesses |
//! | `kernel=1` | count the guest's kernel too, not only user space |
//! | `stages=1` | also print the counts between any two waits; nothing counts while a thread waits |

use crate::tally::NODES;

/// User space ends here on x86-64.
const USER_END: u64 = 1 << 47;

/// What is to be counted, and which node is where.
#[derive(Debug, PartialEq)]
pub(crate) struct Config {
    /// Beginning, end, node.
    ranges: Vec<(u64, u64, usize)>,
    /// Node of each processor.
    homes: Vec<Option<usize>>,
    /// Instructions at addresses from here on are not counted.
    pub(crate) code_end: u64,
    /// Size of the modelled cache.
    pub(crate) cache_kib: Option<usize>,
    /// So many pages are printed.
    pub(crate) top: usize,
    /// Counts are cut at waits.
    pub(crate) stages: bool,
}

impl Config {
    /// Reads the arguments; the error is the one that cannot be understood.
    pub(crate) fn parse<'a>(args: impl Iterator<Item = &'a str>) -> Result<Config, String> {
        let mut config = Config {
            ranges: vec![],
            homes: vec![],
            code_end: USER_END,
            cache_kib: None,
            top: 0,
            stages: false,
        };
        for arg in args {
            config.set(arg).ok_or_else(|| arg.to_owned())?;
        }
        Ok(config)
    }

    fn set(&mut self, arg: &str) -> Option<()> {
        let (key, value) = arg.split_once('=')?;
        let (kind, node) = key.split_at_checked(1)?;
        let node = node.parse().ok().filter(|&n| n < NODES);
        match (key, kind, node) {
            ("kernel", ..) => self.code_end = if value == "0" { USER_END } else { u64::MAX },
            ("stages", ..) => self.stages = value != "0",
            ("l2", ..) => self.cache_kib = Some(value.parse().ok().filter(|&kib| kib > 0)?),
            ("top", ..) => self.top = value.parse().ok()?,
            (_, "n", Some(node)) => {
                let (from, to) = pair(value)?;
                self.ranges.push((from, to, node));
            }
            (_, "c", Some(node)) => {
                let (first, last) = pair(value)?;
                let (first, last) = (usize::try_from(first).ok()?, usize::try_from(last).ok()?);
                if self.homes.len() <= last {
                    self.homes.resize(last + 1, None);
                }
                self.homes.get_mut(first..=last)?.fill(Some(node));
            }
            _ => return None,
        }
        Some(())
    }

    /// The node of a guest-physical address; none of device memory and holes.
    pub(crate) fn node_at(&self, address: u64) -> Option<usize> {
        let has = |(from, to, _): &&(u64, u64, usize)| (*from..*to).contains(&address);
        self.ranges.iter().find(has).map(|r| r.2)
    }

    /// The node of a processor.
    pub(crate) fn home(&self, cpu: usize) -> Option<usize> {
        self.homes.get(cpu).copied().flatten()
    }

    /// End of the highest node.
    pub(crate) fn memory_end(&self) -> u64 {
        self.ranges.iter().map(|r| r.1).max().unwrap_or(0)
    }
}

fn pair(text: &str) -> Option<(u64, u64)> {
    let (a, b) = text.split_once('-').unwrap_or((text, text));
    Some((number(a)?, number(b)?))
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_and_processors_are_found() {
        let args = "n0=0x0-0x1000,n1=0x1000-0x2000,n1=0x8000-0x9000,c0=0-1,c1=2,l2=1024";
        let config = Config::parse(args.split(',')).unwrap();
        let nodes = [0x0, 0xfff, 0x1000, 0x2000, 0x8fff, 0x9000].map(|a| config.node_at(a));
        assert_eq!(nodes, [Some(0), Some(0), Some(1), None, Some(1), None]);
        assert_eq!([0, 1, 2, 3].map(|c| config.home(c)), [Some(0), Some(0), Some(1), None]);
        assert_eq!((config.memory_end(), config.cache_kib), (0x9000, Some(1024)));
        assert_eq!(config.code_end, USER_END);
        assert_eq!(Config::parse(["kernel=1"].into_iter()).unwrap().code_end, u64::MAX);
        assert!(!config.stages && Config::parse(["stages=1"].into_iter()).unwrap().stages);
    }

    #[test]
    fn what_is_not_understood_is_named() {
        for bad in ["n0", "n0=1-x", "n99=0-1", "l2=0", "c0=3-1", "phase=1", "", "é=1"] {
            assert_eq!(Config::parse([bad].into_iter()), Err(bad.to_owned()));
        }
    }
}
