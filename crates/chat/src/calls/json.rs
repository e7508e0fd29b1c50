//! Calls that are JSON objects, alone or in a list: `{"name": …, "arguments": {…}}`.

use super::{Context, Flow, is_name};
use crate::json::{Scanner, State, Step};
use crate::mark::{Mark, Match};
use crate::syntax::Json;

#[derive(Debug)]
pub(crate) struct Calls {
    syntax: Json,
    bare: bool,
    in_list: bool,
    /// Calls that are complete.
    done: usize,
    place: Place,
}

#[derive(Debug)]
enum Place {
    /// A call or a list is to begin.
    Before,
    Within(Box<Object>),
    /// Behind a call.
    After(Mark),
}

impl Calls {
    pub(crate) fn new(syntax: Json, bare: bool) -> Self {
        Self { syntax, bare, in_list: false, done: 0, place: Place::Before }
    }

    /// Whether a segment has been given of the call that is being read, or of the last.
    pub(crate) fn told(&self) -> bool {
        match &self.place {
            Place::Within(object) => object.begun,
            Place::Before | Place::After(_) => self.done > 0,
        }
    }

    pub(crate) fn push(&mut self, c: char, cx: &mut Context<'_>) -> Flow {
        match &mut self.place {
            Place::Before => match c {
                '[' if self.syntax.list && !self.in_list => self.in_list = true,
                '{' => {
                    let mut object = Object::new();
                    object.scanner.push(c);
                    self.place = Place::Within(Box::new(object));
                }
                c if c.is_whitespace() => {}
                c => return Flow::Fault(c.len_utf8()),
            },
            Place::Within(object) => match object.push(c, self.syntax, self.bare, cx) {
                Step::More => {}
                Step::Fault => return Flow::Fault(c.len_utf8()),
                Step::Done => {
                    self.done += 1;
                    self.place = Place::After(Mark::default());
                    if !self.in_list && (self.bare || self.syntax.close.is_empty()) {
                        return Flow::Over(0);
                    }
                }
            },
            Place::After(mark) if !self.in_list => match mark.push(c, &[self.syntax.close]) {
                Match::More => {}
                Match::Hit(_) => return Flow::Over(0),
                Match::Miss => return Flow::Over(mark.len()),
            },
            Place::After(_) => match c {
                ',' => self.place = Place::Before,
                ']' => {
                    self.in_list = false;
                    if self.syntax.close.is_empty() {
                        return Flow::Over(0);
                    }
                }
                c if c.is_whitespace() => {}
                c => return Flow::Fault(c.len_utf8()),
            },
        }
        Flow::More
    }
}

/// One call.
#[derive(Debug)]
struct Object {
    scanner: Scanner,
    /// What is read at the object's own level.
    part: Part,
    name: Option<String>,
    arguments: Arguments,
    begun: bool,
}

#[derive(Debug)]
enum Part {
    /// Between key, colon and value.
    Between,
    Key(String),
    /// A value is to begin.
    Ahead(Kind),
    Value(Kind, String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Name,
    Arguments,
    Other,
}

#[derive(Debug)]
enum Arguments {
    None,
    /// Complete or not, before the name was known.
    Waiting(String),
    Told,
}

impl Object {
    fn new() -> Self {
        Self {
            scanner: Scanner::new(),
            part: Part::Between,
            name: None,
            arguments: Arguments::None,
            begun: false,
        }
    }

    fn push(&mut self, c: char, syntax: Json, bare: bool, cx: &mut Context<'_>) -> Step {
        let step = self.scanner.push(c);
        if step == Step::Fault || self.read(c, syntax, bare, cx).is_none() {
            return Step::Fault;
        }
        if step == Step::Done {
            if self.begin(bare, cx).is_none() {
                return Step::Fault;
            }
            if matches!(self.arguments, Arguments::None) {
                cx.segments.arguments("{}");
            }
            cx.end();
        }
        if self.begun {
            cx.held.clear();
        }
        step
    }

    /// Follows the parts of the object; `None` if they are no call's.
    fn read(&mut self, c: char, syntax: Json, bare: bool, cx: &mut Context<'_>) -> Option<()> {
        let (state, own) = (self.scanner.state(), self.scanner.depth() == 1);
        match &mut self.part {
            Part::Between => {
                if own && matches!(state, State::Text { key: true, .. }) {
                    self.part = Part::Key(c.into());
                }
            }
            Part::Key(raw) => {
                raw.push(c);
                if state == State::Colon {
                    let key: String = serde_json::from_str(raw).ok()?;
                    let kind = if syntax.name.contains(&&*key) && self.name.is_none() {
                        Kind::Name
                    } else if syntax.arguments.contains(&&*key)
                        && matches!(self.arguments, Arguments::None)
                    {
                        Kind::Arguments
                    } else if bare && !matches!(&*key, "type" | "id") {
                        // An answer in JSON; it need not wait for its end.
                        return None;
                    } else {
                        Kind::Other
                    };
                    self.part = Part::Ahead(kind);
                }
            }
            Part::Ahead(_) if c == ':' || c.is_whitespace() => {}
            Part::Ahead(kind) => {
                let kind = match (*kind, c) {
                    (Kind::Name, '"') | (Kind::Arguments, '"') => *kind,
                    (Kind::Name, _) => return None,
                    (Kind::Arguments, '{') => {
                        self.arguments = Arguments::Waiting(String::new());
                        if self.name.is_some() {
                            self.begin(bare, cx)?;
                        }
                        Kind::Arguments
                    }
                    // No arguments at all.
                    (Kind::Arguments, 'n') | (Kind::Other, _) => Kind::Other,
                    (Kind::Arguments, _) => return None,
                };
                self.part = Part::Value(kind, String::new());
                return self.value(c, bare, cx);
            }
            Part::Value(..) => return self.value(c, bare, cx),
        }
        Some(())
    }

    fn value(&mut self, c: char, bare: bool, cx: &mut Context<'_>) -> Option<()> {
        let ended = match self.scanner.depth() {
            0 => true,
            1 => matches!(self.scanner.state(), State::Next | State::Key { .. }),
            _ => false,
        };
        let Part::Value(kind, raw) = &mut self.part else { return None };
        match (*kind, &mut self.arguments) {
            (Kind::Other, _) => {}
            (Kind::Arguments, Arguments::Told) => cx.segments.argument(c),
            (Kind::Arguments, Arguments::Waiting(text)) => text.push(c),
            // A name, or arguments as the text of an object.
            (Kind::Name | Kind::Arguments, _) => raw.push(c),
        }
        if !ended {
            return Some(());
        }
        match (*kind, &self.arguments) {
            (Kind::Name, _) => {
                let name: String = serde_json::from_str(raw).ok()?;
                if !is_name(&name) || bare && cx.tool(&name).is_none() {
                    return None;
                }
                self.name = Some(name);
                if matches!(self.arguments, Arguments::Waiting(_)) {
                    self.begin(bare, cx)?;
                }
            }
            (Kind::Arguments, Arguments::None) => {
                let text: String = serde_json::from_str(raw).ok()?;
                let object: serde_json::Value = serde_json::from_str(&text).ok()?;
                object.as_object()?;
                self.arguments = Arguments::Waiting(text);
                if self.name.is_some() {
                    self.begin(bare, cx)?;
                }
            }
            _ => {}
        }
        self.part = Part::Between;
        Some(())
    }

    /// Tells the call and the arguments so far; `None` without a name.
    fn begin(&mut self, bare: bool, cx: &mut Context<'_>) -> Option<()> {
        if self.begun {
            return Some(());
        }
        let name = self.name.clone().filter(|n| !bare || cx.tool(n).is_some())?;
        self.begun = true;
        cx.begin(name);
        if let Arguments::Waiting(text) = &self.arguments {
            cx.segments.arguments(text);
            self.arguments = Arguments::Told;
        }
        Some(())
    }
}
