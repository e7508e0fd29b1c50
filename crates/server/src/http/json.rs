//! JSON of requests: what it costs is counted before it is read, each field is read once, and faults are named.
//!
//! One pass over a body finds its [`Fields`] and makes no values. A type then reads the fields that it has. Two types
//! of one body, such as a chat request and its sampling parameters, make each value once in this way.

use crate::fault::Fault;
use bytes::Bytes;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Error as _, IntoDeserializer, MapAccess, Visitor,
};
use serde::{Deserialize, Deserializer, forward_to_deserialize_any};
use serde_json::error::Category;
use serde_json::value::RawValue;
use std::fmt;

/// Levels of lists and objects within each other, the body's own included: as many as `serde_json` reads.
pub(crate) const DEPTH: usize = 127;

/// The most that a body may become, in terms of its own length.
pub(crate) const TIMES: usize = 8;

/// Bytes that every body may become besides: small ones consist of little but names and brackets.
pub(crate) const SMALL: usize = 16 << 20;

/// Bytes of memory for a byte of text: the body, its value, the message, its copy in the form that the template takes,
/// the template's own, the prompt that is written, and the tokens.
const TEXT: usize = 6;
/// For a list with an element. `serde_json` makes room for four values of 72 bytes.
const LIST: usize = 360;
/// For an object with a field: a table of three, and the template engine's copy.
const OBJECT: usize = 360;
/// For each further element of a list or field of an object: a value, in a list that has grown to twice its length, and
/// the copies.
const ELEMENT: usize = 216;
/// For each field: its name and its place in the table.
const FIELD: usize = 160;

/// What a text becomes when it is read into values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cost {
    bytes: usize,
    lists: usize,
    objects: usize,
    /// Elements and fields but the first of each list and object.
    more: usize,
    fields: usize,
    depth: usize,
}

impl Cost {
    /// Goes through a text once, without memory. Of a text that is no JSON the result says nothing.
    pub(crate) fn of(text: &[u8]) -> Cost {
        let mut cost = Cost { bytes: text.len(), ..Cost::default() };
        let (mut at, mut depth) = (0, 0_usize);
        while let Some(byte) = text.get(at) {
            at += 1;
            match byte {
                b'"' => at += string(&text[at..]),
                b',' => cost.more += 1,
                b':' => cost.fields += 1,
                b'[' | b'{' => {
                    if *byte == b'[' {
                        cost.lists += 1;
                    } else {
                        cost.objects += 1;
                    }
                    depth += 1;
                    cost.depth = cost.depth.max(depth);
                }
                b']' | b'}' => depth = depth.saturating_sub(1),
                _ => {}
            }
        }
        cost
    }

    /// Bytes of memory.
    pub(crate) fn memory(&self) -> usize {
        TEXT * self.bytes
            + LIST * self.lists
            + OBJECT * self.objects
            + ELEMENT * self.more
            + FIELD * self.fields
    }

    /// Refuses a text that is nested too deep, or becomes too much in proportion to its length.
    ///
    /// # Errors
    /// 400 and 413.
    pub(crate) fn check(&self, text: &[u8]) -> Result<(), Fault> {
        if self.depth > DEPTH {
            let message = format!(
                "the body has lists and objects within each other on {} levels: at most {DEPTH} are allowed",
                self.depth
            );
            return Err(Fault::invalid(message).code("too_deep"));
        }
        let (memory, most) = (self.memory(), most(self.bytes));
        if memory <= most {
            return Ok(());
        }
        // A text that is not JSON is refused when it is read.
        let fields = listed(text).unwrap_or_default();
        let cost = |(_, text): &(String, &RawValue)| Cost::of(text.get().as_bytes()).memory();
        let largest = fields.iter().max_by_key(|field| cost(field));
        let values = self.more + self.lists + self.objects;
        let message = format!(
            "the body has some {values} values{}, which take {} MiB of memory: at most {} MiB are allowed for a body \
             of its length; send fewer or longer values",
            largest.map_or_else(String::new, |(name, _)| format!(", most of them in {name}")),
            memory >> 20,
            most >> 20
        );
        let fault = Fault::new(axum::http::StatusCode::PAYLOAD_TOO_LARGE, message);
        Err(Fault { param: largest.map(|(name, _)| name.clone()), ..fault }.code("too_many_values"))
    }
}

/// Bytes of memory that a body of this length may take.
pub(crate) fn most(bytes: usize) -> usize {
    bytes.saturating_mul(TIMES).saturating_add(SMALL)
}

/// Bytes up to the quote that ends a string, and with it.
fn string(text: &[u8]) -> usize {
    let mut at = 0;
    while let Some(next) = text[at.min(text.len())..].iter().position(|b| matches!(b, b'"' | b'\\'))
    {
        at += next + 1;
        if text[at - 1] == b'"' {
            return at;
        }
        // What is escaped.
        at += 1;
    }
    text.len()
}

/// The fields of a body, in its order, each with the text of its value, which shares the body's memory.
#[derive(Debug)]
pub(crate) struct Fields(Vec<(String, Bytes)>);

impl Fields {
    /// Finds the fields. The values are checked, and not made.
    ///
    /// # Errors
    /// 400 with the place for a text that is not JSON, and 400 for another value than an object.
    pub(crate) fn of(body: &Bytes) -> Result<Fields, Fault> {
        let first = body.iter().find(|byte| !byte.is_ascii_whitespace());
        match first {
            None => Err(Fault::invalid("the body is empty: it must be a JSON object")),
            Some(b'{') => {
                let fields = listed(body).map_err(|error| malformed(&error))?.into_iter();
                let own = |text: &RawValue| body.slice_ref(text.get().as_bytes());
                Ok(Fields(fields.map(|(name, text)| (name, own(text))).collect()))
            }
            // A list would do for a struct, field by field.
            Some(_) => Err(match serde_json::from_slice::<serde::de::IgnoredAny>(body) {
                Ok(_) => Fault::invalid("the body must be a JSON object").code("invalid_type"),
                Err(error) => malformed(&error),
            }),
        }
    }

    /// Reads a type from the fields that it has. Others are skipped without a look at their text.
    ///
    /// # Errors
    /// 400 with the field that has the wrong type.
    pub(crate) fn read<T: DeserializeOwned>(&self) -> Result<T, Fault> {
        serde_path_to_error::deserialize(self).map_err(named)
    }
}

impl<'de> Deserializer<'de> for &'de Fields {
    type Error = serde_json::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        visitor.visit_map(Walk { rest: self.0.iter(), names: None, text: None })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        names: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        visitor.visit_map(Walk { rest: self.0.iter(), names: Some(names), text: None })
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

/// A walk over all fields, or over those of some names.
struct Walk<'de> {
    rest: std::slice::Iter<'de, (String, Bytes)>,
    names: Option<&'static [&'static str]>,
    /// The value of the name that was given last.
    text: Option<&'de Bytes>,
}

impl<'de> MapAccess<'de> for Walk<'de> {
    type Error = serde_json::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Self::Error> {
        let names = self.names;
        let has = |name: &str| names.is_none_or(|names| names.contains(&name));
        let Some((name, text)) = self.rest.find(|(name, _)| has(name)) else {
            return Ok(None);
        };
        self.text = Some(text);
        seed.deserialize(name.as_str().into_deserializer()).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(
        &mut self,
        seed: V,
    ) -> Result<V::Value, Self::Error> {
        let text = self.text.take().ok_or_else(|| Self::Error::custom("a value without a name"))?;
        seed.deserialize(&mut serde_json::Deserializer::from_slice(text))
    }
}

/// The fields of an object with the texts of their values. It makes no values.
fn listed(text: &[u8]) -> Result<Vec<(String, &RawValue)>, serde_json::Error> {
    struct Listed<'a>(Vec<(String, &'a RawValue)>);
    struct All;

    impl<'de> Visitor<'de> for All {
        type Value = Listed<'de>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Listed<'de>, A::Error> {
            let mut fields = Vec::new();
            while let Some(field) = map.next_entry()? {
                fields.push(field);
            }
            Ok(Listed(fields))
        }
    }

    impl<'de> Deserialize<'de> for Listed<'de> {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Listed<'de>, D::Error> {
            deserializer.deserialize_map(All)
        }
    }

    serde_json::from_slice::<Listed<'_>>(text).map(|listed| listed.0)
}

/// Reads the JSON of a caller in this process as two types, each with the fields that it has.
///
/// # Errors
/// As of [`Fields::of`] and [`Fields::read`].
pub(crate) fn pair<A: DeserializeOwned, B: DeserializeOwned>(text: &[u8]) -> Result<(A, B), Fault> {
    let fields = Fields::of(&Bytes::copy_from_slice(text))?;
    Ok((fields.read()?, fields.read()?))
}

/// The value of a text that stands at `at` in a body.
///
/// # Errors
/// 400 for what cannot be a value, such as half of a character.
pub(crate) fn value<T: DeserializeOwned>(text: &RawValue, at: &str) -> Result<T, Fault> {
    serde_json::from_str(text.get()).map_err(|error| {
        let text = error.to_string();
        let message = text.rsplit_once(" at line ").map_or(text.as_str(), |(message, _)| message);
        Fault::field(at, format!("{at}: {message}")).code("invalid_json")
    })
}

/// The same value without white space around its parts.
pub(crate) fn compact(value: &RawValue) -> Box<RawValue> {
    let (mut rest, mut text) = (value.get(), String::with_capacity(value.get().len()));
    while let Some(at) = rest.find(|c: char| c == '"' || c.is_ascii_whitespace()) {
        let end = if rest.as_bytes()[at] == b'"' {
            at + 1 + string(&rest.as_bytes()[at + 1..])
        } else {
            at
        };
        text.push_str(&rest[..end]);
        rest = rest[end..].trim_ascii_start();
    }
    text.push_str(rest);
    RawValue::from_string(text).unwrap_or_else(|_| value.to_owned())
}

/// The fault of a field.
fn named(error: serde_path_to_error::Error<serde_json::Error>) -> Fault {
    let path = error.path().to_string();
    let inner = error.into_inner();
    // Where it stands in the field's text says less than the field's name.
    let text = inner.to_string();
    let message = text.rsplit_once(" at line ").map_or(text.as_str(), |(message, _)| message);
    if inner.classify() != Category::Data {
        let message = format!("the body is not valid JSON: {path}: {message}");
        return Fault::invalid(message).code("invalid_json");
    }
    let missing = message.strip_prefix("missing field `").and_then(|m| m.strip_suffix('`'));
    let twice = message.strip_prefix("duplicate field `").and_then(|m| m.strip_suffix('`'));
    if let Some(field) = twice {
        let field = if path == "." { field.to_owned() } else { format!("{path}.{field}") };
        return Fault::field(field.as_str(), format!("{field} is there twice"))
            .code("invalid_json");
    }
    match (path.as_str(), missing) {
        (".", Some(field)) => Fault::field(field, format!("{field} is missing")),
        (path, Some(field)) => {
            Fault::field(format!("{path}.{field}"), format!("{path}.{field} is missing"))
        }
        (path, None) => Fault::field(path, format!("{path}: {message}")).code("invalid_type"),
    }
}

/// The fault of a text that is no JSON.
pub(super) fn malformed(error: &serde_json::Error) -> Fault {
    Fault::invalid(format!("the body is not valid JSON: {error}")).code("invalid_json")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_and_what_strings_say_is_not() {
        let cost = Cost::of(br#"{"a": [1, {"b": "[{,:\"}"}, []], "c\\": null}"#);
        let counts = (cost.lists, cost.objects, cost.more, cost.fields, cost.depth);
        assert_eq!(counts, (2, 2, 3, 3, 3));
        for broken in ["\"", "\"\\", "[", "]", "{\"a", "\\\"", ""] {
            assert_eq!(Cost::of(broken.as_bytes()).bytes, broken.len());
        }
    }

    #[test]
    fn what_becomes_too_much_is_refused_by_the_field_that_has_most_of_it() {
        let check = |text: &str| Cost::of(text.as_bytes()).check(text.as_bytes());
        let wide = format!("{{\"a\": [1], \"b\": [{{\"a\":0}}{}]}}", ",{\"a\":0}".repeat(100_000));
        let fault = check(&wide).unwrap_err();
        assert_eq!((fault.status.as_u16(), fault.param.as_deref()), (413, Some("b")));
        let text = format!("{{\"a\": \"{}\"}}", "x".repeat(8 << 20));
        assert!(check(&text).is_ok());
        let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert!(check(&deep(DEPTH)).is_ok());
        assert_eq!(check(&deep(DEPTH + 1)).unwrap_err().code, Some("too_deep"));
        // `serde_json` has the same limit.
        assert!(serde_json::from_str::<serde_json::Value>(&deep(DEPTH)).is_ok());
        assert!(serde_json::from_str::<serde_json::Value>(&deep(DEPTH + 1)).is_err());
    }

    #[test]
    fn values_are_written_on_one_line() {
        let value: Box<RawValue> = serde_json::from_str(
            "{ \"a b\" :\n [ 1 ,\t\"\\\" \\\\\", \"\u{e4} \" ] , \"c\": null }",
        )
        .unwrap();
        assert_eq!(compact(&value).get(), "{\"a b\":[1,\"\\\" \\\\\",\"\u{e4} \"],\"c\":null}");
    }

    #[derive(Debug, Deserialize)]
    struct A {
        a: u32,
    }

    #[derive(Debug, Deserialize)]
    struct B {
        b: Vec<String>,
    }

    fn read<T: DeserializeOwned>(text: &str) -> Result<T, Fault> {
        Fields::of(&Bytes::copy_from_slice(text.as_bytes()))?.read()
    }

    #[test]
    fn faults_name_the_field() {
        assert_eq!(read::<A>(r#"{"a": 1, "c": {}}"#).unwrap().a, 1);
        let fault = read::<A>(r#"{"a": "x"}"#).unwrap_err();
        assert_eq!((fault.param.as_deref(), fault.code), (Some("a"), Some("invalid_type")));
        assert_eq!(fault.message, "a: invalid type: string \"x\", expected u32");
        let fault = read::<B>(r#"{"a": 1, "b": [1]}"#).unwrap_err();
        assert_eq!(fault.param.as_deref(), Some("b[0]"));
        assert_eq!(read::<A>(r#"{"a": 1, "a": 1}"#).unwrap_err().message, "a is there twice");
        assert_eq!(read::<A>(r#"{"b": []}"#).unwrap_err().message, "a is missing");
        let fault = read::<B>(r#"{"b": ["\ud800"]}"#).unwrap_err();
        assert_eq!((fault.param, fault.code), (None, Some("invalid_json")));
        let message = |text: &str| read::<A>(text).unwrap_err().message;
        let place = "the body is not valid JSON: trailing comma at line 1 column 9";
        assert_eq!(message(r#"{"a": 1,}"#), place);
        assert_eq!(message("[1]"), "the body must be a JSON object");
        assert_eq!(message(" "), "the body is empty: it must be a JSON object");
        assert_eq!(read::<A>("[").unwrap_err().code, Some("invalid_json"));
    }

    #[test]
    fn each_value_is_read_once() {
        // Half of a character is found when a value is made, and not before.
        let body = Bytes::from_static(br#"{"b": ["x"], "a": 1, "c": "\ud800"}"#);
        let fields = Fields::of(&body).unwrap();
        let (a, b): (A, B) = (fields.read().unwrap(), fields.read().unwrap());
        assert_eq!((a.a, b.b), (1, vec!["x".to_owned()]));
        let names: Vec<&str> = fields.0.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["b", "a", "c"]);
        // The texts are parts of the body.
        assert!(fields.0.iter().all(|(_, text)| body.as_ptr_range().contains(&text.as_ptr())));
        let mut walk = Walk { rest: fields.0.iter(), names: Some(&["a"]), text: None };
        assert_eq!(walk.next_key::<String>().unwrap().as_deref(), Some("a"));
        assert_eq!(walk.next_value::<u32>().unwrap(), 1);
        assert_eq!(walk.next_key::<String>().unwrap(), None);
    }

    #[test]
    fn a_field_is_found_by_its_second_name() {
        #[derive(Deserialize)]
        struct Renamed {
            #[serde(rename = "type", alias = "kind")]
            word: String,
        }
        assert_eq!(read::<Renamed>(r#"{"kind": "x"}"#).unwrap().word, "x");
        assert_eq!(read::<Renamed>(r#"{"type": "x"}"#).unwrap().word, "x");
    }
}
