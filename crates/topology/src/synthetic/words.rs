//! The words of a synthetic string.

use crate::{Error, MAX_ID};
use std::fmt;

/// What a level is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The whole, which is not written.
    Machine,
    Package,
    Die,
    Node,
    /// Of this level, for data or both.
    Cache(u8),
    /// Of this level, for instructions.
    InstructionCache(u8),
    Group,
    Cluster,
    Core,
    Pu,
}

#[derive(Clone, Debug)]
pub(super) struct Level {
    /// As written.
    pub(super) word: String,
    pub(super) kind: Kind,
    /// How many there are in the machine.
    pub(super) width: usize,
    /// Bytes of memory or cache; 0 when not given.
    pub(super) size: u64,
    pub(super) indexes: Option<String>,
    /// Bytes of each memory node that hangs on every one of the level; 0 when not given.
    pub(super) hung: Vec<u64>,
}

pub(super) struct Spec {
    /// From the machine to the CPUs.
    pub(super) levels: Vec<Level>,
    /// How the nodes that hang on levels are numbered, with the word that says so.
    pub(super) hung_indexes: Option<(String, String)>,
}

pub(super) fn fault(word: &str, reason: impl fmt::Display) -> Error {
    Error::Synthetic { word: word.chars().take(60).collect(), reason: reason.to_string() }
}

pub(super) fn parse(text: &str) -> Result<Spec, Error> {
    let machine = Level {
        word: String::new(),
        kind: Kind::Machine,
        width: 1,
        size: 0,
        indexes: None,
        hung: vec![],
    };
    let mut spec = Spec { levels: vec![machine], hung_indexes: None };
    for word in split(text)? {
        let last = spec.levels.len() - 1;
        if let Some(node) = word.strip_prefix('[') {
            let node = node.strip_suffix(']').ok_or_else(|| fault(word, "no ] at its end"))?;
            let (name, attributes) = attributes(word, node)?;
            if kind(name) != Some(Kind::Node) {
                return Err(fault(word, "only memory nodes hang on a level: write [numa]"));
            }
            if attributes.indexes.is_some() {
                spec.hung_indexes = attributes.indexes.map(|text| (word.to_owned(), text));
            }
            spec.levels[last].hung.push(attributes.size);
        } else {
            let level = level(word, &spec.levels)?;
            spec.levels.push(level);
        }
    }
    let last = &spec.levels[spec.levels.len() - 1];
    match last.kind {
        Kind::Machine => return Err(fault(text.trim(), "it names no level, such as core:8")),
        Kind::Pu if !last.hung.is_empty() => {
            return Err(fault(&last.word, "memory nodes do not hang on a pu"));
        }
        Kind::Pu => {}
        // Left out where there is no SMT.
        _ => {
            let pu = Level { word: "pu:1".into(), kind: Kind::Pu, ..last.clone() };
            spec.levels.push(Level { indexes: None, size: 0, hung: vec![], ..pu });
        }
    }
    let node = spec.levels.iter().find(|level| level.kind == Kind::Node);
    if let Some(node) = node.filter(|_| spec.levels.iter().any(|level| !level.hung.is_empty())) {
        return Err(fault(&node.word, "nodes are a level or hang on levels as [numa], not both"));
    }
    Ok(spec)
}

/// The words: blanks within brackets part none.
fn split(text: &str) -> Result<Vec<&str>, Error> {
    let mut words = vec![];
    let (mut start, mut open) = (None, 0usize);
    for (at, c) in text.char_indices() {
        match c {
            '(' | '[' => open += 1,
            ')' | ']' => open = open.saturating_sub(1),
            _ => {}
        }
        if c.is_whitespace() && open == 0 {
            words.extend(start.take().map(|start| &text[start..at]));
        } else if start.is_none() {
            start = Some(at);
        }
    }
    let last = start.map(|start| &text[start..]);
    match last {
        Some(word) if open > 0 => Err(fault(word, "a bracket is not closed")),
        _ => Ok(words.into_iter().chain(last).collect()),
    }
}

fn level(word: &str, above: &[Level]) -> Result<Level, Error> {
    let fault = |reason: &dyn fmt::Display| fault(word, reason);
    let parent = &above[above.len() - 1];
    if parent.kind == Kind::Pu {
        return Err(fault(&"nothing can be within a pu"));
    }
    let (body, attributes) = attributes(word, word)?;
    let Some((name, count)) = body.split_once(':') else {
        return Err(fault(&"a level is a type, a colon and a number, such as core:8"));
    };
    let Some(kind) = kind(name) else {
        let types = "package, die, numa, l2, l3, group, cluster, core or pu";
        return Err(fault(&format_args!("{name:?} is no type; write {types}")));
    };
    if kind == Kind::Machine {
        return Err(fault(&"there is one machine, which is not written"));
    }
    if kind != Kind::Group && above.iter().any(|level| level.kind == kind) {
        return Err(fault(&"there is such a level already"));
    }
    let small = matches!(kind, Kind::Pu | Kind::Cache(_) | Kind::InstructionCache(_));
    if !small && above.iter().any(|level| level.kind == Kind::Core) {
        return Err(fault(&"only caches and pu can be within a core"));
    }
    let count = count.parse::<usize>().ok().filter(|&n| n > 0);
    let count = count.ok_or_else(|| fault(&"after the colon stands a number above 0"))?;
    let most = MAX_ID as usize + 1;
    let width = parent.width.checked_mul(count).filter(|&width| width <= most);
    let width = width.ok_or_else(|| fault(&format_args!("that makes more than {most}")))?;
    let Attributes { size, indexes } = attributes;
    Ok(Level { word: word.to_owned(), kind, width, size, indexes, hung: vec![] })
}

struct Attributes {
    size: u64,
    indexes: Option<String>,
}

/// What stands before the parentheses, if there are any, and what within.
fn attributes<'a>(word: &str, text: &'a str) -> Result<(&'a str, Attributes), Error> {
    let mut attributes = Attributes { size: 0, indexes: None };
    let Some((body, list)) = text.split_once('(') else { return Ok((text, attributes)) };
    let list = list.strip_suffix(')').ok_or_else(|| fault(word, "no ) at its end"))?;
    for attribute in list.split_whitespace() {
        match attribute.split_once('=') {
            Some(("memory" | "size", amount)) => {
                let size = bytes(amount);
                attributes.size = size.ok_or_else(|| {
                    fault(word, format!("{amount:?} is no amount such as 64GiB or 32MB"))
                })?;
            }
            Some(("indexes", text)) => attributes.indexes = Some(text.to_owned()),
            // A cache before memory, of which nothing is made here.
            Some(("memorysidecachesize", _)) => {}
            _ => {
                let known = "memory=, size= and indexes=";
                return Err(fault(word, format!("{attribute:?} is none of {known}")));
            }
        }
    }
    Ok((body, attributes))
}

fn bytes(text: &str) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let unit: u64 = match text[end..].to_ascii_lowercase().as_str() {
        "" => 1,
        "kb" => 1000,
        "kib" => 1 << 10,
        "mb" => 1_000_000,
        "mib" => 1 << 20,
        "gb" => 1_000_000_000,
        "gib" => 1 << 30,
        "tb" => 1_000_000_000_000,
        "tib" => 1 << 40,
        _ => return None,
    };
    text[..end].parse::<u64>().ok()?.checked_mul(unit)
}

/// The kind a name stands for: a whole name or its beginning, of two letters at least.
pub(super) fn kind(name: &str) -> Option<Kind> {
    let name = name.to_ascii_lowercase();
    if let Some(cache) =
        name.strip_prefix('l').filter(|c| c.starts_with(|c: char| c.is_ascii_digit()))
    {
        let (level, rest) = cache.split_at(1);
        let level: u8 = level.parse().ok().filter(|level| (1..=5).contains(level))?;
        let rest = rest.strip_suffix("cache").unwrap_or(rest);
        return match rest {
            "" | "d" | "u" => Some(Kind::Cache(level)),
            "i" if level <= 3 => Some(Kind::InstructionCache(level)),
            _ => None,
        };
    }
    // Groups may be numbered by their depth.
    let group = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let names = [
        ("machine", Kind::Machine),
        ("package", Kind::Package),
        ("socket", Kind::Package),
        ("die", Kind::Die),
        ("numanode", Kind::Node),
        ("node", Kind::Node),
        ("cluster", Kind::Cluster),
        ("core", Kind::Core),
        ("pu", Kind::Pu),
    ];
    let groups = [("group", Kind::Group), ("tile", Kind::Group), ("module", Kind::Group)];
    let find = |names: &[(&str, Kind)], name: &str| {
        let found = names.iter().find(|(whole, _)| name.len() >= 2 && whole.starts_with(name));
        found.map(|&(_, kind)| kind)
    };
    find(&names, &name).or_else(|| find(&groups, group))
}
