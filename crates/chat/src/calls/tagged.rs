//! Calls with tags around the name and around every argument. The values stand there without quotes;
//! the schema says which of them are strings, and strings become JSON as they come.

use super::{Context, Flow, HOLD, NAME, is_name};
use crate::json;
use crate::mark::{Mark, Match, Search};
use crate::syntax::Tagged;
use crate::tool::{Signature, Types, argument_json};

#[derive(Debug)]
pub(crate) struct Calls {
    syntax: Tagged,
    /// Calls that are complete.
    done: usize,
    /// The tool that is called.
    tool: Option<Signature>,
    /// Arguments of the call so far.
    arguments: usize,
    place: Place,
}

#[derive(Debug)]
enum Place {
    /// A call is to begin, or the wrap to end.
    Between(Mark),
    Name(String),
    /// An argument is to begin, or the call to end.
    Body(Mark),
    Key(String),
    /// The value of this argument is to begin.
    Ahead(Types, Mark),
    Value(Value),
}

#[derive(Debug)]
struct Value {
    types: Types,
    search: Search,
    /// Nothing has come yet.
    first: bool,
    /// The value so far, if it has to be known as a whole.
    whole: Option<String>,
}

impl Calls {
    pub(crate) fn new(syntax: Tagged, open: &str) -> Self {
        let named = syntax.name.0.is_empty() || open == syntax.name.0;
        let place =
            if named { Place::Name(String::new()) } else { Place::Between(Mark::default()) };
        Self { syntax, done: 0, tool: None, arguments: 0, place }
    }

    /// Whether a segment has been given of the call that is being read, or of the last.
    pub(crate) fn told(&self) -> bool {
        match &self.place {
            Place::Between(_) => self.done > 0,
            Place::Name(_) => false,
            Place::Body(_) | Place::Key(_) | Place::Ahead(..) | Place::Value(_) => true,
        }
    }

    pub(crate) fn push(&mut self, c: char, cx: &mut Context<'_>) -> Flow {
        let syntax = self.syntax;
        match &mut self.place {
            Place::Between(mark) => match mark.push(c, &[syntax.wrap.1, syntax.name.0]) {
                Match::More => {}
                Match::Hit(1) => self.place = Place::Name(String::new()),
                Match::Hit(_) if self.done > 0 => return Flow::Over(0),
                Match::Hit(_) => return Flow::Fault(0),
                Match::Miss if self.done > 0 => return Flow::Over(mark.len()),
                Match::Miss => return Flow::Fault(mark.len()),
            },
            Place::Name(name) => {
                let line = syntax.name.1.is_empty();
                if line && name.is_empty() && c.is_whitespace() {
                    return Flow::More;
                }
                // A line ends with its break, or where a tag begins.
                let tag = line && c == '<';
                if !tag {
                    name.push(c);
                }
                let end =
                    if line { name.strip_suffix('\n') } else { name.strip_suffix(syntax.name.1) };
                match end.or(tag.then_some(&**name)) {
                    Some(whole) if is_name(whole.trim()) => {
                        let whole = whole.trim().to_owned();
                        self.tool = cx.tool(&whole).cloned();
                        self.arguments = 0;
                        self.place = Place::Body(Mark::default());
                        cx.begin(whole);
                        if tag {
                            cx.held.push(c);
                            return self.push(c, cx);
                        }
                    }
                    Some(_) => return Flow::Fault(if tag { 1 } else { 0 }),
                    None if name.len() > NAME => return Flow::Fault(0),
                    None => {}
                }
            }
            Place::Body(mark) => {
                let end = if syntax.end.is_empty() { syntax.wrap.1 } else { syntax.end };
                match mark.push(c, &[syntax.key.0, end]) {
                    Match::More => {}
                    Match::Hit(0) => self.place = Place::Key(String::new()),
                    Match::Hit(_) => {
                        cx.segments.arguments(if self.arguments == 0 { "{}" } else { "}" });
                        cx.end();
                        self.done += 1;
                        self.place = Place::Between(Mark::default());
                        if syntax.end.is_empty() {
                            return Flow::Over(0);
                        }
                    }
                    Match::Miss => return Flow::Fault(mark.len()),
                }
            }
            Place::Key(key) => {
                key.push(c);
                if let Some(key) = key.strip_suffix(syntax.key.1) {
                    let key = key.trim();
                    let types = self.tool.as_ref().map_or(Types::ANY, |tool| tool.types(key));
                    let open = if self.arguments == 0 { "{" } else { ", " };
                    cx.segments.arguments(&format!("{open}{}: ", json::quoted(key)));
                    cx.held.clear();
                    self.arguments += 1;
                    self.place = match syntax.value.0 {
                        "" => Place::Value(Value::new(types, cx)),
                        _ => Place::Ahead(types, Mark::default()),
                    };
                } else if key.len() > NAME {
                    return Flow::Fault(0);
                }
            }
            Place::Ahead(types, mark) => match mark.push(c, &[syntax.value.0]) {
                Match::More => {}
                Match::Hit(_) => {
                    cx.held.clear();
                    self.place = Place::Value(Value::new(*types, cx));
                }
                Match::Miss => return Flow::Fault(mark.len()),
            },
            Place::Value(value) => {
                cx.held.clear();
                if value.push(c, syntax, cx) {
                    value.end(cx);
                    self.place = Place::Body(Mark::default());
                }
            }
        }
        Flow::More
    }

    /// The answer ends here: gives the rest of a value.
    pub(crate) fn cut(&mut self, cx: &mut Context<'_>) {
        if let Place::Value(value) = &mut self.place {
            let tail = value.search.take();
            match &mut value.whole {
                Some(whole) => {
                    // Cut off, it says nothing sure about its type.
                    let text = format!("{whole}{tail}");
                    cx.segments.arguments(&text);
                }
                None => cx.segments.arguments(&json::escaped(&tail)),
            }
        }
    }
}

impl Value {
    fn new(types: Types, cx: &mut Context<'_>) -> Self {
        let string = types.string && !types.other;
        if string {
            cx.segments.arguments("\"");
        }
        let whole = (!string).then(String::new);
        Self { types, search: Search::default(), first: true, whole }
    }

    /// Takes a character; true if the value ends with it.
    fn push(&mut self, c: char, syntax: Tagged, cx: &mut Context<'_>) -> bool {
        if std::mem::take(&mut self.first) && syntax.lines && c == '\n' {
            return false;
        }
        let with_break = format!("\n{}", syntax.value.1);
        let marks = [syntax.value.1, &with_break];
        let marks = if syntax.lines { &marks[..] } else { &marks[..1] };
        let whole = &mut self.whole;
        let hit = self.search.push(c, marks, |c| match whole {
            Some(text) => text.push(c),
            None => cx.segments.arguments(&json::escaped(c.encode_utf8(&mut [0; 4]))),
        });
        // Too long to wait for its end: then it is a string.
        if let Some(text) = self.whole.take_if(|t| t.len() > HOLD) {
            cx.segments.arguments("\"");
            cx.segments.arguments(&json::escaped(&text));
        }
        hit.is_some()
    }

    fn end(&mut self, cx: &mut Context<'_>) {
        match self.whole.take() {
            Some(text) => cx.segments.arguments(&argument_json(&text, self.types)),
            None => cx.segments.arguments("\""),
        }
    }
}
