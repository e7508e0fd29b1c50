//! Anthropic's messages: what its clients rely on.

use crate::support::{Direct, NAME, Reply, options, tool};
use arclight_server::{App, Options};
use axum::body::Body;
use axum::http::{Request, StatusCode};
use serde_json::{Value as Json, json};
use std::sync::Arc;

const MESSAGES: &str = "/v1/messages";

fn ask(more: Json) -> Json {
    let mut body = json!({
        "model": NAME,
        "messages": [{"role": "user", "content": "What is your name?"}],
        "temperature": 0,
        "max_tokens": 24,
    });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

/// The same tool as Anthropic describes it.
fn look() -> Json {
    let function = &tool("look")["function"];
    json!({"name": "look", "input_schema": function["parameters"]})
}

/// The events of a stream, each with its name.
fn events(reply: &Reply) -> Vec<(String, Json)> {
    assert_eq!(reply.headers["content-type"], "text/event-stream; charset=utf-8");
    assert!(reply.text.ends_with("\n\n"), "{:?}", reply.text);
    let event = |text: &str| {
        let (event, data) = text.split_once('\n').unwrap_or_else(|| panic!("{text:?}"));
        let data = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
        (event.strip_prefix("event: ").unwrap().to_owned(), data)
    };
    reply.text.split_terminator("\n\n").map(event).collect()
}

#[tokio::test]
async fn every_event_has_its_name_and_blocks_come_in_order() {
    let server = Direct::new(1);
    let reply = server.post(MESSAGES, &ask(json!({"stream": true}))).await;
    let events = events(&reply);
    assert!(events.iter().all(|(name, data)| data["type"] == **name));
    let names: Vec<&str> = events.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names[..3], ["message_start", "ping", "content_block_start"]);
    let end = names.len() - 3;
    assert_eq!(names[end..], ["content_block_stop", "message_delta", "message_stop"]);
    assert!(names[3..end].iter().all(|name| *name == "content_block_delta"));
    let start = &events[0].1["message"];
    assert_eq!(start["content"], json!([]));
    assert!(start["stop_reason"].is_null() && start["usage"]["output_tokens"] == 0);
    // All together they are the whole message.
    let whole = server.post(MESSAGES, &ask(json!({}))).await.json();
    let text: String =
        events.iter().filter_map(|(_, data)| data["delta"]["text"].as_str()).collect();
    assert_eq!(whole["content"], json!([{"type": "text", "text": text}]));
    let ended = &events[names.len() - 2].1;
    assert_eq!(ended["delta"]["stop_reason"], whole["stop_reason"]);
    assert_eq!(ended["usage"]["output_tokens"], whole["usage"]["output_tokens"]);
    let prompt = |usage: &Json| {
        let part = |name: &str| usage[name].as_u64().unwrap();
        part("input_tokens") + part("cache_read_input_tokens") + part("cache_creation_input_tokens")
    };
    assert_eq!(prompt(&start["usage"]), prompt(&whole["usage"]));
    assert_eq!(prompt(&ended["usage"]), prompt(&whole["usage"]));
}

#[tokio::test]
async fn it_says_what_a_chat_completion_says() {
    let server = Direct::new(1);
    let chat = server.chat(json!({})).await.json();
    let message = server.post(MESSAGES, &ask(json!({}))).await.json();
    assert_eq!(message["content"][0]["text"], chat["choices"][0]["message"]["content"]);
    let count = server.post("/v1/messages/count_tokens", &ask(json!({"max_tokens": null}))).await;
    assert_eq!(count.json(), json!({"input_tokens": chat["usage"]["prompt_tokens"]}));
}

#[tokio::test]
async fn reasons_to_stop_are_told_apart() {
    let server = Direct::new(1);
    let stop = async |more: Json| {
        let reply = server.post(MESSAGES, &ask(more)).await.json();
        (reply["stop_reason"].clone(), reply["stop_sequence"].clone(), reply["content"].clone())
    };
    let (reason, sequence, content) = stop(json!({"max_tokens": 2})).await;
    assert_eq!((reason, sequence), (json!("max_tokens"), Json::Null));
    assert_eq!(content.as_array().unwrap().len(), 1);
    let (_, _, whole) = stop(json!({})).await;
    let text = whole[0]["text"].as_str().unwrap();
    let word = text.split(' ').nth(1).unwrap();
    let (reason, sequence, content) = stop(json!({"stop_sequences": ["never", word]})).await;
    assert_eq!((reason, sequence), (json!("stop_sequence"), json!(word)));
    assert_eq!(content[0]["text"], text[..text.find(word).unwrap()]);
    // Nothing but the cache is wanted.
    let (reason, _, content) = stop(json!({"max_tokens": 0})).await;
    assert_eq!((reason, content), (json!("max_tokens"), json!([])));
    // Longer than the context.
    let long =
        json!({"max_tokens": 1_000_000, "stop_sequences": [], "temperature": 2.0, "top_k": 0});
    let (reason, ..) = stop(long).await;
    assert!(reason == "model_context_window_exceeded" || reason == "end_turn", "{reason}");
}

#[tokio::test]
async fn tools_are_called_as_blocks() {
    let server = Direct::new(1);
    for choice in [json!({"type": "tool", "name": "look"}), json!({"type": "any"})] {
        let mut choice = choice;
        choice["disable_parallel_tool_use"] = true.into();
        let more = json!({"tools": [look()], "tool_choice": choice, "max_tokens": 400});
        let whole = server.post(MESSAGES, &ask(more.clone())).await.json();
        assert_eq!(whole["stop_reason"], "tool_use", "{whole}");
        let call = whole["content"].as_array().unwrap().last().unwrap();
        assert_eq!((&call["type"], &call["name"]), (&json!("tool_use"), &json!("look")));
        assert!(call["id"].as_str().unwrap().starts_with("toolu_"));
        assert!(call["input"]["city"] == "Rome" || call["input"]["city"] == "Oslo");
        let mut more = more;
        more["stream"] = true.into();
        let events = events(&server.post(MESSAGES, &ask(more)).await);
        let start = events.iter().find(|(_, e)| e["content_block"]["type"] == "tool_use");
        assert_eq!(start.unwrap().1["content_block"]["input"], json!({}));
        let pieces = events.iter().filter_map(|(_, e)| e["delta"]["partial_json"].as_str());
        let input: Json = serde_json::from_str(&pieces.collect::<String>()).unwrap();
        assert_eq!(input, call["input"]);
    }
}

#[tokio::test]
async fn the_last_turn_of_the_assistant_is_gone_on_with() {
    let server = Direct::new(1);
    let whole = server.post(MESSAGES, &ask(json!({}))).await.json();
    let text = whole["content"][0]["text"].as_str().unwrap();
    let (begin, rest) = text.split_at(text.find(' ').unwrap());
    let messages = json!([
        {"role": "user", "content": [{"type": "text", "text": "What is your name?"}]},
        {"role": "assistant", "content": [{"type": "text", "text": begin}]},
    ]);
    let more = server.post(MESSAGES, &ask(json!({"messages": messages}))).await.json();
    let more = more["content"][0]["text"].as_str().unwrap();
    assert!(more.starts_with(rest) || rest.starts_with(more), "{more:?} is not {rest:?}");
}

#[tokio::test]
async fn faults_are_in_its_own_words() {
    let app = Arc::new(App::new(Options { keys: crate::support::keys(&["right"]), ..options() }));
    let closed = Direct::of(app);
    let send = async |key: &str, path: &str, body: &Json| {
        let request = Request::post(path).header("x-api-key", key);
        closed.send(request.body(Body::from(body.to_string())).unwrap()).await
    };
    let kind = |reply: &Reply| {
        let body = reply.json();
        assert_eq!(body["type"], "error");
        assert_eq!(reply.headers["content-type"], "application/json");
        assert!(!body["error"]["message"].as_str().unwrap().is_empty());
        assert!(reply.headers.contains_key("request-id"));
        (reply.status, body["error"]["type"].as_str().unwrap().to_owned())
    };
    let wrong = send("wrong", MESSAGES, &ask(json!({}))).await;
    assert_eq!(kind(&wrong), (StatusCode::UNAUTHORIZED, "authentication_error".into()));
    let loading = send("right", MESSAGES, &ask(json!({}))).await;
    assert_eq!(kind(&loading), (StatusCode::SERVICE_UNAVAILABLE, "overloaded_error".into()));
    assert_eq!(loading.headers["retry-after"], "1");
    let nothing = send("right", "/v1/messages/nothing", &ask(json!({}))).await;
    assert_eq!(kind(&nothing), (StatusCode::NOT_FOUND, "not_found_error".into()));

    let server = Direct::new(1);
    let other = server.post(MESSAGES, &ask(json!({"model": "other"}))).await;
    assert_eq!(kind(&other), (StatusCode::NOT_FOUND, "not_found_error".into()));
    let malformed = server.post_text(MESSAGES, "{").await;
    assert_eq!(kind(&malformed), (StatusCode::BAD_REQUEST, "invalid_request_error".into()));
    let image = json!([{"role": "user", "content": [{"type": "image"}]}]);
    let call = json!({"type": "tool_use", "id": "a", "name": "look", "input": {}});
    let begun = json!([{"role": "user", "content": "?"}, {"role": "assistant", "content": [call]}]);
    for more in [
        json!({"max_tokens": null}),
        json!({"messages": []}),
        json!({"messages": image}),
        json!({"messages": begun}),
        json!({"system": 1}),
        json!({"top_p": 2}),
        json!({"stop_sequences": [""]}),
        json!({"tools": [{"type": "oracle_20250124", "name": "oracle"}]}),
        json!({"tools": [look(), look()]}),
        json!({"tool_choice": {"type": "any"}}),
        json!({"tool_choice": {"type": "tool", "name": "other"}, "tools": [look()]}),
        json!({"thinking": {"type": "sometimes"}}),
        json!({"output_config": {"format": {"type": "json_schema"}}}),
        json!({"mcp_servers": [{"url": "x"}]}),
    ] {
        let reply = server.post(MESSAGES, &ask(more.clone())).await;
        let want = (StatusCode::BAD_REQUEST, "invalid_request_error".to_owned());
        assert_eq!(kind(&reply), want, "{more}");
    }
    let old = Request::post(MESSAGES).header("anthropic-version", "2023-01-01");
    let old = server.send(old.body(Body::from(ask(json!({})).to_string())).unwrap()).await;
    assert_eq!(old.status, StatusCode::BAD_REQUEST);
}
