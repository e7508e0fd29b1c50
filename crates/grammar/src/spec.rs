//! What an answer is to look like, and its translation into llguidance's grammars.

use std::borrow::Cow;

use llguidance::api::TopLevelGrammar;
use serde_json::{Value, json};

use crate::limits;
use crate::{Error, pattern, schema};

/// The form that an answer must have, as a whole.
#[derive(Debug, Clone, PartialEq)]
pub enum Spec {
    /// JSON that is valid for this schema. Properties come in the order of the schema.
    JsonSchema(Value),
    /// Any JSON object.
    JsonObject,
    /// Text that this regular expression matches from beginning to end (Rust's syntax; no
    /// look-around, no `\b`).
    Regex(String),
    /// Text that this grammar derives from its rule `start`.
    Lark(String),
    /// One of these texts.
    Choice(Vec<String>),
}

impl Spec {
    /// Checks the specification and translates it.
    pub(crate) fn grammar(&self) -> Result<TopLevelGrammar, Error> {
        match self {
            Self::JsonSchema(value) => {
                schema::check(value)?;
                Ok(TopLevelGrammar::from_json_schema(with_options(value).into_owned()))
            }
            Self::JsonObject => Self::JsonSchema(json!({"type": "object"})).grammar(),
            Self::Regex(text) => {
                pattern::check(text).map_err(Error::Pattern)?;
                Ok(TopLevelGrammar::from_regex(text))
            }
            Self::Lark(text) => {
                within("the lark grammar", text.len(), "bytes", limits::LARK_BYTES)?;
                Ok(TopLevelGrammar::from_lark(text.clone()))
            }
            Self::Choice(texts) => {
                if texts.is_empty() {
                    return Err(Error::NoChoice);
                }
                let size = texts.iter().map(String::len).sum();
                within("the choice", size, "bytes", limits::CHOICE_BYTES)?;
                let escaped: Vec<_> = texts.iter().map(|t| regex_syntax::escape(t)).collect();
                Ok(TopLevelGrammar::from_regex(&format!("(?:{})", escaped.join("|"))))
            }
        }
    }

    /// The error for what llguidance says of this specification.
    pub(crate) fn fault(&self, message: &str) -> Error {
        let message = brief(message);
        if message.contains("too many expressions") || message.contains("too large") {
            return Error::TooCostly(message);
        }
        match self {
            Self::JsonSchema(_) | Self::JsonObject => Error::SchemaCompile(message),
            Self::Regex(_) | Self::Choice(_) => Error::Pattern(message),
            Self::Lark(_) => Error::Lark(message),
        }
    }
}

/// The schema with bounded white space: unbounded, it is what small models end in.
pub(crate) fn with_options(schema: &Value) -> Cow<'_, Value> {
    let Value::Object(map) = schema else { return Cow::Borrowed(schema) };
    let mut map = map.clone();
    let space = format!(r"[\x20\x0A\x0D\x09]{{1,{}}}", limits::JSON_SPACE);
    map.insert("x-guidance".into(), json!({ "whitespace_pattern": space }));
    Cow::Owned(Value::Object(map))
}

/// An error if `size` is over `limit`.
pub(crate) fn within(
    what: &'static str,
    size: usize,
    unit: &'static str,
    limit: usize,
) -> Result<(), Error> {
    if size > limit { Err(Error::TooLarge { what, size, unit, limit }) } else { Ok(()) }
}

/// The first line of a message, without its end if it is long: llguidance quotes the whole grammar.
pub(crate) fn brief(message: &str) -> String {
    const CHARS: usize = 300;
    // A fault in a regular expression has its reason in a line of its own.
    let reason = message.lines().find_map(|l| l.strip_prefix("error: "));
    let line = message.lines().next().unwrap_or_default().trim();
    let mut text: String = line.chars().take(CHARS).collect();
    if text.len() < line.len() {
        text.push('…');
    }
    if let Some(reason) = reason {
        text.push_str(": ");
        text.extend(reason.chars().take(CHARS));
    }
    text
}
