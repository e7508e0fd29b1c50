//! Transcripts of what goes over the wire, as files: `tests/wire/*.txt`. With `ARCLIGHT_REWRITE=1` they
//! are written anew.
//!
//! The model's bits are the same on every machine, so only ids and times are taken out.

use crate::support::{Direct, Reply, question, tool};
use serde_json::{Value as Json, json};
use std::path::Path;

/// The answer with ids, times and the version replaced.
fn normalized(reply: &Reply) -> String {
    let mut text = format!("{}\n", reply.status);
    for name in ["content-type", "cache-control", "retry-after"] {
        if let Some(value) = reply.headers.get(name) {
            text.push_str(&format!("{name}: {}\n", value.to_str().unwrap()));
        }
    }
    text.push('\n');
    let mut rest = reply.text.as_str();
    // Of numbers, the first digit stays: they differ in those behind it.
    let marks = [
        "\"id\":\"chatcmpl-",
        "\"id\":\"cmpl-",
        "\"id\":\"call_",
        "\"id\":\"fc_",
        "\"id\":\"msg_",
        "\"id\":\"resp_",
        "\"id\":\"toolu_",
        "\"call_id\":\"call_",
        "\"item_id\":\"",
        "\"created\":",
        "\"created_at\":1",
        "\"created_at\":\"",
        "\"completed_at\":1",
        "_duration\":",
        "fp_arclight_",
    ];
    while let Some((at, mark)) = marks.iter().filter_map(|m| Some((rest.find(m)?, m))).min() {
        let (before, after) = rest.split_at(at + mark.len());
        let end = after.find(['"', ',', '}']).unwrap_or(after.len());
        text.push_str(before);
        text.push('*');
        rest = &after[end..];
    }
    text.push_str(rest);
    if !text.ends_with('\n') {
        text.push('\n');
    }
    rounded(&text)
}

/// Fractions with four digits: the last bits of a logarithm are the mathematical library's.
fn rounded(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        let (before, after) = rest.split_at(at);
        let end = after.find(|c: char| !c.is_ascii_digit() && !".e-".contains(c));
        let (number, tail) = after.split_at(end.unwrap_or(after.len()));
        out.push_str(before);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let long = fraction.len() > 4 && whole.bytes().all(|b| b.is_ascii_digit());
        match number.parse::<f64>().ok().filter(|_| long) {
            Some(value) => out.push_str(&format!("{value:.4}")),
            None => out.push_str(number),
        }
        rest = tail;
    }
    out + rest
}

fn compare(name: &str, request: &Json, reply: &Reply) {
    let text = format!("{request}\n\n{}", normalized(reply));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/wire/{name}.txt"));
    if std::env::var_os("ARCLIGHT_REWRITE").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let want = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(text == want, "{name} is not as recorded; it is now:\n{text}");
}

async fn record(name: &str, path: &str, request: Json) {
    let reply = Direct::new(2).post(path, &request).await;
    compare(name, &request, &reply);
}

#[tokio::test]
async fn chat() {
    record("chat", "/v1/chat/completions", question(json!({}))).await;
}

#[tokio::test]
async fn chat_stream() {
    let more = json!({"stream": true, "stream_options": {"include_usage": true}, "max_tokens": 4});
    record("chat_stream", "/v1/chat/completions", question(more)).await;
}

#[tokio::test]
async fn chat_logprobs() {
    let more = json!({"logprobs": true, "top_logprobs": 2, "max_tokens": 2});
    record("chat_logprobs", "/v1/chat/completions", question(more)).await;
}

#[tokio::test]
async fn chat_tools_stream() {
    let choice = json!({"type": "function", "function": {"name": "look"}});
    let more = json!({"stream": true, "tools": [tool("look")], "tool_choice": choice,
        "parallel_tool_calls": false, "max_tokens": 400});
    record("chat_tools_stream", "/v1/chat/completions", question(more)).await;
}

#[tokio::test]
async fn completion() {
    let request = json!({"prompt": "Once upon a", "max_tokens": 4, "temperature": 0,
        "echo": true, "logprobs": 1});
    record("completion", "/v1/completions", request).await;
}

#[tokio::test]
async fn completion_stream() {
    let request = json!({"prompt": ["Once upon a", "The dog"], "max_tokens": 3, "temperature": 0,
        "stream": true, "stream_options": {"include_usage": true}});
    let server = Direct::new(1);
    // One after the other: of two at once, either may be first.
    let reply = server.post("/v1/completions", &request).await;
    let mut events = reply.events();
    events.sort_by_key(|e| e["choices"][0]["index"].as_u64().unwrap_or(u64::MAX));
    let lines: Vec<String> = events.iter().map(Json::to_string).collect();
    compare("completion_stream", &request, &Reply { text: lines.join("\n"), ..reply });
}

#[tokio::test]
async fn messages() {
    record("messages", "/v1/messages", question(json!({}))).await;
}

#[tokio::test]
async fn messages_stream() {
    let more = json!({"stream": true, "max_tokens": 4});
    record("messages_stream", "/v1/messages", question(more)).await;
}

#[tokio::test]
async fn messages_tools_stream() {
    let schema = tool("look")["function"]["parameters"].clone();
    let choice = json!({"type": "tool", "name": "look", "disable_parallel_tool_use": true});
    let more = json!({"stream": true, "tools": [{"name": "look", "input_schema": schema}],
        "tool_choice": choice, "max_tokens": 400});
    record("messages_tools_stream", "/v1/messages", question(more)).await;
}

#[tokio::test]
async fn messages_error() {
    let request = json!({"model": "other", "messages": [], "max_tokens": 1});
    record("messages_error", "/v1/messages", request).await;
}

#[tokio::test]
async fn ollama_chat() {
    let options = json!({"temperature": 0, "num_predict": 4});
    let more = json!({"stream": false, "options": options});
    record("ollama_chat", "/api/chat", question(more)).await;
}

#[tokio::test]
async fn ollama_chat_stream() {
    let options = json!({"temperature": 0, "num_predict": 4});
    record("ollama_chat_stream", "/api/chat", question(json!({"options": options}))).await;
}

#[tokio::test]
async fn ollama_generate_stream() {
    let request = json!({"prompt": "What is your name?", "options": {"temperature": 0,
        "num_predict": 4}});
    record("ollama_generate_stream", "/api/generate", request).await;
}

#[tokio::test]
async fn ollama_error() {
    record("ollama_error", "/api/chat", json!({"model": "other", "messages": []})).await;
}

fn input(more: Json) -> Json {
    let mut body = json!({"input": "What is your name?", "temperature": 0});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

#[tokio::test]
async fn response() {
    record("response", "/v1/responses", input(json!({}))).await;
}

#[tokio::test]
async fn response_stream() {
    let more = json!({"stream": true, "max_output_tokens": 3});
    record("response_stream", "/v1/responses", input(more)).await;
}

#[tokio::test]
async fn response_tools_stream() {
    let parameters = tool("look")["function"]["parameters"].clone();
    let tool = json!({"type": "function", "name": "look", "parameters": parameters});
    let choice = json!({"type": "function", "name": "look"});
    let more = json!({"stream": true, "tools": [tool], "tool_choice": choice,
        "parallel_tool_calls": false, "max_output_tokens": 400});
    record("response_tools_stream", "/v1/responses", input(more)).await;
}

#[tokio::test]
async fn error() {
    record("error", "/v1/chat/completions", json!({"model": "other", "messages": []})).await;
}
