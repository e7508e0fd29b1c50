//! The `tojson` filter of chat templates: Python's `json.dumps`, byte for byte.
//!
//! It differs from Jinja's own filter in that nothing is escaped for HTML, and from most JSON
//! writers in the spaces after `,` and `:`. A model saw its tool definitions in this form, so
//! another one costs accuracy. The escape character of a conversation is written as it is, since it is no part of
//! the text.

use std::cell::Cell;

use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{Error, ErrorKind, State};

use crate::budget;

/// Deepest nesting written, far below what the stack allows.
const MAX_DEPTH: usize = 128;

/// The variable with the escape character. No template can name it.
pub(crate) const ESCAPE: &str = " escape";

/// `value|tojson(indent=…, separators=…, ensure_ascii=…, sort_keys=…)`.
pub(crate) fn tojson(
    state: &State,
    value: &Value,
    indent: Option<Value>,
    kwargs: Kwargs,
) -> Result<Value, Error> {
    let indent = match indent {
        Some(indent) => Some(indent),
        None => kwargs.get::<Option<Value>>("indent")?,
    };
    let indent = indent.filter(|v| !v.is_none()).map(indent_unit).transpose()?;
    let separators = kwargs.get::<Option<Vec<String>>>("separators")?;
    let (item, key) = match separators.as_deref() {
        Some([item, key]) => (item.clone(), key.clone()),
        Some(_) => return Err(invalid("tojson: separators must be a pair of strings")),
        None if indent.is_some() => (",".to_owned(), ": ".to_owned()),
        None => (", ".to_owned(), ": ".to_owned()),
    };
    let style = Style {
        indent,
        item,
        key,
        ascii: kwargs.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false),
        sort: kwargs.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
        escape: state.lookup(ESCAPE).and_then(|escape| escape.as_str()?.chars().next()),
        charged: Cell::new(0),
    };
    kwargs.assert_all_used()?;
    let mut out = String::new();
    style.write(value, 0, &mut out)?;
    Ok(Value::from(out))
}

fn invalid(message: &str) -> Error {
    Error::new(ErrorKind::InvalidOperation, message.to_owned())
}

/// One level of indentation, given as a number of spaces or as the string itself.
fn indent_unit(indent: Value) -> Result<String, Error> {
    match (indent.kind(), indent.as_usize()) {
        (ValueKind::String, _) => Ok(indent.to_string()),
        (_, Some(spaces)) if spaces <= 64 => Ok(" ".repeat(spaces)),
        _ => Err(invalid("tojson: indent must be a string or a number of spaces up to 64")),
    }
}

struct Style {
    indent: Option<String>,
    item: String,
    key: String,
    ascii: bool,
    sort: bool,
    escape: Option<char>,
    /// How much of the output has been charged to the rendering's budget.
    charged: Cell<usize>,
}

impl Style {
    fn write(&self, value: &Value, depth: usize, out: &mut String) -> Result<(), Error> {
        if depth > MAX_DEPTH {
            return Err(invalid("tojson: the value is nested deeper than 128 levels"));
        }
        budget::charge(out.len() - self.charged.replace(out.len()))?;
        match value.kind() {
            ValueKind::None => out.push_str("null"),
            ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number if value.is_integer() => *out += &value.to_string(),
            ValueKind::Number => *out += &float_text(f64::try_from(value.clone())?),
            ValueKind::String => self.write_string(value.as_str().unwrap_or_default(), out),
            ValueKind::Seq | ValueKind::Iterable => {
                out.push('[');
                let mut count = 0;
                for item in value.try_iter()? {
                    self.separate(count, depth + 1, out);
                    self.write(&item, depth + 1, out)?;
                    count += 1;
                }
                self.close(count, depth, ']', out);
            }
            ValueKind::Map => {
                out.push('{');
                let mut keys = (value.try_iter()?)
                    .map(|key| Ok((key_text(&key)?, key)))
                    .collect::<Result<Vec<_>, Error>>()?;
                if self.sort {
                    keys.sort_by(|a, b| a.0.cmp(&b.0));
                }
                for (i, (text, key)) in keys.iter().enumerate() {
                    self.separate(i, depth + 1, out);
                    self.write_string(text, out);
                    out.push_str(&self.key);
                    self.write(&value.get_item(key)?, depth + 1, out)?;
                }
                self.close(keys.len(), depth, '}', out);
            }
            kind => return Err(invalid(&format!("tojson: a value of kind {kind} has no JSON"))),
        }
        Ok(())
    }

    fn separate(&self, index: usize, depth: usize, out: &mut String) {
        if index > 0 {
            out.push_str(&self.item);
        }
        self.new_line(depth, out);
    }

    fn close(&self, count: usize, depth: usize, bracket: char, out: &mut String) {
        if count > 0 {
            self.new_line(depth, out);
        }
        out.push(bracket);
    }

    fn new_line(&self, depth: usize, out: &mut String) {
        if let Some(unit) = &self.indent {
            out.push('\n');
            out.extend(std::iter::repeat_n(unit.as_str(), depth));
        }
    }

    fn write_string(&self, s: &str, out: &mut String) {
        out.push('"');
        for c in s.chars() {
            match c {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\u{8}' => out.push_str("\\b"),
                '\u{c}' => out.push_str("\\f"),
                c if c < ' ' || (self.ascii && c > '~' && Some(c) != self.escape) => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        *out += &format!("\\u{unit:04x}");
                    }
                }
                c => out.push(c),
            }
        }
        out.push('"');
    }
}

/// A key as JSON has it; only scalars can be one.
fn key_text(key: &Value) -> Result<String, Error> {
    match key.kind() {
        ValueKind::String => Ok(key.to_string()),
        ValueKind::Number if key.is_integer() => Ok(key.to_string()),
        ValueKind::Number => Ok(float_text(f64::try_from(key.clone())?)),
        ValueKind::Bool => Ok(if key.is_true() { "true" } else { "false" }.to_owned()),
        ValueKind::None => Ok("null".to_owned()),
        kind => Err(invalid(&format!("tojson: a key cannot be of kind {kind}"))),
    }
}

/// A float as `json.dumps` writes it.
fn float_text(float: f64) -> String {
    match float {
        f if f.is_nan() => "NaN".to_owned(),
        f if f.is_infinite() => python_float(f).replace("inf", "Infinity"),
        f => python_float(f),
    }
}

/// The shortest digits that give the number back, in Python's choice between plain and scientific.
pub(crate) fn python_float(float: f64) -> String {
    if !float.is_finite() {
        return float.to_string().to_lowercase();
    }
    let scientific = format!("{float:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        let plain = float.to_string();
        return if plain.contains('.') { plain } else { plain + ".0" };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_as_python_writes_them() {
        for (float, text) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (0.1, "0.1"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1.5e-7, "1.5e-07"),
            (123456789012345.6, "123456789012345.6"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (-1.25e100, "-1.25e+100"),
            (1e22, "1e+22"),
        ] {
            assert_eq!(python_float(float), text);
        }
    }
}
