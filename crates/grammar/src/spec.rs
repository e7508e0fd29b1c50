//! What an answer is to look like, and its translation into llguidance's grammars.

use std::borrow::Cow;

use llguidance::api::TopLevelGrammar;
use serde_json::{Value, json};

use crate::limits;
use crate::{Error, gbnf, pattern, schema};

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
    /// Text that this grammar of llama.cpp's derives from its rule `root`.
    Gbnf(String),
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
            Self::Gbnf(text) => gbnf::translate(text)?.grammar(),
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
            Self::Gbnf(_) => Error::Gbnf { line: 1, fault: message },
        }
    }
}

/// The schema with bounded white space, and without properties that it does not name: unbounded, both are what
/// small models end in.
pub(crate) fn with_options(schema: &Value) -> Cow<'_, Value> {
    if !schema.is_object() {
        return Cow::Borrowed(schema);
    }
    let mut schema = schema.clone();
    // What is a part of several together may have what the others name.
    let text = schema.to_string();
    close(&mut schema, !text.contains("\"allOf\""));
    let space = format!(r"\x20|\x0D?\x0A{{1,2}}[\x20\x09]{{0,{}}}", limits::JSON_SPACE);
    if let Value::Object(map) = &mut schema {
        map.insert("x-guidance".into(), json!({ "whitespace_pattern": space }));
    }
    Cow::Owned(schema)
}

/// Closes objects that name their properties and say nothing of others. `definitions` are closed if `all`.
fn close(schema: &mut Value, all: bool) {
    let Value::Object(map) = schema else { return };
    const SPEAK: [&str; 7] = [
        "additionalProperties",
        "patternProperties",
        "$ref",
        "allOf",
        "anyOf",
        "oneOf",
        "minProperties",
    ];
    let names = map.get("properties").and_then(Value::as_object).is_some_and(|p| !p.is_empty());
    if names && !SPEAK.iter().any(|key| map.contains_key(*key)) {
        // One that must be there without a schema is as open as the whole was.
        let known = |key: &Value| map["properties"].get(key.as_str().unwrap_or_default()).is_some();
        let required = map.get("required").and_then(Value::as_array);
        if required.is_none_or(|keys| keys.iter().all(known)) {
            map.insert("additionalProperties".into(), false.into());
        }
    }
    for (key, value) in map.iter_mut() {
        match (key.as_str(), value) {
            ("properties" | "patternProperties", Value::Object(of)) => {
                of.values_mut().for_each(|of| close(of, all));
            }
            ("$defs" | "definitions", Value::Object(of)) if all => {
                of.values_mut().for_each(|of| close(of, all));
            }
            ("anyOf" | "oneOf" | "prefixItems" | "items", Value::Array(of)) => {
                of.iter_mut().for_each(|of| close(of, all));
            }
            ("items" | "additionalProperties", of) => close(of, all),
            _ => {}
        }
    }
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
