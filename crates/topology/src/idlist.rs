//! Lists of ids in the kernel's format, `0-3,8,10-11`: read from sysfs, cgroupfs and flags.

use crate::{CpuId, Error, NodeId};
use std::fmt;
use std::str::FromStr;

/// Highest CPU or node id accepted. No Linux build has more than 8192 CPUs; the bound keeps a
/// corrupt `0-4294967295` from becoming four billion entries.
pub const MAX_ID: u32 = 8191;

/// What a list can hold.
pub trait Id: sealed::Sealed + Copy + Ord + From<u32> + Into<u32> {
    /// What messages call one of them.
    const WHAT: &'static str;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! ids {
    ($($id:ident $what:literal),*) => {$(
        impl sealed::Sealed for $id {}
        impl Id for $id {
            const WHAT: &'static str = $what;
        }
        impl From<u32> for $id {
            fn from(number: u32) -> Self {
                $id(number)
            }
        }
        impl From<$id> for u32 {
            fn from(id: $id) -> u32 {
                id.0
            }
        }
    )*};
}
ids!(CpuId "cpu", NodeId "node");

/// A sorted set of CPUs that reads and prints as `0-3,8,10-11`.
pub type CpuList = IdList<CpuId>;

/// A sorted set of memory nodes that reads and prints as `0-3,8,10-11`.
pub type NodeList = IdList<NodeId>;

/// A sorted set of ids that reads and prints as `0-3,8,10-11`.
///
/// Parsing accepts any order, overlaps and blanks around items; printing is canonical.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct IdList<T>(Vec<T>);

impl<T: Id> IdList<T> {
    /// The ids, ascending, each once.
    pub fn as_slice(&self) -> &[T] {
        &self.0
    }

    /// The ids, ascending.
    pub fn iter(&self) -> impl Iterator<Item = T> + '_ {
        self.0.iter().copied()
    }

    /// Whether `id` is in the list.
    pub fn contains(&self, id: T) -> bool {
        self.0.binary_search(&id).is_ok()
    }

    /// Number of ids.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is nothing in the list (never after parsing).
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<T> Default for IdList<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Id> FromIterator<T> for IdList<T> {
    fn from_iter<I: IntoIterator<Item = T>>(ids: I) -> Self {
        let mut ids: Vec<T> = ids.into_iter().collect();
        ids.sort_unstable();
        ids.dedup();
        Self(ids)
    }
}

impl<T: Id> FromStr for IdList<T> {
    type Err = Error;

    /// Reads a list a user wrote; an empty one is an error.
    fn from_str(text: &str) -> Result<Self, Error> {
        let bad = |reason| Error::BadList { what: T::WHAT, text: shorten(text.trim()), reason };
        let ids = parse_ids(text).map_err(bad)?;
        if ids.is_empty() {
            return Err(bad(format!("it names no {}", T::WHAT)));
        }
        Ok(ids.into_iter().map(T::from).collect())
    }
}

impl<T: Id> fmt::Display for IdList<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format_ids(self.iter().map(T::into)))
    }
}

impl<T: Id> serde::Serialize for IdList<T> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Parses a list of ids, sorted and without repeats. The kernel writes an empty set as an empty
/// line, so here that is a valid, empty list. The error is the reason alone.
pub(crate) fn parse_ids(text: &str) -> Result<Vec<u32>, String> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let mut member = vec![];
    for item in text.split(',') {
        let item = item.trim();
        let (first, last) = match item.split_once('-') {
            Some((a, b)) => (parse_id(a)?, parse_id(b)?),
            None => {
                let id = parse_id(item)?;
                (id, id)
            }
        };
        if first > last {
            return Err(format!("the range {first}-{last} runs backwards"));
        }
        // A bitmap, not a list: overlapping ranges in a long text must not add up.
        if member.len() <= last as usize {
            member.resize(last as usize + 1, false);
        }
        member[first as usize..=last as usize].fill(true);
    }
    Ok((0..).zip(member).filter_map(|(id, set)| set.then_some(id)).collect())
}

fn parse_id(item: &str) -> Result<u32, String> {
    let item = item.trim();
    if item.is_empty() {
        return Err("a number is missing".into());
    }
    if !item.bytes().all(|b| b.is_ascii_digit()) {
        return Err(format!("{:?} is not a number", shorten(item)));
    }
    match item.parse() {
        Ok(id) if id <= MAX_ID => Ok(id),
        _ => Err(format!("{} is above the highest id, {MAX_ID}", shorten(item))),
    }
}

/// Writes ascending ids as ranges; a repeated id is written once.
pub(crate) fn format_ids(ids: impl IntoIterator<Item = u32>) -> String {
    let mut ranges: Vec<(u32, u32)> = vec![];
    for id in ids {
        match ranges.last_mut() {
            Some((_, last)) if id == *last || id == *last + 1 => *last = id,
            _ => ranges.push((id, id)),
        }
    }
    let item = |&(a, b): &(u32, u32)| if a == b { a.to_string() } else { format!("{a}-{b}") };
    ranges.iter().map(item).collect::<Vec<_>>().join(",")
}

fn shorten(text: &str) -> String {
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn reason(text: &str) -> String {
        text.parse::<CpuList>().unwrap_err().to_string()
    }

    #[test]
    fn reads_what_people_and_kernels_write() {
        let list: CpuList = " 8, 0-3,10-11,2\n".parse().unwrap();
        assert_eq!(list.to_string(), "0-3,8,10-11");
        assert_eq!(list.len(), 7);
        assert!(list.contains(CpuId(10)) && !list.contains(CpuId(9)));
        assert_eq!(parse_ids("\n").unwrap(), [0u32; 0]);
    }

    #[test]
    fn faults_are_named() {
        assert!(reason("").contains("names no cpu"));
        assert!(reason("0-3,,5").contains("a number is missing"));
        assert!(reason("-3").contains("a number is missing"));
        assert!(reason("3-1").contains("3-1 runs backwards"));
        assert!(reason("0-x").contains("\"x\" is not a number"));
        assert!(reason("+1").contains("not a number"));
        assert!(reason("0-4294967295").contains("above the highest id"));
        assert!(reason("99999999999999999999").contains("above the highest id"));
        assert!(reason(&"é".repeat(5000)).chars().count() < 240);
    }

    #[test]
    fn lists_of_nodes_are_read_alike_and_named_rightly() {
        let list: NodeList = "7, 0-1".parse().unwrap();
        assert_eq!(list.as_slice(), [NodeId(0), NodeId(1), NodeId(7)]);
        assert_eq!(list.to_string(), "0-1,7");
        let error = "".parse::<NodeList>().unwrap_err().to_string();
        assert!(error.starts_with("node list \"\": it names no node;"), "{error}");
    }

    proptest! {
        #[test]
        fn printed_lists_read_back(ids in prop::collection::vec(0..=MAX_ID, 1..200)) {
            let list: CpuList = ids.into_iter().map(CpuId).collect();
            prop_assert_eq!(list.to_string().parse::<CpuList>().unwrap(), list);
        }

        #[test]
        fn dense_lists_read_back(ids in prop::collection::vec(0u32..64, 1..64)) {
            let list: CpuList = ids.into_iter().map(CpuId).collect();
            prop_assert_eq!(list.to_string().parse::<CpuList>().unwrap(), list);
        }

        #[test]
        fn any_text_gives_a_value_or_an_error(text in "[0-9,\\- x]{0,40}") {
            if let Ok(list) = text.parse::<CpuList>() {
                prop_assert_eq!(list.to_string().parse::<CpuList>().unwrap(), list);
            }
        }
    }
}
