//! Python's methods on strings, lists and dicts, as templates call them.
//!
//! Those that `minijinja-contrib` has are taken from there; the rest of what a sandboxed Jinja2
//! allows on strings is here. Methods that change a value in place do not exist: transformers
//! forbids them too.

use minijinja::value::{Tuple, Value, from_args};
use minijinja::{Error, ErrorKind, State};
use minijinja_contrib::pycompat::unknown_method_callback;

use crate::budget;

/// Calls `method` of `value`.
pub(crate) fn call(
    state: &mut State,
    value: &Value,
    method: &str,
    args: &[Value],
) -> Result<Value, Error> {
    let Some(text) = value.as_str() else {
        return unknown_method_callback(state, value, method, args);
    };
    let not_found = || Error::new(ErrorKind::InvalidOperation, "substring not found");
    Ok(match method {
        "replace" => {
            let (from, to, count): (&str, &str, Option<i64>) = from_args(args)?;
            budget::replace(value, from, to, count)?.into()
        }
        "join" => {
            let (items,): (&Value,) = from_args(args)?;
            budget::joined(items, text, None)?.into()
        }
        "format" => {
            budget::need_for_format(value, '{')?;
            return unknown_method_callback(state, value, method, args);
        }
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(args)?;
            text.strip_prefix(prefix).unwrap_or(text).into()
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(args)?;
            text.strip_suffix(suffix).unwrap_or(text).into()
        }
        "partition" => {
            let (separator,): (&str,) = from_args(args)?;
            match text.split_once(separator) {
                Some((before, after)) => tuple([before, separator, after]),
                None => tuple([text, "", ""]),
            }
        }
        "rpartition" => {
            let (separator,): (&str,) = from_args(args)?;
            match text.rsplit_once(separator) {
                Some((before, after)) => tuple([before, separator, after]),
                None => tuple(["", "", text]),
            }
        }
        "rsplit" => {
            let (separator, most): (Option<&str>, Option<i64>) = from_args(args)?;
            Value::from(rsplit(text, separator, most))
        }
        "index" | "rindex" => {
            let (part,): (&str,) = from_args(args)?;
            let at = if method == "index" { text.find(part) } else { text.rfind(part) };
            Value::from(text[..at.ok_or_else(not_found)?].chars().count())
        }
        "casefold" => text.to_lowercase().into(),
        "swapcase" => text
            .chars()
            .flat_map(|c| {
                let upper = if c.is_lowercase() { Some(c.to_uppercase()) } else { None };
                let lower = if upper.is_none() { Some(c.to_lowercase()) } else { None };
                upper.into_iter().flatten().chain(lower.into_iter().flatten())
            })
            .collect::<String>()
            .into(),
        "zfill" => {
            let (width,): (usize,) = from_args(args)?;
            let (sign, digits) = match text.strip_prefix(['-', '+']) {
                Some(digits) => text.split_at(text.len() - digits.len()),
                None => ("", text),
            };
            let zeros = width.saturating_sub(text.chars().count());
            budget::charge(zeros)?;
            [sign, &"0".repeat(zeros), digits].concat().into()
        }
        "ljust" | "rjust" | "center" => {
            let (width, fill): (usize, Option<char>) = from_args(args)?;
            let room = width.saturating_sub(text.chars().count());
            let fill = fill.unwrap_or(' ');
            budget::charge(room.saturating_mul(fill.len_utf8()))?;
            let left = match method {
                "ljust" => 0,
                "rjust" => room,
                // What is odd goes to the left if the width is odd too, as in Python.
                _ => room / 2 + (room & width & 1),
            };
            let pad = |n| std::iter::repeat_n(fill, n);
            pad(left).chain(text.chars()).chain(pad(room - left)).collect::<String>().into()
        }
        _ => return unknown_method_callback(state, value, method, args),
    })
}

fn tuple(parts: [&str; 3]) -> Value {
    Value::from(Tuple::from(parts.map(Value::from).to_vec()))
}

/// The parts of `text` at up to `most` separators counted from the end.
fn rsplit(text: &str, separator: Option<&str>, most: Option<i64>) -> Vec<String> {
    let most = usize::try_from(most.unwrap_or(-1)).unwrap_or(usize::MAX);
    let Some(separator) = separator else {
        // White space of any length separates, and none is left at the ends.
        let mut parts = Vec::new();
        let mut rest = text.trim_end();
        while parts.len() < most
            && let Some((at, space)) = rest.char_indices().rfind(|(_, c)| c.is_whitespace())
        {
            parts.push(rest[at + space.len_utf8()..].to_owned());
            rest = rest[..at].trim_end();
        }
        if !rest.is_empty() {
            parts.push(rest.to_owned());
        }
        parts.reverse();
        return parts;
    };
    let mut parts: Vec<String> =
        text.rsplitn(most.saturating_add(1), separator).map(str::to_owned).collect();
    parts.reverse();
    parts
}
