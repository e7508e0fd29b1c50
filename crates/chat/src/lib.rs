//! Separates a model's answer into reasoning, text and tool calls while it streams.
//!
//! Every family of models writes calls and reasoning in its own way. A [`Format`] is recognised from a
//! model's chat template and vocabulary; a [`Parser`] of that format takes the pieces of an answer and
//! gives [`Segment`]s, the same for every family: arguments are always the text of a JSON object.
//! [`tool_grammar`] makes a grammar that forces a well-formed call; [`answer_grammar`] one that puts an
//! answer of a given form where the family writes it. [`normalize_messages`] and [`normalize_tools`] bring
//! a conversation into the shape that a template can render ([`Needs`]); [`normalize_with_images`] does so
//! where images are among the parts. [`tell_tools`] writes tools, calls and results into the text, for
//! templates that know none, and [`named_template`] has templates for models without one.
//!
//! An ill-formed call is text: only white space between the parts of an answer is dropped. A call is
//! reported as soon as its name is certain, so a fault within its arguments leaves it without an end, and
//! the rest is text.
//!
//! Limits: at most 64 KiB are held back while it is undecided whether they are a call. Reasoning is
//! looked for at the beginning of an answer only. Families are named in [`Family`]; calls of other families,
//! those written as Python among them, are text.
#![forbid(unsafe_code)]

mod calls;
mod cut;
mod families;
mod format;
mod harmony;
mod json;
mod lark;
mod mark;
mod messages;
mod named;
mod parser;
mod segment;
mod syntax;
#[cfg(test)]
mod testing;
mod told;
mod tool;
mod write;

pub use cut::complete_object;
pub use format::{Family, Format};
pub use harmony::MARKS as HARMONY_MARKS;
pub use lark::{answer_grammar, tool_grammar};
pub use messages::{
    MessageError, Needs, normalize_arguments, normalize_messages, normalize_tools,
    normalize_with_images,
};
pub use named::{NamedTemplate, named_template, named_templates};
pub use parser::{Parser, ParserOptions};
pub use segment::Segment;
pub use told::tell_tools;
pub use tool::{Tool, ToolChoice};
