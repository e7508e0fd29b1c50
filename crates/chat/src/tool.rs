//! Tools, as far as reading and writing calls needs them.

use serde_json::{Map, Value};
use std::collections::HashMap;

/// A function that the model may call.
#[derive(Debug, Clone, PartialEq)]
pub struct Tool {
    /// Its name.
    pub name: String,
    /// JSON schema of its arguments, an object; null for a tool without any.
    pub parameters: Value,
}

/// The part of a [`Tool`] that reading an answer needs: a schema is many times as large as its text.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Signature {
    pub(crate) name: Box<str>,
    /// Types of the arguments whose schemas exclude some.
    types: HashMap<Box<str>, Types>,
}

impl Signature {
    pub(crate) fn of(tool: &Tool) -> Self {
        let types = tool.arguments().into_iter().flatten();
        let types = types.map(|(key, schema)| (key.as_str().into(), Types::of(Some(schema))));
        let name = tool.name.as_str().into();
        Self { name, types: types.filter(|(_, types)| *types != Types::ANY).collect() }
    }

    /// Types of an argument.
    pub(crate) fn types(&self, key: &str) -> Types {
        self.types.get(key).copied().unwrap_or(Types::ANY)
    }
}

/// Which call an answer must make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolChoice<'a> {
    /// Some tool.
    Required,
    /// The tool of this name.
    Named(&'a str),
}

/// Types that a value may have by its schema; all when the schema does not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Types {
    pub(crate) string: bool,
    pub(crate) other: bool,
}

impl Tool {
    /// The schemas of all arguments, in order.
    pub(crate) fn arguments(&self) -> Option<&Map<String, Value>> {
        self.parameters.get("properties")?.as_object()
    }

    pub(crate) fn requires(&self, key: &str) -> bool {
        let list = self.parameters.get("required").and_then(Value::as_array);
        list.is_some_and(|l| l.iter().any(|k| k == key))
    }
}

impl Types {
    pub(crate) const ANY: Self = Self { string: true, other: true };

    /// The types that a schema allows.
    pub(crate) fn of(schema: Option<&Value>) -> Self {
        let Some(Value::Object(schema)) = schema else { return Self::ANY };
        let of_value = |v: &Value| Self { string: v.is_string(), other: !v.is_string() };
        let of_name = |v: &Value| Self { string: v == "string", other: v != "string" };
        let all = |types: &mut dyn Iterator<Item = Self>| {
            types.reduce(|a, b| Self { string: a.string | b.string, other: a.other | b.other })
        };
        let types = match (schema.get("type"), schema.get("const"), schema.get("enum")) {
            (Some(Value::Array(list)), ..) => all(&mut list.iter().map(of_name)),
            (Some(name), ..) => Some(of_name(name)),
            (_, Some(value), _) => Some(of_value(value)),
            (_, _, Some(Value::Array(list))) => all(&mut list.iter().map(of_value)),
            _ => ["anyOf", "oneOf"].iter().find_map(|key| {
                let list = schema.get(*key)?.as_array()?;
                all(&mut list.iter().map(|s| Self::of(Some(s))))
            }),
        };
        types.unwrap_or(Self::ANY)
    }
}

/// The JSON text of an argument that a model wrote without quotes: a string unless the schema allows
/// something else and `text` is that.
pub(crate) fn argument_json(text: &str, types: Types) -> String {
    let trimmed = text.trim();
    let value = match trimmed {
        // Templates print Python's words, and models answer with them.
        "True" => Some(Value::Bool(true)),
        "False" => Some(Value::Bool(false)),
        "None" => Some(Value::Null),
        _ => serde_json::from_str(trimmed).ok(),
    };
    match value {
        Some(Value::String(_)) | None => crate::json::quoted(text),
        Some(_) if !types.other => crate::json::quoted(text),
        Some(value) if matches!(trimmed, "True" | "False" | "None") => value.to_string(),
        // As it stands: numbers keep all their digits.
        Some(_) => trimmed.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn types_come_from_whatever_the_schema_says() {
        let of = |v: Value| Types::of(Some(&v));
        let string = Types { string: true, other: false };
        let other = Types { string: false, other: true };
        assert_eq!(of(json!({"type": "string"})), string);
        assert_eq!(of(json!({"type": ["integer", "null"]})), other);
        assert_eq!(of(json!({"type": ["string", "null"]})), Types::ANY);
        assert_eq!(of(json!({"enum": ["a", "b"]})), string);
        assert_eq!(of(json!({"anyOf": [{"type": "number"}, {"type": "boolean"}]})), other);
        assert_eq!(of(json!({"description": "?"})), Types::ANY);
        assert_eq!(Types::of(None), Types::ANY);
    }

    #[test]
    fn arguments_without_quotes_become_what_the_schema_allows() {
        let string = Types { string: true, other: false };
        assert_eq!(argument_json("12", string), "\"12\"");
        assert_eq!(argument_json("12345678901234567890.10", Types::ANY), "12345678901234567890.10");
        assert_eq!(argument_json(" [1, 2]\n", Types::ANY), "[1, 2]");
        assert_eq!(argument_json("True", Types::ANY), "true");
        assert_eq!(argument_json("say \"hi\"", Types::ANY), r#""say \"hi\"""#);
        assert_eq!(argument_json("\"quoted\"", Types::ANY), r#""\"quoted\"""#);
    }
}
