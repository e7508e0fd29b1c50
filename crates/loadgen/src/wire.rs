//! What goes over the wire: a request's body, and the events of its stream.

use crate::record::{Failure, Reason};
use crate::sse::Event;
use crate::workload::Prompt;
use bytes::Bytes;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};
use std::fmt;

/// Which interface of the server is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// `/v1/completions`: the prompt is the whole text that the model sees.
    Completions,
    /// `/v1/chat/completions`: the server puts the prompt into its chat template.
    Chat,
}

impl Endpoint {
    pub(crate) fn path(self) -> &'static str {
        match self {
            Endpoint::Completions => "/v1/completions",
            Endpoint::Chat => "/v1/chat/completions",
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.path()[1..])
    }
}

/// Fields beyond the common ones that a server takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dialect {
    /// `ignore_eos` and `min_tokens`: answers have the length that is asked for.
    pub exact_length: bool,
    /// `stream_options.include_usage`: the server counts the tokens.
    pub usage: bool,
}

/// How requests are written.
#[derive(Clone, Debug)]
pub(crate) struct Form {
    pub(crate) endpoint: Endpoint,
    pub(crate) model: Option<String>,
    pub(crate) dialect: Dialect,
    /// Fields of the user's, over all others.
    pub(crate) extra: Map<String, Value>,
}

impl Form {
    /// The body of a request for `output` tokens.
    pub(crate) fn body(&self, prompt: &Prompt, output: usize) -> Bytes {
        let mut body = Map::new();
        if let Some(model) = &self.model {
            body.insert("model".into(), json!(model));
        }
        match (self.endpoint, prompt) {
            (_, Prompt::Tokens(_)) => unreachable!("lengths are put into words before"),
            (_, Prompt::Messages(messages)) => body.insert("messages".into(), messages.clone()),
            (Endpoint::Completions, Prompt::Text(text)) => {
                body.insert("prompt".into(), json!(text))
            }
            (Endpoint::Chat, Prompt::Text(text)) => {
                body.insert("messages".into(), json!([{"role": "user", "content": text}]))
            }
        };
        body.insert("max_tokens".into(), json!(output));
        body.insert("temperature".into(), json!(0));
        body.insert("stream".into(), json!(true));
        if self.dialect.usage {
            body.insert("stream_options".into(), json!({"include_usage": true}));
        }
        if self.dialect.exact_length {
            body.insert("ignore_eos".into(), json!(true));
            body.insert("min_tokens".into(), json!(output));
        }
        body.extend(self.extra.clone());
        Value::Object(body).to_string().into()
    }
}

/// Counts of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) input: Option<usize>,
    pub(crate) output: Option<usize>,
    pub(crate) cached: Option<usize>,
}

/// The content of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// A part of the answer.
    Part {
        /// It has a token or more.
        token: bool,
        /// The answer ends with it.
        last: bool,
        usage: Option<Usage>,
    },
    /// Nothing comes any more.
    Done,
}

#[derive(Deserialize)]
struct Chunk {
    #[serde(default)]
    choices: Vec<Choice>,
    usage: Option<Counts>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Choice {
    text: Option<String>,
    delta: Option<Delta>,
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct Delta {
    content: Option<String>,
    /// Thoughts, by the names of several servers.
    reasoning_content: Option<String>,
    reasoning: Option<String>,
    tool_calls: Option<Vec<IgnoredAny>>,
}

#[derive(Deserialize)]
struct Counts {
    prompt_tokens: Option<usize>,
    completion_tokens: Option<usize>,
    prompt_tokens_details: Option<Details>,
}

#[derive(Deserialize)]
struct Details {
    cached_tokens: Option<usize>,
}

impl Choice {
    /// Whether a token has come. The first piece of a chat is its role alone; a completion's token
    /// may have no text of its own, as half a character or a special one.
    fn has_token(&self) -> bool {
        let some = |text: &Option<String>| text.as_ref().is_some_and(|t| !t.is_empty());
        match &self.delta {
            Some(delta) => {
                some(&delta.content)
                    || some(&delta.reasoning_content)
                    || some(&delta.reasoning)
                    || delta.tool_calls.as_ref().is_some_and(|calls| !calls.is_empty())
            }
            None => some(&self.text) || (self.text.is_some() && self.finish_reason.is_none()),
        }
    }
}

/// Reads an event of a stream of completions.
pub(crate) fn read(event: &Event) -> Result<Told, Failure> {
    if event.data.trim() == "[DONE]" {
        return Ok(Told::Done);
    }
    let error = |reason, message| Err(Failure { reason, message });
    if event.kind == "error" {
        return error(Reason::ErrorEvent, words(event.data.as_bytes()));
    }
    let chunk: Chunk = match serde_json::from_str(&event.data) {
        Ok(chunk) => chunk,
        Err(e) => return error(Reason::Malformed, format!("an event is no completion: {e}")),
    };
    if chunk.error.is_some() {
        return error(Reason::ErrorEvent, words(event.data.as_bytes()));
    }
    Ok(Told::Part {
        token: chunk.choices.iter().any(Choice::has_token),
        last: chunk.choices.iter().any(|c| c.finish_reason.is_some()),
        usage: chunk.usage.map(|counts| Usage {
            input: counts.prompt_tokens,
            output: counts.completion_tokens,
            cached: counts.prompt_tokens_details.and_then(|d| d.cached_tokens),
        }),
    })
}

/// What a server says of a fault, in whatever form, on one line of bounded length.
pub(crate) fn words(body: &[u8]) -> String {
    let value: Option<Value> = serde_json::from_slice(body).ok();
    let at = |path: &str| value.as_ref()?.pointer(path)?.as_str().map(str::to_owned);
    let text = ["/error/message", "/error", "/message", "/detail"].iter().find_map(|path| at(path));
    let text = text.unwrap_or_else(|| String::from_utf8_lossy(body).into_owned());
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(200) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(data: &str) -> Result<Told, Failure> {
        read(&Event { kind: String::new(), data: data.to_owned() })
    }

    fn part(token: bool, last: bool) -> Result<Told, Failure> {
        Ok(Told::Part { token, last, usage: None })
    }

    #[test]
    fn pieces_of_answers() {
        assert_eq!(
            told(r#"{"choices":[{"text":" a","finish_reason":null}],"usage":null}"#),
            part(true, false)
        );
        assert_eq!(told(r#"{"choices":[{"text":"","finish_reason":null}]}"#), part(true, false));
        assert_eq!(told(r#"{"choices":[{"text":"","finish_reason":"stop"}]}"#), part(false, true));
        let delta = |delta: &str| told(&format!(r#"{{"choices":[{{"delta":{delta}}}]}}"#));
        assert_eq!(delta(r#"{"role":"assistant","content":""}"#), part(false, false));
        assert_eq!(delta(r#"{"role":"assistant","content":null}"#), part(false, false));
        assert_eq!(delta(r#"{"content":"x"}"#), part(true, false));
        assert_eq!(delta(r#"{"reasoning_content":"x"}"#), part(true, false));
        assert_eq!(delta(r#"{"tool_calls":[{"index":0}]}"#), part(true, false));
        assert_eq!(told("[DONE]"), Ok(Told::Done));
        let usage = r#"{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":7,
            "prompt_tokens_details":{"cached_tokens":2}}}"#;
        let counts = Usage { input: Some(5), output: Some(7), cached: Some(2) };
        assert_eq!(told(usage), Ok(Told::Part { token: false, last: false, usage: Some(counts) }));
    }

    #[test]
    fn errors_in_the_stream() {
        let e = told(r#"{"error":{"message":"out of\npages","code":500}}"#).unwrap_err();
        assert_eq!((e.reason, e.message.as_str()), (Reason::ErrorEvent, "out of pages"));
        let event = Event { kind: "error".into(), data: "went wrong".into() };
        assert_eq!(read(&event).unwrap_err().message, "went wrong");
        assert_eq!(told("{").unwrap_err().reason, Reason::Malformed);
        assert_eq!(told(r#"{"choices":3}"#).unwrap_err().reason, Reason::Malformed);
    }

    #[test]
    fn words_of_faults() {
        assert_eq!(words(br#"{"error":"plain"}"#), "plain");
        assert_eq!(words(br#"{"detail":"Not Found"}"#), "Not Found");
        assert_eq!(words(b"<h1>Bad\n Gateway</h1>"), "<h1>Bad Gateway</h1>");
        let long = words("ä".repeat(500).as_bytes());
        assert_eq!(long.chars().count(), 201);
    }

    #[test]
    fn bodies_have_what_the_server_knows() {
        let mut form = Form {
            endpoint: Endpoint::Completions,
            model: Some("m".into()),
            dialect: Dialect { exact_length: true, usage: true },
            extra: Map::new(),
        };
        let body = |form: &Form| -> Value {
            serde_json::from_slice(&form.body(&Prompt::Text("hi".into()), 9)).unwrap()
        };
        assert_eq!(
            body(&form),
            json!({"model": "m", "prompt": "hi", "max_tokens": 9, "temperature": 0, "stream": true,
                "stream_options": {"include_usage": true}, "ignore_eos": true, "min_tokens": 9})
        );
        form.endpoint = Endpoint::Chat;
        form.dialect = Dialect { exact_length: false, usage: false };
        form.model = None;
        form.extra.insert("temperature".into(), json!(0.5));
        assert_eq!(
            body(&form),
            json!({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 9,
                "temperature": 0.5, "stream": true})
        );
    }
}
