//! Reading calls: one machine per way of writing them, fed a character at a time.
//!
//! Text that a machine has read and of which it has given no segment is *held*. As long as no call has begun it is
//! handed out as text when the writing turns out to be no call, so nothing a model says is lost.

mod json;
mod named;
mod tagged;

use crate::segment::Segments;
use crate::syntax::{Calls, Json, Syntax};
use crate::tool::Signature;

/// Bytes that may be held while it is not decided what they are.
pub(crate) const HOLD: usize = 64 << 10;
/// Bytes of a name.
const NAME: usize = 256;

/// What a character did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flow {
    /// It is part of the calls.
    More,
    /// The calls are over; so many bytes at the end of what is held are not part of them.
    Over(usize),
    /// This is no call: what is held is text, and so many bytes at its end are to be read again.
    Fault(usize),
}

/// What machines work on.
pub(crate) struct Context<'p> {
    pub(crate) segments: &'p mut Segments,
    pub(crate) tools: &'p [Signature],
    /// Text that was read, with this character, and of which no segment was given.
    pub(crate) held: &'p mut String,
}

impl Context<'_> {
    fn begin(&mut self, name: String) {
        self.held.clear();
        self.segments.begin(name);
    }

    fn end(&mut self) {
        self.held.clear();
        self.segments.end();
    }

    fn tool(&self, name: &str) -> Option<&Signature> {
        self.tools.iter().find(|t| *t.name == *name)
    }
}

/// Calls that are being read.
#[derive(Debug)]
pub(crate) enum Machine {
    Json(json::Calls),
    Named(named::Calls),
    Tagged(tagged::Calls),
    /// Mistral's two ways begin alike: a list, or a name.
    Either {
        list: Json,
        named: named::Calls,
    },
}

impl Machine {
    /// The machine for calls that `open` opens; empty for calls without a mark.
    pub(crate) fn new(syntax: &Syntax, open: &str) -> Option<Self> {
        match syntax.calls {
            Calls::Json(json) => Some(Self::Json(json::Calls::new(json, open.is_empty()))),
            Calls::Named(named) => {
                let calls = named::Calls::new(named, open);
                match crate::families::mistral::LIST {
                    list if list.open.contains(&open) => Some(Self::Either { list, named: calls }),
                    _ => Some(Self::Named(calls)),
                }
            }
            Calls::Tagged(tagged) => Some(Self::Tagged(tagged::Calls::new(tagged, open))),
            Calls::None | Calls::Harmony => None,
        }
    }

    /// Marks that open calls.
    pub(crate) fn opens(calls: &Calls) -> Vec<&'static str> {
        match calls {
            Calls::None | Calls::Harmony => Vec::new(),
            Calls::Json(json) => json.open.to_vec(),
            Calls::Named(named) => named.section.iter().map(|s| s.0).chain([named.open]).collect(),
            Calls::Tagged(tagged) => {
                [tagged.wrap.0, tagged.name.0].into_iter().filter(|m| !m.is_empty()).collect()
            }
        }
    }

    pub(crate) fn push(&mut self, c: char, cx: &mut Context<'_>) -> Flow {
        match self {
            Self::Json(calls) => calls.push(c, cx),
            Self::Named(calls) => calls.push(c, cx),
            Self::Tagged(calls) => calls.push(c, cx),
            Self::Either { .. } if c.is_whitespace() => Flow::More,
            Self::Either { list, named } => {
                *self = if c == '[' {
                    Self::Json(json::Calls::new(*list, false))
                } else {
                    Self::Named(named.clone())
                };
                self.push(c, cx)
            }
        }
    }

    /// The answer ends here. Tells what is left of an argument; true if what is held besides is only
    /// the beginning of a mark of a call of which a segment was given.
    pub(crate) fn cut(&mut self, cx: &mut Context<'_>) -> bool {
        match self {
            Self::Json(calls) => calls.told(),
            Self::Named(calls) => calls.told(),
            Self::Tagged(calls) => {
                calls.cut(cx);
                calls.told()
            }
            Self::Either { .. } => false,
        }
    }
}

/// Whether a tool can have this name.
fn is_name(name: &str) -> bool {
    let ok = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | ':' | '/');
    !name.is_empty() && name.len() <= NAME && name.chars().all(ok)
}
