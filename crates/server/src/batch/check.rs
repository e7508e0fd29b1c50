//! Whether the lines of a file can be a batch.

use super::lines::{Line, Lines, Raw};
use super::object::BatchError;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use std::collections::HashSet;
use std::io;
use std::path::Path;

/// Faults that are told; a file may have a million.
const MOST_ERRORS: usize = 20;

/// Characters of an id.
const LONGEST_ID: usize = 512;

/// What the lines are, or what is wrong with them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Checked {
    /// Lines that are requests.
    pub(super) total: u64,
    /// The model of the first one.
    pub(super) model: Option<String>,
    pub(super) errors: Vec<BatchError>,
}

/// How long and how many lines may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct LineLimits {
    pub(super) bytes: usize,
    pub(super) lines: u64,
}

/// Checks each line: a request of the endpoint with an id of its own.
///
/// # Errors
/// When the file cannot be read.
pub(super) fn check(path: &Path, endpoint: &str, limits: LineLimits) -> io::Result<Checked> {
    let mut lines = Lines::open(path, limits.bytes)?;
    let mut found = Checked::default();
    // Of ids their hashes, so that memory is bounded by the number of lines.
    let mut ids = HashSet::new();
    while let Some(raw) = lines.next()? {
        found.total += 1;
        if found.total > limits.lines {
            let message = format!("the file has more than {} requests", limits.lines);
            found.errors.push(fault("too_many_requests", message, None, None));
            break;
        }
        match line(&raw, endpoint, limits.bytes) {
            Ok(line) => {
                let hash = blake3::hash(line.custom_id.as_bytes());
                let (short, _) = hash.as_bytes().split_at(16);
                if !ids.insert(<[u8; 16]>::try_from(short).unwrap_or_default()) {
                    let message = format!("custom_id {:?} is there twice", line.custom_id);
                    let (id, at) = ("custom_id".to_owned(), lines.number);
                    found.errors.push(fault("duplicate_custom_id", message, Some(id), Some(at)));
                }
                if found.total == 1 {
                    let model = line.head().model;
                    found.model = model.and_then(|text| serde_json::from_str(text.get()).ok());
                }
            }
            Err((code, message, param)) => {
                let param = param.map(str::to_owned);
                found.errors.push(fault(code, message, param, Some(lines.number)));
            }
        }
        if found.errors.len() >= MOST_ERRORS {
            break;
        }
    }
    if found.total == 0 {
        let message = "the file has no requests".to_owned();
        found.errors.push(fault("empty_file", message, None, None));
    }
    Ok(found)
}

fn fault(code: &str, message: String, param: Option<String>, line: Option<u64>) -> BatchError {
    BatchError { code: code.to_owned(), message, param, line }
}

type Wrong = (&'static str, String, Option<&'static str>);

/// The parts of a line as they stand there: values would be many times as large.
#[derive(Deserialize)]
struct Parts<'a> {
    #[serde(borrow)]
    custom_id: Option<&'a RawValue>,
    #[serde(borrow)]
    method: Option<&'a RawValue>,
    #[serde(borrow)]
    url: Option<&'a RawValue>,
    #[serde(borrow)]
    body: Option<&'a RawValue>,
}

/// A request of the endpoint.
pub(super) fn line(raw: &Raw, endpoint: &str, most: usize) -> Result<Line, Wrong> {
    let Raw::Text(text) = raw else {
        return Err(("line_too_long", format!("a line may have {most} bytes"), None));
    };
    let broken = |e: serde_json::Error| {
        ("invalid_json_line", format!("the line is not valid JSON: {e}"), None)
    };
    if text.trim_ascii_start().first() != Some(&b'{') {
        serde_json::from_slice::<IgnoredAny>(text).map_err(broken)?;
        let message = "a line must be a JSON object".to_owned();
        return Err(("invalid_json_line", message, None));
    }
    let parts: Parts<'_> = serde_json::from_slice(text).map_err(broken)?;
    let given = |part: Option<&'_ RawValue>, field: &'static str| {
        let missing = || ("missing_required_parameter", format!("{field} is missing"), Some(field));
        part.map(ToOwned::to_owned).ok_or_else(missing)
    };
    let string = |part: Option<&'_ RawValue>, field: &'static str| {
        serde_json::from_str::<String>(given(part, field)?.get()).map_err(|e| {
            let message = format!("custom_id, method and url must be strings: {e}");
            ("invalid_type", message, None)
        })
    };
    for (field, part) in [
        ("custom_id", parts.custom_id),
        ("method", parts.method),
        ("url", parts.url),
        ("body", parts.body),
    ] {
        given(part, field)?;
    }
    let line = Line {
        custom_id: string(parts.custom_id, "custom_id")?,
        method: string(parts.method, "method")?,
        url: string(parts.url, "url")?,
        body: given(parts.body, "body")?,
    };
    let length = line.custom_id.chars().count();
    if !(1..=LONGEST_ID).contains(&length) {
        let message = format!("custom_id must have from 1 to {LONGEST_ID} characters");
        return Err(("invalid_custom_id", message, Some("custom_id")));
    }
    if line.method != "POST" {
        let message = format!("method is {:?}: it must be POST", line.method);
        return Err(("invalid_method", message, Some("method")));
    }
    if line.url != endpoint {
        let message = format!("url is {:?}, and the batch is for {endpoint}", line.url);
        return Err(("invalid_url", message, Some("url")));
    }
    if !line.body.get().starts_with('{') {
        let message = "body must be a JSON object".to_owned();
        return Err(("invalid_type", message, Some("body")));
    }
    if line.head().stream.is_some_and(|stream| stream.get() == "true") {
        let message = "an answer of a batch is not streamed".to_owned();
        return Err(("unsupported_parameter", message, Some("body.stream")));
    }
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value as Json, json};

    fn checked(text: &str, lines: u64) -> Checked {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("in");
        std::fs::write(&path, text).unwrap();
        check(&path, "/v1/embeddings", LineLimits { bytes: 200, lines }).unwrap()
    }

    fn request(id: &str) -> Json {
        json!({"custom_id": id, "method": "POST", "url": "/v1/embeddings", "body": {"model": "m"}})
    }

    #[test]
    fn a_file_of_requests_is_counted() {
        let text = format!("{}\n\n{}\n", request("a"), request("b"));
        let expected = Checked { total: 2, model: Some("m".into()), errors: Vec::new() };
        assert_eq!(checked(&text, 2), expected);
        let many = checked(&text, 1);
        assert_eq!(many.errors[0].code, "too_many_requests");
    }

    #[test]
    fn each_fault_has_its_line_and_word() {
        let with = |field: &str, value: Json| {
            let mut line = request("x");
            line[field] = value;
            line.to_string()
        };
        for (line, code) in [
            ("{".to_owned(), "invalid_json_line"),
            ("[]".to_owned(), "invalid_json_line"),
            (with("custom_id", Json::Null), "missing_required_parameter"),
            (with("custom_id", json!(7)), "invalid_type"),
            (with("custom_id", json!("")), "invalid_custom_id"),
            (with("method", json!("GET")), "invalid_method"),
            (with("url", json!("/v1/completions")), "invalid_url"),
            (with("body", json!([])), "invalid_type"),
            (with("body", json!({"stream": true})), "unsupported_parameter"),
            (with("body", json!({"input": "x".repeat(300)})), "line_too_long"),
            (request("first").to_string(), "duplicate_custom_id"),
        ] {
            let found = checked(&format!("{}\n{line}\n", request("first")), 9);
            assert_eq!(found.errors.len(), 1, "{line}: {found:?}");
            assert_eq!((&*found.errors[0].code, found.errors[0].line), (code, Some(2)), "{line}");
        }
        assert_eq!(checked("\n", 9).errors[0].code, "empty_file");
        assert_eq!(checked(&"{\n".repeat(1000), 9999).errors.len(), MOST_ERRORS);
    }
}
