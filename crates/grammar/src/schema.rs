//! A walk over a JSON schema before it is compiled: everything that is not supported is found here,
//! with its place. llguidance would refuse the same, but does not say where.
//!
//! Unknown keywords are annotations, which the standard says to ignore; known ones that are not
//! implemented are errors. A schema is a document from outside: the walk stops at a fixed depth.

use std::fmt::Write;

use serde_json::{Map, Value};

use crate::spec::within;
use crate::{Error, limits, pattern};

/// Keywords of the standard that constrain values and are not implemented.
const UNSUPPORTED: &[&str] = &[
    "$dynamicAnchor",
    "$dynamicRef",
    "$recursiveAnchor",
    "$recursiveRef",
    "contains",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "else",
    "if",
    "maxContains",
    "minContains",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
    "uniqueItems",
    // llguidance's own switches, among them one that ignores what it does not know.
    "x-guidance",
];

const FORMATS: &[&str] = &[
    "date-time",
    "date",
    "time",
    "duration",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "uuid",
    "uri",
    "unknown",
];

const TYPES: &[&str] = &["null", "boolean", "integer", "number", "string", "array", "object"];

/// Checks a schema document.
pub(crate) fn check(root: &Value) -> Result<(), Error> {
    let mut walk = Walk { root, pointer: String::from("#"), values: 0, depth: 0 };
    walk.schema(root)
}

struct Walk<'v> {
    root: &'v Value,
    /// JSON pointer to where the walk is.
    pointer: String,
    /// Values seen.
    values: usize,
    depth: usize,
}

impl<'v> Walk<'v> {
    fn fault<T>(&self, fault: impl Into<String>) -> Result<T, Error> {
        Err(Error::Schema { pointer: self.pointer.clone(), fault: fault.into() })
    }

    /// Goes down one step for the time of `f`.
    fn at(
        &mut self,
        step: impl std::fmt::Display,
        f: impl FnOnce(&mut Self) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let len = self.pointer.len();
        let step = step.to_string().replace('~', "~0").replace('/', "~1");
        // Writing to a string does not fail.
        let _ = write!(self.pointer, "/{step}");
        self.depth += 1;
        if self.depth > limits::SCHEMA_DEPTH {
            return self.fault(format!("more than {} levels deep", limits::SCHEMA_DEPTH));
        }
        self.values += 1;
        within("the schema", self.values, "values", limits::SCHEMA_VALUES)?;
        f(self)?;
        self.depth -= 1;
        self.pointer.truncate(len);
        Ok(())
    }

    fn schema(&mut self, schema: &'v Value) -> Result<(), Error> {
        match schema {
            Value::Bool(_) => Ok(()),
            Value::Object(map) => map
                .iter()
                .try_for_each(|(key, value)| self.at(key, |walk| walk.keyword(key, value, map))),
            _ => self.fault("a schema is an object or a boolean"),
        }
    }

    fn keyword(
        &mut self,
        key: &str,
        value: &'v Value,
        schema: &'v Map<String, Value>,
    ) -> Result<(), Error> {
        match key {
            "properties" | "patternProperties" | "$defs" | "definitions" => {
                let Value::Object(map) = value else {
                    return self.fault("must be an object of schemas");
                };
                if key.ends_with("roperties") {
                    within("an object", map.len(), "properties", limits::PROPERTIES)?;
                }
                map.iter().try_for_each(|(name, value)| {
                    self.at(name, |walk| {
                        if key == "patternProperties" {
                            walk.pattern(name)?;
                        }
                        walk.schema(value)
                    })
                })
            }
            "anyOf" | "oneOf" | "allOf" | "prefixItems" => {
                let Value::Array(list) = value else {
                    return self.fault("must be an array of schemas");
                };
                self.list(list)
            }
            "items" | "additionalProperties" | "additionalItems" => match value {
                Value::Array(list) => self.list(list),
                value => self.schema(value),
            },
            "$ref" => self.reference(value),
            "type" => {
                let known = |v: &Value| v.as_str().is_some_and(|t| TYPES.contains(&t));
                let ok = match value {
                    Value::Array(list) => !list.is_empty() && list.iter().all(known),
                    value => known(value),
                };
                if ok {
                    Ok(())
                } else {
                    self.fault(format!("{value} is no type; types are {}", TYPES.join(", ")))
                }
            }
            "pattern" => match value {
                Value::String(text) => self.pattern(text),
                _ => self.fault("must be a string"),
            },
            "format" if takes_strings(schema) => match value.as_str() {
                Some(name) if FORMATS.contains(&name) => Ok(()),
                _ => self.fault(format!(
                    "format {value} is not supported (supported: {})",
                    FORMATS[..FORMATS.len() - 1].join(", ")
                )),
            },
            // Values, not schemas; they count, and may be deep.
            "const" | "enum" => self.plain(value),
            key if UNSUPPORTED.contains(&key) => {
                self.fault(format!("keyword `{key}` is not supported"))
            }
            _ => self.plain(value),
        }
    }

    fn list(&mut self, list: &'v [Value]) -> Result<(), Error> {
        list.iter().enumerate().try_for_each(|(i, v)| self.at(i, |walk| walk.schema(v)))
    }

    fn plain(&mut self, value: &Value) -> Result<(), Error> {
        match value {
            Value::Array(list) => {
                list.iter().enumerate().try_for_each(|(i, v)| self.at(i, |walk| walk.plain(v)))
            }
            Value::Object(map) => {
                map.iter().try_for_each(|(k, v)| self.at(k, |walk| walk.plain(v)))
            }
            _ => Ok(()),
        }
    }

    fn pattern(&self, text: &str) -> Result<(), Error> {
        pattern::check(text).or_else(|fault| self.fault(format!("regular expression: {fault}")))
    }

    /// References stay within the document and are found as llguidance finds them, step by step.
    fn reference(&self, value: &Value) -> Result<(), Error> {
        let Some(text) = value.as_str() else { return self.fault("must be a string") };
        let mut target = Some(self.root);
        match text.strip_prefix('#') {
            Some("" | "/") => {}
            Some(path) if path.starts_with('/') => {
                for step in path[1..].split('/') {
                    target = match target {
                        Some(Value::Array(list)) => {
                            step.parse().ok().and_then(|i: usize| list.get(i))
                        }
                        Some(value) => value.get(step),
                        None => None,
                    };
                }
            }
            _ => {
                return self
                    .fault(format!("`{text}` leads out of the schema; only `#/…` does not"));
            }
        }
        if target.is_none() { self.fault(format!("`{text}` leads nowhere")) } else { Ok(()) }
    }
}

/// Whether strings are among the types of a schema; a format says nothing about others.
fn takes_strings(schema: &Map<String, Value>) -> bool {
    match schema.get("type") {
        None => true,
        Some(Value::Array(types)) => types.iter().any(|t| t == "string"),
        Some(t) => t == "string",
    }
}
