//! GBNF, the grammars of llama.cpp, as Lark or as one regular expression.
//!
//! A rule that no recursion leads to is a regular expression. If the first rule is one, so is the whole, and what it
//! matches is exact. Otherwise rules become Lark's, and what is regular within them terminals, as long as possible:
//! they are matched greedily, so a grammar that relies on a shorter match of one does not find it.

use std::collections::BTreeMap;

use regex_syntax::escape;

use crate::limits::{GBNF_DEPTH, GBNF_LEVELS, LARK_BYTES, PATTERN_BYTES};
use crate::{Error, Spec, spec};

/// Translates a grammar; its first rule to match is `root`.
pub(crate) fn translate(text: &str) -> Result<Spec, Error> {
    spec::within("the GBNF grammar", text.len(), "bytes", LARK_BYTES)?;
    let rules = Parser { text, at: 0, depth: 0 }.rules()?;
    // As there, of two rules of one name the later counts.
    let names: BTreeMap<&str, usize> =
        rules.iter().enumerate().map(|(at, rule)| (rule.name, at)).collect();
    let Some(&root) = names.get("root") else {
        return Err(Error::Gbnf { line: 1, fault: "there is no rule `root`".into() });
    };
    for rule in &rules {
        let mut unknown = None;
        rule.body.refers(&mut |name| {
            if !names.contains_key(name) {
                unknown.get_or_insert(name);
            }
        });
        if let Some(name) = unknown {
            let fault = format!("there is no rule `{name}`");
            return Err(Error::Gbnf { line: line(text, rule.begin), fault });
        }
    }
    let grammar = Grammar { regular: regular(&rules, &names), rules, names };
    if grammar.regular[root] {
        return grammar.pattern(&grammar.rules[root].body).map(Spec::Regex);
    }
    grammar.lark(root).map(Spec::Lark)
}

/// The number of the line of a place.
fn line(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

#[derive(Debug)]
struct Rule<'t> {
    name: &'t str,
    /// Where it begins in the text.
    begin: usize,
    body: Node<'t>,
}

#[derive(Debug)]
enum Node<'t> {
    Any(Vec<Node<'t>>),
    All(Vec<Node<'t>>),
    /// A regular expression of its own.
    Pattern(String),
    Rule(&'t str),
    Times(Box<Node<'t>>, u32, Option<u32>),
}

impl<'t> Node<'t> {
    fn refers(&self, found: &mut dyn FnMut(&'t str)) {
        match self {
            Node::Any(nodes) | Node::All(nodes) => nodes.iter().for_each(|n| n.refers(found)),
            Node::Pattern(_) => {}
            Node::Rule(name) => found(name),
            Node::Times(node, ..) => node.refers(found),
        }
    }
}

/// Which rules lead to no recursion: those that use none, those that use these alone, and so on.
fn regular(rules: &[Rule<'_>], names: &BTreeMap<&str, usize>) -> Vec<bool> {
    let mut waits = vec![0usize; rules.len()];
    let mut used_by: Vec<Vec<usize>> = vec![Vec::new(); rules.len()];
    for (at, rule) in rules.iter().enumerate() {
        rule.body.refers(&mut |name| {
            if let Some(&of) = names.get(name) {
                waits[at] += 1;
                used_by[of].push(at);
            }
        });
    }
    let mut regular: Vec<bool> = waits.iter().map(|&waits| waits == 0).collect();
    let mut ready: Vec<usize> = (0..rules.len()).filter(|&at| regular[at]).collect();
    while let Some(of) = ready.pop() {
        for &at in &used_by[of] {
            waits[at] -= 1;
            if waits[at] == 0 {
                regular[at] = true;
                ready.push(at);
            }
        }
    }
    regular
}

struct Grammar<'t> {
    rules: Vec<Rule<'t>>,
    names: BTreeMap<&'t str, usize>,
    regular: Vec<bool>,
}

impl Grammar<'_> {
    fn is_regular(&self, node: &Node<'_>) -> bool {
        match node {
            Node::Pattern(_) => true,
            Node::Rule(name) => self.regular[self.names[name]],
            Node::Any(nodes) | Node::All(nodes) => nodes.iter().all(|node| self.is_regular(node)),
            Node::Times(node, ..) => self.is_regular(node),
        }
    }

    /// The regular expression of a node that is regular.
    fn pattern(&self, node: &Node<'_>) -> Result<String, Error> {
        let mut text = String::new();
        self.write(node, &mut text, 0)?;
        Ok(text)
    }

    /// Appends it. A few rules that use each other several times make a long text, so its size is looked at on the way.
    fn write(&self, node: &Node<'_>, text: &mut String, depth: usize) -> Result<(), Error> {
        if depth > GBNF_LEVELS {
            let fault = format!("its rules use each other more than {GBNF_LEVELS} levels deep");
            return Err(Error::Gbnf { line: 1, fault });
        }
        match node {
            Node::Pattern(pattern) => text.push_str(pattern),
            Node::Rule(name) => self.write(&self.rules[self.names[name]].body, text, depth + 1)?,
            Node::Any(nodes) => {
                for (at, node) in nodes.iter().enumerate() {
                    text.push_str(if at == 0 { "(?:" } else { "|" });
                    self.write(node, text, depth + 1)?;
                }
                text.push(')');
            }
            Node::All(nodes) => {
                nodes.iter().try_for_each(|node| self.write(node, text, depth + 1))?;
            }
            Node::Times(node, least, most) => {
                text.push_str("(?:");
                self.write(node, text, depth + 1)?;
                text.push_str(&format!("){}", times(*least, *most)));
            }
        }
        let size = text.len();
        spec::within("a rule of the GBNF grammar with those it uses", size, "bytes", PATTERN_BYTES)
    }

    fn lark(&self, root: usize) -> Result<String, Error> {
        let mut text = format!("start: r{root}\n");
        for (at, rule) in self.rules.iter().enumerate().filter(|(at, _)| !self.regular[*at]) {
            text.push_str(&format!("r{at}: "));
            self.body(&rule.body, &mut text)?;
            text.push('\n');
        }
        Ok(text)
    }

    /// Appends a node in Lark.
    fn body(&self, node: &Node<'_>, text: &mut String) -> Result<(), Error> {
        spec::within("the GBNF grammar in Lark", text.len(), "bytes", LARK_BYTES)?;
        if self.is_regular(node) {
            text.push_str(&terminal(&self.pattern(node)?));
            return Ok(());
        }
        match node {
            Node::Pattern(_) => {}
            Node::Rule(name) => text.push_str(&format!("r{}", self.names[name])),
            Node::Times(node, least, most) => {
                text.push('(');
                self.body(node, text)?;
                text.push_str(&format!("){}", times(*least, *most)));
            }
            Node::Any(nodes) => {
                for (at, node) in nodes.iter().enumerate() {
                    text.push_str(if at == 0 { "(" } else { " | " });
                    self.body(node, text)?;
                }
                text.push(')');
            }
            Node::All(nodes) => {
                // Neighbours that are regular are one terminal.
                let groups = nodes.chunk_by(|a, b| self.is_regular(a) && self.is_regular(b));
                for group in groups {
                    text.push(' ');
                    match group {
                        [node] => self.body(node, text)?,
                        group => {
                            let mut pattern = String::new();
                            group.iter().try_for_each(|node| self.write(node, &mut pattern, 0))?;
                            text.push_str(&terminal(&pattern));
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

/// A regular expression between slashes.
fn terminal(pattern: &str) -> String {
    format!("/{}/", pattern.replace('/', "\\/"))
}

fn times(least: u32, most: Option<u32>) -> String {
    match (least, most) {
        (0, None) => "*".into(),
        (1, None) => "+".into(),
        (0, Some(1)) => "?".into(),
        (least, None) => format!("{{{least},}}"),
        (least, Some(most)) => format!("{{{least},{most}}}"),
    }
}

/// A character in a regular expression, inside of brackets or outside.
fn literal(c: char) -> String {
    if c.is_control() || c == ' ' {
        return format!("\\x{{{:x}}}", u32::from(c));
    }
    match c {
        '^' | '-' | '&' | '~' | ']' | '[' => format!("\\{c}"),
        c => escape(c.encode_utf8(&mut [0; 4])),
    }
}

struct Parser<'t> {
    text: &'t str,
    at: usize,
    depth: usize,
}

impl<'t> Parser<'t> {
    fn fault<T>(&self, fault: impl Into<String>) -> Result<T, Error> {
        Err(Error::Gbnf { line: line(self.text, self.at), fault: fault.into() })
    }

    fn rules(mut self) -> Result<Vec<Rule<'t>>, Error> {
        let mut rules: Vec<Rule<'t>> = Vec::new();
        self.space();
        while self.at < self.text.len() {
            let begin = self.at;
            let name = self.name();
            if name.is_empty() {
                return self.fault("a rule must begin with its name");
            }
            self.space();
            if !self.eats("::=") {
                return self.fault(format!("`{name}` must be followed by ::="));
            }
            let body = self.any()?;
            rules.push(Rule { name, begin, body });
        }
        Ok(rules)
    }

    fn any(&mut self) -> Result<Node<'t>, Error> {
        self.depth += 1;
        if self.depth > GBNF_DEPTH {
            return self.fault(format!("more than {GBNF_DEPTH} levels deep"));
        }
        let mut nodes = vec![self.all()?];
        while self.eats("|") {
            nodes.push(self.all()?);
        }
        self.depth -= 1;
        Ok(Node::Any(nodes))
    }

    fn all(&mut self) -> Result<Node<'t>, Error> {
        let mut nodes = Vec::new();
        loop {
            self.space();
            let Some(c) = self.peek() else { break };
            let node = match c {
                '"' => self.quoted()?,
                '[' => self.class()?,
                '.' => {
                    self.at += 1;
                    Node::Pattern("(?s:.)".into())
                }
                '(' => {
                    self.at += 1;
                    let inner = self.any()?;
                    if !self.eats(")") {
                        return self.fault("a `(` is not closed");
                    }
                    inner
                }
                '<' | '!' => return self.fault("tokens are not supported: write their text"),
                c if is_name(c) => {
                    let before = self.at;
                    let name = self.name();
                    self.space();
                    if self.text[self.at..].starts_with("::=") {
                        self.at = before;
                        break;
                    }
                    Node::Rule(name)
                }
                _ => break,
            };
            nodes.push(self.repeated(node)?);
        }
        match self.peek() {
            Some(c) if !matches!(c, '|' | ')') && !is_name(c) => {
                self.fault(format!("{c:?} does not belong here"))
            }
            Some(')') if self.depth == 1 => self.fault("a `)` closes nothing"),
            _ => Ok(Node::All(nodes)),
        }
    }

    fn repeated(&mut self, mut node: Node<'t>) -> Result<Node<'t>, Error> {
        loop {
            self.space();
            let (least, most) = match self.peek() {
                Some('*') => (0, None),
                Some('+') => (1, None),
                Some('?') => (0, Some(1)),
                Some('{') => {
                    self.at += 1;
                    let (least, most) = self.counts()?;
                    node = Node::Times(node.into(), least, most);
                    continue;
                }
                _ => return Ok(node),
            };
            self.at += 1;
            node = Node::Times(node.into(), least, most);
        }
    }

    /// `n}`, `n,}` or `n,m}`.
    fn counts(&mut self) -> Result<(u32, Option<u32>), Error> {
        let least = self.number()?;
        let most = if self.eats(",") {
            self.space();
            if self.peek() == Some('}') { None } else { Some(self.number()?) }
        } else {
            Some(least)
        };
        if !self.eats("}") {
            return self.fault("a `{` is not closed");
        }
        if most.is_some_and(|most| most < least) {
            return self.fault("the larger number comes first");
        }
        Ok((least, most))
    }

    fn number(&mut self) -> Result<u32, Error> {
        self.space();
        let digits = self.text[self.at..].bytes().take_while(u8::is_ascii_digit).count();
        let number = self.text[self.at..self.at + digits].parse();
        self.at += digits;
        number.or_else(|_| self.fault("a number is wanted here"))
    }

    fn quoted(&mut self) -> Result<Node<'t>, Error> {
        self.at += 1;
        let mut pattern = String::new();
        loop {
            match self.peek() {
                None => return self.fault("a text is not closed"),
                Some('"') => {
                    self.at += 1;
                    return Ok(Node::Pattern(pattern));
                }
                Some(_) => pattern.push_str(&literal(self.character()?)),
            }
        }
    }

    fn class(&mut self) -> Result<Node<'t>, Error> {
        self.at += 1;
        let mut pattern = String::from("[");
        if self.peek() == Some('^') {
            self.at += 1;
            pattern.push('^');
        }
        let mut empty = true;
        loop {
            match self.peek() {
                None => return self.fault("a `[` is not closed"),
                Some(']') => {
                    self.at += 1;
                    break;
                }
                Some(_) => {
                    empty = false;
                    let first = self.character()?;
                    pattern.push_str(&literal(first));
                    let rest = &self.text[self.at..];
                    if rest.starts_with('-') && !rest.starts_with("-]") {
                        self.at += 1;
                        let last = self.character()?;
                        if last < first {
                            return self.fault(format!("nothing is from {first:?} to {last:?}"));
                        }
                        pattern.push('-');
                        pattern.push_str(&literal(last));
                    }
                }
            }
        }
        if empty {
            return self.fault("a `[]` has no character");
        }
        pattern.push(']');
        Ok(Node::Pattern(pattern))
    }

    /// A character of a text or a class.
    fn character(&mut self) -> Result<char, Error> {
        let c = match self.peek() {
            Some(c) => c,
            None => return self.fault("the grammar ends within a text"),
        };
        self.at += c.len_utf8();
        if c != '\\' {
            return Ok(c);
        }
        let Some(escaped) = self.peek() else {
            return self.fault("the grammar ends within a text");
        };
        self.at += escaped.len_utf8();
        let digits = match escaped {
            'n' => return Ok('\n'),
            'r' => return Ok('\r'),
            't' => return Ok('\t'),
            '\\' | '"' | '[' | ']' | '-' | '^' | '/' => return Ok(escaped),
            'x' => 2,
            'u' => 4,
            'U' => 8,
            other => return self.fault(format!("\\{other} is no known escape")),
        };
        let hex = self.text.get(self.at..self.at + digits);
        let found = hex.and_then(|hex| u32::from_str_radix(hex, 16).ok()).and_then(char::from_u32);
        self.at += hex.map_or(0, str::len);
        found.map_or_else(|| self.fault("a character's number is wrong"), Ok)
    }

    fn name(&mut self) -> &'t str {
        let rest = &self.text[self.at..];
        let end = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    fn peek(&self) -> Option<char> {
        self.text[self.at..].chars().next()
    }

    fn eats(&mut self, what: &str) -> bool {
        self.space();
        let there = self.text[self.at..].starts_with(what);
        self.at += if there { what.len() } else { 0 };
        there
    }

    /// White space and comments.
    fn space(&mut self) {
        loop {
            let rest = &self.text[self.at..];
            self.at += rest.len() - rest.trim_start().len();
            let rest = &self.text[self.at..];
            if !rest.starts_with('#') {
                return;
            }
            self.at += rest.find('\n').unwrap_or(rest.len());
        }
    }
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '-' || c == '_'
}
