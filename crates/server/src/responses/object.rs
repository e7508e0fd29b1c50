//! The response as an object: what was asked for, and what came of it.

use crate::normal::Finish;
use crate::stamp;
use serde_json::value::RawValue;
use serde_json::{Map, Value as Json, json};
use std::sync::Arc;

/// All of a response but its output.
#[derive(Clone, Debug)]
pub(super) struct Head {
    /// What its id and those of its items have in common.
    pub(super) key: String,
    pub(super) created: u64,
    pub(super) model: String,
    /// The fields of the request that a response repeats: the text of an object.
    pub(super) echo: Arc<str>,
}

/// How far it is, or how it ended.
#[derive(Clone, Copy, Debug)]
pub(super) enum Status<'a> {
    InProgress,
    Completed(&'a Finish),
    Incomplete(&'a Finish),
    /// A code for programs, and the words.
    Failed(&'a str, &'a str),
}

impl Head {
    pub(super) fn id(&self) -> String {
        format!("resp_{}", self.key)
    }

    /// The object.
    pub(super) fn response(&self, status: Status<'_>, output: &[Json]) -> Box<RawValue> {
        let mut object = Map::new();
        object.insert("id".into(), self.id().into());
        object.insert("object".into(), "response".into());
        object.insert("created_at".into(), self.created.into());
        object.insert("model".into(), self.model.as_str().into());
        object.insert("output".into(), output.into());
        object.insert("background".into(), false.into());
        object.insert("service_tier".into(), "default".into());
        let begin = Json::Object(std::mem::take(&mut object)).to_string();
        let (name, usage, error, incomplete) = match status {
            Status::InProgress => ("in_progress", Json::Null, Json::Null, Json::Null),
            Status::Completed(finish) => ("completed", usage(finish), Json::Null, Json::Null),
            Status::Incomplete(finish) => {
                let details = json!({"reason": "max_output_tokens"});
                ("incomplete", usage(finish), Json::Null, details)
            }
            Status::Failed(code, message) => {
                let error = json!({"code": code, "message": message});
                ("failed", Json::Null, error, Json::Null)
            }
        };
        let completed = matches!(status, Status::Completed(_)).then(stamp::now);
        object.insert("status".into(), name.into());
        object.insert("completed_at".into(), completed.into());
        object.insert("usage".into(), usage);
        object.insert("error".into(), error);
        object.insert("incomplete_details".into(), incomplete);
        let end = Json::Object(object).to_string();
        // Three objects that are not empty, as one.
        let parts = [&begin, &*self.echo, &end].map(|text| &text[1..text.len() - 1]);
        let text = format!("{{{}}}", parts.join(","));
        RawValue::from_string(text).unwrap_or_else(|_| RawValue::NULL.to_owned())
    }
}

/// Nothing is written to the cache at a price of its own.
pub(super) fn usage(finish: &Finish) -> Json {
    json!({
        "input_tokens": finish.prompt_tokens,
        "input_tokens_details": {"cached_tokens": finish.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": finish.tokens,
        "output_tokens_details": {"reasoning_tokens": finish.reasoning_tokens},
        "total_tokens": finish.prompt_tokens + finish.tokens,
    })
}
