//! Calls in a family's own writing, as its parser reads them: for prompts of templates that know no tools.

use std::io;

use serde_json::Value;
use serde_json::ser::{Formatter, Serializer};

use crate::json::quoted;
use crate::syntax::{Calls, Decoration, Json, Named, Syntax, Tagged};

/// A call: the name, and the arguments as the text that the model wrote, which may be no JSON.
pub(crate) type Call<'a> = (&'a str, &'a str);

/// The text of calls; empty if the family has none.
pub(crate) fn calls(syntax: &Syntax, calls: &[Call<'_>]) -> String {
    match syntax.calls {
        Calls::None => String::new(),
        Calls::Json(s) => json(s, calls),
        Calls::Named(s) => named(s, calls),
        Calls::Tagged(s) => tagged(s, calls),
        Calls::Harmony => {
            let call = |(name, arguments): &Call<'_>| {
                format!(
                    "<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>{arguments}"
                )
            };
            calls.iter().map(call).collect::<Vec<_>>().join("<|call|><|start|>assistant")
        }
    }
}

fn json(s: Json, calls: &[Call<'_>]) -> String {
    let object = |(name, arguments): &Call<'_>| {
        format!(
            "{{{}: {}, {}: {arguments}}}",
            quoted(s.name[0]),
            quoted(name),
            quoted(s.arguments[0])
        )
    };
    let (open, close) = match s.open.first() {
        Some(open) if !s.bare => (format!("{open}{}", s.inner), format!("{}{}", s.inner, s.close)),
        _ => (String::new(), String::new()),
    };
    let objects = calls.iter().map(object);
    if s.writes_list {
        let list: Vec<String> = objects.collect();
        return format!("{open}[{}]{close}", list.join(s.between));
    }
    let each: Vec<String> = objects.map(|object| format!("{open}{object}{close}")).collect();
    each.join(s.between)
}

fn named(s: Named, calls: &[Call<'_>]) -> String {
    let (before, after) = s.fence.unwrap_or_default();
    let call = |(at, (name, arguments)): (usize, &Call<'_>)| {
        let name = match s.decoration {
            Decoration::Numbered => format!("functions.{name}:{at}"),
            Decoration::None | Decoration::Id => (*name).to_owned(),
        };
        format!("{}{}{name}{}{before}{arguments}{after}{}", s.open, s.before, s.name_end, s.close)
    };
    let calls: Vec<String> = calls.iter().enumerate().map(call).collect();
    let (open, close) = s.section.unwrap_or_default();
    format!("{open}{}{close}", calls.join(s.between))
}

fn tagged(s: Tagged, calls: &[Call<'_>]) -> String {
    let call = |(name, arguments): &Call<'_>| {
        let line = if s.name.0.is_empty() || s.shared { "" } else { "\n" };
        let mut text = format!("{line}{}{name}{}\n", s.name.0, s.name.1);
        let edge = if s.lines { "\n" } else { "" };
        let parsed: Value = serde_json::from_str(arguments).unwrap_or(Value::Null);
        for (key, value) in parsed.as_object().into_iter().flatten() {
            let value = match value {
                Value::String(text) => text.clone(),
                value => spaced(value),
            };
            let before =
                if s.value.0.is_empty() { String::new() } else { format!("\n{}", s.value.0) };
            text.push_str(&format!(
                "{}{key}{}{before}{edge}{value}{edge}{}\n",
                s.key.0, s.key.1, s.value.1
            ));
        }
        if !s.end.is_empty() {
            text.push_str(&format!("{}\n", s.end));
        }
        text
    };
    let (open, close) = s.wrap;
    if s.shared {
        return format!("{open}\n{}{close}", calls.iter().map(call).collect::<String>());
    }
    let each: Vec<String> = calls.iter().map(|c| format!("{open}{}{close}", call(c))).collect();
    each.join("\n")
}

/// JSON with a space behind colons and commas, as models are taught to read and write it.
pub(crate) fn spaced(value: &Value) -> String {
    let mut bytes = Vec::new();
    let mut serializer = Serializer::with_formatter(&mut bytes, Spaced);
    // A value's keys are strings, and a vector takes all bytes.
    let _ = serde::Serialize::serialize(value, &mut serializer);
    String::from_utf8(bytes).unwrap_or_default()
}

struct Spaced;

impl Formatter for Spaced {
    fn begin_array_value<W: ?Sized + io::Write>(
        &mut self,
        w: &mut W,
        first: bool,
    ) -> io::Result<()> {
        if first { Ok(()) } else { w.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + io::Write>(
        &mut self,
        w: &mut W,
        first: bool,
    ) -> io::Result<()> {
        if first { Ok(()) } else { w.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, w: &mut W) -> io::Result<()> {
        w.write_all(b": ")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::Family;
    use crate::testing::{format, read};

    #[test]
    fn what_is_written_is_read_as_the_same_calls() {
        let arguments = spaced(&json!({"city": "Bern, \"old\"", "days": 3}));
        for family in Family::all().filter(|f| *f != Family::Plain) {
            let syntax = format(family).syntax;
            let text = calls(&syntax, &[("weather", &arguments), ("clock", "{}")]);
            let expected = format!("weather{arguments} clock{{}}");
            assert_eq!(read(family, &text), expected, "{family}: {text}");
        }
    }
}
