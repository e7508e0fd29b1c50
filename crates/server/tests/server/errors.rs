//! Requests that cannot be served: status, field and code, and words that name the fault.

use crate::support::{Direct, options, question, tool};
use arclight_server::{App, Options};
use axum::http::StatusCode;
use serde_json::{Value as Json, json};
use std::sync::Arc;

const CHAT: &str = "/v1/chat/completions";
const TEXT: &str = "/v1/completions";

#[tokio::test]
async fn faults_name_their_field() {
    let server = Direct::new(1);
    let chat = question;
    let text = |more: Json| {
        let mut body = json!({"prompt": "a"});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let user = |content: Json| json!({"messages": [{"role": "user", "content": content}]});
    let schema = |schema: Json| json!({"response_format": {"type": "json_schema", "json_schema": {"schema": schema}}});
    let unsupported = json!("unsupported_parameter");
    let (kind, grammar, none) = (json!("invalid_type"), json!("invalid_grammar"), Json::Null);
    let cases = [
        // Types, ranges.
        (CHAT, chat(json!({"temperature": "hot"})), "temperature", &kind),
        (CHAT, chat(json!({"messages": "hello"})), "messages", &kind),
        (CHAT, chat(json!({"stop": 1})), "stop", &none),
        (CHAT, chat(json!({"stop": vec!["x"; 65]})), "stop", &none),
        (CHAT, chat(json!({"n": 0})), "n", &none),
        (CHAT, chat(json!({"n": 129})), "n", &none),
        // 64 may wait beside the one that runs.
        (CHAT, chat(json!({"n": 66})), "n", &none),
        (CHAT, chat(json!({"temperature": -1})), "temperature", &none),
        (CHAT, chat(json!({"top_p": 0})), "top_p", &none),
        (CHAT, chat(json!({"top_k": -2})), "top_k", &none),
        (CHAT, chat(json!({"min_p": 2})), "min_p", &none),
        (CHAT, chat(json!({"repetition_penalty": 0})), "repetition_penalty", &none),
        (CHAT, chat(json!({"max_tokens": 0})), "max_tokens", &none),
        (CHAT, chat(json!({"max_completion_tokens": 0})), "max_completion_tokens", &none),
        (CHAT, chat(json!({"logit_bias": {"x": 1}})), "logit_bias.x", &none),
        (CHAT, chat(json!({"logit_bias": {"1": 101}})), "logit_bias.1", &none),
        (CHAT, chat(json!({"top_logprobs": 2})), "top_logprobs", &none),
        (CHAT, chat(json!({"logprobs": true, "top_logprobs": 21})), "logprobs", &none),
        (CHAT, chat(json!({"stream_options": {"include_usage": true}})), "stream_options", &none),
        (CHAT, chat(json!({"stop_token_ids": [999_999]})), "stop_token_ids", &none),
        // Messages.
        (CHAT, json!({"messages": []}), "messages", &none),
        (CHAT, json!({}), "messages", &none),
        (CHAT, chat(json!({"messages": [1]})), "messages[0]", &none),
        (CHAT, chat(json!({"messages": [{"content": "a"}]})), "messages[0].role", &none),
        (
            CHAT,
            chat(json!({"messages": [{"role": "boss", "content": "a"}]})),
            "messages[0].role",
            &none,
        ),
        (CHAT, chat(json!({"messages": [{"role": "user"}]})), "messages[0].content", &none),
        (CHAT, chat(user(json!(1))), "messages[0].content", &none),
        (
            CHAT,
            chat(user(json!([{"type": "input_audio"}]))),
            "messages[0].content[0].type",
            &unsupported,
        ),
        (
            CHAT,
            chat(user(json!([{"type": "image_url"}]))),
            "messages[0].content[0].image_url.url",
            &none,
        ),
        (CHAT, chat(user(json!([{"type": "text"}]))), "messages[0].content[0].text", &none),
        // Tools.
        (CHAT, chat(json!({"tools": [{"type": "teleport"}]})), "tools[0].type", &unsupported),
        (CHAT, chat(json!({"tools": [{"type": "function"}]})), "tools[0].function", &none),
        (CHAT, chat(json!({"tools": [tool("a"), tool("a")]})), "tools[1].function.name", &none),
        (CHAT, chat(json!({"tool_choice": "required"})), "tool_choice", &none),
        (CHAT, chat(json!({"tool_choice": "maybe"})), "tool_choice", &none),
        (
            CHAT,
            chat(
                json!({"tools": [tool("a")], "tool_choice": {"type": "function", "function": {"name": "b"}}}),
            ),
            "tool_choice",
            &none,
        ),
        (CHAT, chat(json!({"functions": []})), "functions", &unsupported),
        (CHAT, chat(json!({"modalities": ["audio"]})), "modalities", &unsupported),
        // Forms of answers.
        (CHAT, chat(json!({"response_format": {"type": "xml"}})), "response_format.type", &none),
        (
            CHAT,
            chat(json!({"response_format": {"type": "json_schema"}})),
            "response_format.json_schema.schema",
            &none,
        ),
        (
            CHAT,
            chat(schema(json!({"type": "object", "unevaluatedProperties": false}))),
            "response_format",
            &grammar,
        ),
        (CHAT, chat(json!({"guided_regex": "(?=a)b"})), "guided_regex", &grammar),
        (CHAT, chat(json!({"guided_grammar": "start: nowhere"})), "guided_grammar", &grammar),
        (CHAT, chat(json!({"guided_choice": []})), "guided_choice", &none),
        (CHAT, chat(json!({"guided_regex": "a", "guided_choice": ["a"]})), "guided_choice", &none),
        (
            CHAT,
            chat(json!({"structured_outputs": {"magic": 1}})),
            "structured_outputs.magic",
            &unsupported,
        ),
        (CHAT, chat(json!({"grammar": "root ::= a"})), "grammar", &grammar),
        (CHAT, chat(json!({"json_schema": {"not": {}}})), "json_schema", &grammar),
        // Of other servers: what would do something, and cannot here.
        (CHAT, chat(json!({"typical_p": 0.5})), "typical_p", &unsupported),
        (CHAT, chat(json!({"mirostat": 2})), "mirostat", &unsupported),
        (CHAT, chat(json!({"dry_multiplier": 0.8})), "dry_multiplier", &unsupported),
        (CHAT, chat(json!({"xtc_probability": 0.5})), "xtc_probability", &unsupported),
        (CHAT, chat(json!({"length_penalty": 2})), "length_penalty", &unsupported),
        (CHAT, chat(json!({"bad_words": ["a"]})), "bad_words", &unsupported),
        (TEXT, text(json!({"prompt_logprobs": 1})), "prompt_logprobs", &unsupported),
        (TEXT, text(json!({"use_beam_search": true})), "use_beam_search", &unsupported),
        (TEXT, text(json!({"truncate_prompt_tokens": 0})), "truncate_prompt_tokens", &none),
        (TEXT, text(json!({"repeat_last_n": -2})), "repeat_last_n", &none),
        (TEXT, text(json!({"n_predict": -2})), "n_predict", &none),
        (CHAT, chat(json!({"max_tokens": 5.5})), "max_tokens", &kind),
        (CHAT, chat(json!({"max_tokens": -2})), "max_tokens", &none),
        // Completions.
        (TEXT, json!({}), "prompt", &none),
        (TEXT, json!({"prompt": []}), "prompt", &none),
        (TEXT, json!({"prompt": [1, "a"]}), "prompt", &none),
        (TEXT, json!({"prompt": [-1]}), "prompt", &none),
        (TEXT, json!({"prompt": [999_999]}), "prompt", &none),
        (TEXT, text(json!({"logprobs": 21})), "logprobs", &none),
        (TEXT, text(json!({"best_of": 2})), "best_of", &unsupported),
        (TEXT, text(json!({"suffix": "b", "echo": true})), "suffix", &none),
        ("/tokenize", json!({}), "prompt", &none),
        ("/detokenize", json!({"tokens": [1, 999_999]}), "tokens[1]", &none),
        ("/detokenize", json!({"tokens": ["a"]}), "tokens[0]", &kind),
    ];
    for (path, body, param, code) in cases {
        let reply = server.post(path, &body).await;
        assert_eq!(reply.status, StatusCode::BAD_REQUEST, "{path} {body}: {}", reply.text);
        let error = &reply.json()["error"];
        assert_eq!((&error["param"], &error["code"]), (&param.into(), code), "{body}: {error}");
        assert_eq!(error["type"], "invalid_request_error");
        assert!(!error["message"].as_str().unwrap().is_empty());
        let twice = r#"{"prompt": "a", "max_tokens": 1, "max_tokens": 2}"#;
        let twice = server.post_text(TEXT, twice).await;
        assert_eq!(twice.status, StatusCode::BAD_REQUEST);
        assert_eq!(twice.json()["error"]["param"], "max_tokens", "{}", twice.text);
        // What is off may be said.
        let off = json!({"typical_p": 1.0, "tfs_z": 1, "mirostat": 0, "dry_multiplier": 0.0, "top_n_sigma": -1,
        "xtc_probability": 0, "bad_words": [], "length_penalty": 1.0, "prompt_logprobs": null});
        assert_eq!(server.post(CHAT, &chat(off)).await.status, StatusCode::OK);
    }
}

#[tokio::test]
async fn what_is_no_json_is_400_with_the_place() {
    let server = Direct::new(1);
    let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    let cases = [
        ("", "empty"),
        ("{", "line 1 column 1"),
        ("{\"messages\":\n[,]}", "line 2 column 2"),
        ("{\"messages\": []} {}", "trailing characters"),
        ("[1]", "must be a JSON object"),
        ("{}", "messages is missing"),
        ("\u{FF}", "line 1"),
        (&format!("{{\"messages\": {deep}}}"), "on 100001 levels"),
    ];
    for (body, words) in cases {
        let reply = server.post_text(CHAT, body).await;
        assert_eq!(reply.status, StatusCode::BAD_REQUEST);
        let message = reply.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(message.contains(words), "{message}");
    }
}

#[tokio::test]
async fn models_paths_and_methods_that_are_not_there() {
    let server = Direct::new(1);
    for (reply, status, code) in [
        (server.post(CHAT, &question(json!({"model": "gpt-9"}))).await, 404, "model_not_found"),
        (
            server.post(TEXT, &json!({"model": "gpt-9", "prompt": "a"})).await,
            404,
            "model_not_found",
        ),
        (server.get("/v1/models/a/b").await, 404, "model_not_found"),
        (server.get("/v1/nothing").await, 404, "unknown_url"),
        (server.get("/v1/").await, 404, "unknown_url"),
        (server.get(CHAT).await, 405, "method_not_allowed"),
    ] {
        assert_eq!(reply.status.as_u16(), status, "{}", reply.text);
        assert_eq!(reply.json()["error"]["code"], code);
        assert_eq!(reply.headers["content-type"], "application/json");
    }
}

#[tokio::test]
async fn names_that_are_no_text_are_400() {
    let reply = Direct::new(1).get("/v1/models/%FF").await;
    assert_eq!(reply.status, StatusCode::BAD_REQUEST);
    assert!(reply.json()["error"]["message"].is_string());
}

#[tokio::test]
async fn a_prompt_that_does_not_fit_is_told_in_tokens() {
    let server = Direct::new(1);
    let body = json!({"prompt": "dog ".repeat(5000)});
    let error = server.post(TEXT, &body).await.json()["error"].clone();
    assert_eq!(error["code"], "context_length_exceeded");
    assert!(error["message"].as_str().unwrap().contains("2048"), "{error}");
}

#[tokio::test]
async fn a_full_queue_is_429_and_says_when_to_come_again() {
    let server = Direct::with(options(), crate::support::model(1, 1));
    let body = question(json!({"ignore_eos": true, "max_tokens": 200}));
    let replies = (0..6).map(|_| server.post(CHAT, &body));
    let replies = futures_util::future::join_all(replies).await;
    let (served, refused): (Vec<_>, Vec<_>) =
        replies.into_iter().partition(|reply| reply.status == StatusCode::OK);
    assert!(served.len() >= 2 && !refused.is_empty(), "{} served", served.len());
    for reply in refused {
        assert_eq!(reply.status, StatusCode::TOO_MANY_REQUESTS);
        assert!(reply.headers["retry-after"].to_str().unwrap().parse::<u32>().unwrap() > 0);
        assert_eq!(reply.json()["error"]["type"], "rate_limit_error");
    }
    server.idle().await;
}

#[tokio::test]
async fn until_the_model_is_there_it_is_503() {
    let app = Arc::new(App::new(options()));
    let server = Direct::of(app.clone());
    let (health, chat) =
        (server.get("/health").await, server.post(CHAT, &question(json!({}))).await);
    for reply in [health, chat] {
        assert_eq!(reply.status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(reply.json()["error"]["code"], "loading");
        assert!(reply.headers.contains_key("retry-after"));
    }
    app.ready(crate::support::model(1, 1));
    assert_eq!(server.get("/health").await.json()["status"], "ok");
}

#[tokio::test]
async fn a_body_is_bounded() {
    let limited = Options { body_limit: 1000, ..options() };
    let server = Direct::with(limited, crate::support::model(1, 1));
    let reply = server.post_text(CHAT, &" ".repeat(1001)).await;
    assert_eq!(reply.status, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(reply.json()["error"]["code"], "body_too_large");
    assert_eq!(server.post_text(CHAT, &" ".repeat(1000)).await.status, StatusCode::BAD_REQUEST);
}
