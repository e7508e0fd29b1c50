//! Calls that are a name, a mark, and the arguments as a JSON object.

use super::{Context, Flow, NAME, is_name};
use crate::json::{Scanner, Step};
use crate::mark::{Mark, Match};
use crate::syntax::{Decoration, Named};

#[derive(Debug, Clone)]
pub(crate) struct Calls {
    syntax: Named,
    /// Calls that are complete.
    done: usize,
    place: Place,
}

#[derive(Debug, Clone)]
enum Place {
    /// A call is to begin, or the section to end.
    Between(Mark),
    /// What stands before the name.
    Prefix(Mark),
    Name(String),
    /// The arguments are to begin.
    Ahead(String, Mark),
    Arguments(Scanner),
    /// Behind the arguments.
    Close(Mark),
}

impl Calls {
    pub(crate) fn new(syntax: Named, open: &str) -> Self {
        let mut calls = Self { syntax, done: 0, place: Place::Between(Mark::default()) };
        if open == syntax.open {
            calls.place = calls.opened();
        }
        calls
    }

    /// Whether a segment has been given of the call that is being read, or of the last.
    pub(crate) fn told(&self) -> bool {
        match &self.place {
            Place::Between(_) | Place::Close(_) => self.done > 0,
            Place::Arguments(_) => true,
            Place::Prefix(_) | Place::Name(_) | Place::Ahead(..) => false,
        }
    }

    fn opened(&self) -> Place {
        match self.syntax.before {
            "" => Place::Name(String::new()),
            _ => Place::Prefix(Mark::default()),
        }
    }

    /// Behind a call.
    fn closed(&mut self) -> Flow {
        if self.syntax.section.is_none() {
            return Flow::Over(0);
        }
        self.place = Place::Between(Mark::default());
        Flow::More
    }

    pub(crate) fn push(&mut self, c: char, cx: &mut Context<'_>) -> Flow {
        let syntax = self.syntax;
        match &mut self.place {
            Place::Between(mark) => {
                let end = syntax.section.map_or("", |s| s.1);
                match mark.push(c, &[syntax.open, end]) {
                    Match::More => {}
                    Match::Hit(0) => self.place = self.opened(),
                    Match::Hit(_) if self.done > 0 => return Flow::Over(0),
                    Match::Hit(_) => return Flow::Fault(0),
                    Match::Miss if self.done > 0 => return Flow::Over(mark.len()),
                    Match::Miss => return Flow::Fault(mark.len()),
                }
            }
            Place::Prefix(mark) => match mark.push(c, &[syntax.before]) {
                Match::More => {}
                Match::Hit(_) => self.place = Place::Name(String::new()),
                Match::Miss => return Flow::Fault(mark.len()),
            },
            Place::Name(name) => {
                name.push(c);
                if let Some(whole) = name.strip_suffix(syntax.name_end) {
                    let whole = plain(whole, syntax.decoration);
                    if !is_name(whole) {
                        return Flow::Fault(0);
                    }
                    self.place = Place::Ahead(whole.to_owned(), Mark::default());
                } else if name.len() > NAME {
                    return Flow::Fault(0);
                }
            }
            Place::Ahead(name, mark) => {
                let fence = syntax.fence.map_or("{", |f| f.0);
                match mark.push(c, &["{", fence]) {
                    Match::More => {}
                    Match::Hit(0) => {
                        let mut scanner = Scanner::new();
                        scanner.push(c);
                        cx.begin(std::mem::take(name));
                        cx.segments.argument(c);
                        self.place = Place::Arguments(scanner);
                    }
                    Match::Hit(_) => {}
                    Match::Miss => return Flow::Fault(mark.len()),
                }
            }
            Place::Arguments(scanner) => {
                let step = scanner.push(c);
                if step == Step::Fault {
                    return Flow::Fault(c.len_utf8());
                }
                cx.segments.argument(c);
                cx.held.clear();
                if step == Step::Done {
                    self.done += 1;
                    cx.end();
                    self.place = Place::Close(Mark::default());
                    if syntax.close.is_empty() {
                        return self.closed();
                    }
                }
            }
            Place::Close(mark) => {
                let fence = syntax.fence.map_or(syntax.close, |f| f.1.trim_start());
                match mark.push(c, &[syntax.close, fence]) {
                    Match::More | Match::Hit(1) => {}
                    Match::Hit(_) => return self.closed(),
                    Match::Miss => return Flow::Over(mark.len()),
                }
            }
        }
        Flow::More
    }
}

/// A name without what the family attaches to it.
fn plain(name: &str, decoration: Decoration) -> &str {
    let name = name.trim();
    match decoration {
        Decoration::None => name,
        Decoration::Id => name.split_once("[CALL_ID]").map_or(name, |(name, _)| name.trim()),
        Decoration::Numbered => {
            let name = name.strip_prefix("functions.").unwrap_or(name);
            match name.rsplit_once(':') {
                Some((name, n)) if n.bytes().all(|b| b.is_ascii_digit()) => name,
                _ => name,
            }
        }
    }
}
