//! How families of models write, as data. Each file of `families` holds one value of [`Syntax`].

/// How a family marks reasoning and calls.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Syntax {
    /// What opens and closes reasoning at the beginning of an answer.
    pub(crate) think: Option<(&'static str, &'static str)>,
    /// Marks around the answer proper that are not part of it.
    pub(crate) drop: &'static [&'static str],
    pub(crate) calls: Calls,
}

/// How calls are written.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Calls {
    /// The family has none.
    None,
    /// JSON objects with a name and arguments.
    Json(Json),
    /// A name, a mark, and the arguments as JSON.
    Named(Named),
    /// Tags around the name and around each argument.
    Tagged(Tagged),
    /// Channels (gpt-oss).
    Harmony,
}

/// Calls that are JSON objects.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Json {
    /// Any of these opens a call.
    pub(crate) open: &'static [&'static str],
    /// What closes it; models forget it, so it may be missing.
    pub(crate) close: &'static str,
    /// Keys of the name, the first of them the one that the family is taught.
    pub(crate) name: &'static [&'static str],
    /// Keys of the arguments, likewise.
    pub(crate) arguments: &'static [&'static str],
    /// Whether calls may stand in a list, and whether the family is taught so.
    pub(crate) list: bool,
    pub(crate) writes_list: bool,
    /// Whether a call may begin an answer without any mark; then it must name a tool that is there.
    pub(crate) bare: bool,
    /// White space in the family's own writing: inside the marks, and between two calls.
    pub(crate) inner: &'static str,
    pub(crate) between: &'static str,
}

/// Calls that are a name and JSON.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Named {
    /// Marks around all calls; the opening one may be missing.
    pub(crate) section: Option<(&'static str, &'static str)>,
    /// What opens a call.
    pub(crate) open: &'static str,
    /// What stands before the name.
    pub(crate) before: &'static str,
    /// What ends the name.
    pub(crate) name_end: &'static str,
    /// What stands around the arguments.
    pub(crate) fence: Option<(&'static str, &'static str)>,
    /// What closes a call.
    pub(crate) close: &'static str,
    /// What may be attached to a name and is no part of it.
    pub(crate) decoration: Decoration,
    pub(crate) between: &'static str,
}

/// What is attached to a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decoration {
    None,
    /// `functions.` before and `:` with the call's number behind.
    Numbered,
    /// `[CALL_ID]` and an id behind.
    Id,
}

/// Calls with tags around every part.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tagged {
    /// Around the call.
    pub(crate) wrap: (&'static str, &'static str),
    /// Before the name and behind it; an empty end is the end of the line.
    pub(crate) name: (&'static str, &'static str),
    /// Before an argument's name and behind it.
    pub(crate) key: (&'static str, &'static str),
    /// Before an argument's value (may be empty) and behind it.
    pub(crate) value: (&'static str, &'static str),
    /// Behind the last argument; empty where the wrap's end does that.
    pub(crate) end: &'static str,
    /// Whether one line break at either end of a value belongs to the tags.
    pub(crate) lines: bool,
    /// Whether several calls share one wrap.
    pub(crate) shared: bool,
}

/// `<think>` and its end: most families that reason.
pub(crate) const THINK: (&str, &str) = ("<think>", "</think>");

impl Syntax {
    /// All marks that may be control tokens of a vocabulary.
    pub(crate) fn marks(&self) -> Vec<&'static str> {
        let mut marks: Vec<&str> = self.drop.to_vec();
        marks.extend(self.think.iter().flat_map(|(a, b)| [*a, *b]));
        match &self.calls {
            Calls::None => {}
            Calls::Json(s) => {
                marks.extend(s.open);
                marks.push(s.close);
            }
            Calls::Named(s) => {
                marks.extend(s.section.iter().flat_map(|(a, b)| [*a, *b]));
                marks.extend([s.open, s.before, s.name_end, s.close]);
            }
            Calls::Tagged(s) => {
                marks.extend([s.wrap.0, s.wrap.1, s.name.0, s.key.0, s.key.1]);
                marks.extend([s.value.0, s.value.1, s.end]);
            }
            Calls::Harmony => marks.extend(crate::harmony::MARKS),
        }
        marks.retain(|m| !m.is_empty());
        marks
    }
}
