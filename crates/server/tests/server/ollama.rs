//! Ollama's API: what its clients rely on.

use crate::support::{Direct, NAME, Reply, options, tool};
use arclight_server::App;
use axum::http::StatusCode;
use serde_json::{Value as Json, json};
use std::sync::Arc;

fn merged(mut body: Json, more: Json) -> Json {
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

fn chat(more: Json) -> Json {
    let messages = json!([{"role": "user", "content": "What is your name?"}]);
    let options = json!({"temperature": 0, "num_predict": 24});
    merged(json!({"model": NAME, "messages": messages, "options": options}), more)
}

fn generate(more: Json) -> Json {
    let options = json!({"temperature": 0, "num_predict": 12});
    merged(json!({"model": NAME, "prompt": "What is your name?", "options": options}), more)
}

fn lines(reply: &Reply) -> Vec<Json> {
    assert_eq!(reply.status, StatusCode::OK, "{}", reply.text);
    assert_eq!(reply.headers["content-type"], "application/x-ndjson");
    assert!(reply.text.ends_with('\n'));
    reply.text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn lines_are_the_default_and_say_what_the_whole_says() {
    let server = Direct::new(1);
    let lines = lines(&server.post("/api/chat", &chat(json!({}))).await);
    let (last, before) = lines.split_last().unwrap();
    assert!(before.iter().all(|l| l["done"] == false && l["message"]["role"] == "assistant"));
    let text: String = before.iter().map(|l| l["message"]["content"].as_str().unwrap()).collect();
    assert_eq!((&last["done"], &last["message"]["content"]), (&json!(true), &json!("")));
    let whole = server.post("/api/chat", &chat(json!({"stream": false}))).await;
    assert_eq!(whole.headers["content-type"], "application/json");
    let whole = whole.json();
    assert_eq!(whole["message"], json!({"role": "assistant", "content": text}));
    for field in ["done", "done_reason", "eval_count", "prompt_eval_count", "model"] {
        assert_eq!(whole[field], last[field], "{field}");
    }
    // Nanoseconds: a first token takes longer than ten microseconds.
    let time = |name: &str| last[name].as_u64().unwrap();
    assert!(time("prompt_eval_duration") > 10_000);
    let parts = time("load_duration") + time("prompt_eval_duration") + time("eval_duration");
    assert!(time("total_duration") >= parts && time("eval_duration") > 0, "{last}");
    let chat = server.chat(json!({})).await.json();
    assert_eq!(chat["choices"][0]["message"]["content"], text);
    assert_eq!(chat["usage"]["completion_tokens"], last["eval_count"]);
}

#[tokio::test]
async fn options_are_honoured_or_refused() {
    let server = Direct::new(1);
    let with = |options: Json| chat(json!({"stream": false, "options": options}));
    let two = server.post("/api/chat", &with(json!({"temperature": 0, "num_predict": 2}))).await;
    assert_eq!(
        (&two.json()["eval_count"], &two.json()["done_reason"]),
        (&json!(2), &json!("length"))
    );
    let seeded = with(json!({"temperature": 1.5, "seed": 3, "num_predict": 12, "num_ctx": 64}));
    let once = server.post("/api/chat", &seeded).await.json();
    assert_eq!(server.post("/api/chat", &seeded).await.json()["message"], once["message"]);
    // -1 and -2 are no limits of their own.
    let text = server.post("/api/chat", &with(json!({"temperature": 0}))).await.json();
    let text = text["message"]["content"].as_str().unwrap().to_owned();
    let stop = text.split(' ').nth(1).unwrap();
    let stopped = with(json!({"temperature": 0, "num_predict": -1, "stop": [stop]}));
    let stopped = server.post("/api/chat", &stopped).await.json();
    assert_eq!(stopped["message"]["content"], text[..text.find(stop).unwrap()]);
    // As far as it goes, and of the last tokens.
    for options in
        [json!({"num_ctx": 1 << 30}), json!({"repeat_penalty": 1.1, "repeat_last_n": 64})]
    {
        let reply = server.post("/api/chat", &with(options)).await;
        assert_eq!(reply.status, StatusCode::OK, "{}", reply.text);
    }
    for (options, names) in [
        (json!({"mirostat": 1}), "options.mirostat"),
        (json!({"typical_p": 0.5}), "options.typical_p"),
        (json!({"repeat_penalty": 1.1, "repeat_last_n": -2}), "options.repeat_last_n"),
        (json!({"temperature": "hot"}), "options.temperature"),
        (json!({"top_p": 2}), "top_p"),
    ] {
        let reply = server.post("/api/chat", &with(options)).await;
        assert_eq!(reply.status, StatusCode::BAD_REQUEST);
        let message = reply.json()["error"].as_str().unwrap().to_owned();
        assert!(message.contains(names), "{message:?} does not name {names}");
    }
}

#[tokio::test]
async fn formats_bind_the_answer() {
    let server = Direct::new(1);
    let schema = tool("look")["function"]["parameters"].clone();
    let more = json!({"stream": false, "format": schema, "options": {"temperature": 0}});
    let reply = server.post("/api/chat", &chat(more)).await.json();
    let said: Json = serde_json::from_str(reply["message"]["content"].as_str().unwrap()).unwrap();
    assert!(said["city"] == "Rome" || said["city"] == "Oslo");
    let wrong = server.post("/api/chat", &chat(json!({"format": "xml"}))).await;
    assert_eq!(wrong.status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn calls_in_the_history_have_objects_for_arguments() {
    let server = Direct::new(1);
    let calls = json!([{"function": {"name": "look", "arguments": {"city": "Rome"}}}]);
    let messages = json!([
        {"role": "user", "content": "What is it like?"},
        {"role": "assistant", "content": "", "tool_calls": calls},
        {"role": "tool", "tool_name": "look", "content": "rain"},
    ]);
    let body = chat(json!({"messages": messages, "tools": [tool("look")], "stream": false}));
    let reply = server.post("/api/chat", &body).await;
    assert_eq!(reply.status, StatusCode::OK, "{}", reply.text);
    // What was cut off is no object.
    let cut = json!([{"function": {"name": "look", "arguments": "{\"ci"}}]);
    let cut = json!([{"role": "assistant", "tool_calls": cut}]);
    let reply = server.post("/api/chat", &chat(json!({"messages": cut, "stream": false}))).await;
    assert_eq!(reply.status, StatusCode::OK, "{}", reply.text);
}

#[tokio::test]
async fn generate_answers_in_the_template_and_without() {
    let server = Direct::new(1);
    let lines = lines(&server.post("/api/generate", &generate(json!({}))).await);
    let text: String = lines.iter().map(|l| l["response"].as_str().unwrap()).collect();
    let chat = server.chat(json!({"max_tokens": 12})).await.json();
    assert_eq!(chat["choices"][0]["message"]["content"], text);

    let raw = json!({"prompt": "Once upon a", "raw": true, "stream": false});
    let raw = server.post("/api/generate", &generate(raw)).await.json();
    let text = json!({"prompt": "Once upon a", "temperature": 0, "max_tokens": 12});
    let text = server.complete(text).await.json();
    assert_eq!(raw["response"], text["choices"][0]["text"]);
    assert!(raw.get("context").is_none());
    let template = json!({"prompt": "upon a", "system": "Once", "stream": false,
        "template": "{{ .System }} {{ .Prompt }}{{ .Response }} never"});
    let template = server.post("/api/generate", &generate(template)).await.json();
    assert_eq!(template["response"], raw["response"]);
    for (more, names) in [
        (json!({"raw": true, "system": "Once"}), "system"),
        (json!({"template": "{{ range .Messages }}{{ end }}"}), "range"),
        (json!({"suffix": "the end"}), "gaps"),
        (json!({"images": ["aGk="]}), "sees no images"),
        (json!({"context": [1 << 30]}), "does not exist"),
        (json!({"think": "hard"}), "think must be"),
    ] {
        let reply = server.post("/api/generate", &generate(more)).await;
        assert_eq!(reply.status, StatusCode::BAD_REQUEST, "{}", reply.text);
        assert!(reply.text.contains(names), "{} does not say {names}", reply.text);
    }
}

#[tokio::test]
async fn a_context_is_where_the_next_prompt_goes_on() {
    let server = Direct::new(1);
    let first = server.post("/api/generate", &generate(json!({"stream": false}))).await.json();
    let context = first["context"].as_array().unwrap();
    let count = |name: &str| first[name].as_u64().unwrap() as usize;
    // The text of an answer may be written with other tokens than it was made of.
    assert!(context.len() > count("prompt_eval_count"));
    let next = json!({"prompt": "And mine?", "context": context});
    let next = lines(&server.post("/api/generate", &generate(next)).await);
    let last = next.last().unwrap();
    assert!(last["context"].as_array().unwrap().starts_with(context));
    let alone = generate(json!({"prompt": "And mine?", "stream": false}));
    let alone = server.post("/api/generate", &alone).await.json();
    let tokens = |of: &Json| of["prompt_eval_count"].as_u64().unwrap() as usize;
    assert!(tokens(last) >= tokens(&alone) + context.len() - 1);
}

#[tokio::test]
async fn models_are_described() {
    let server = Direct::new(1);
    let tags = server.get("/api/tags").await.json();
    let model = &tags["models"][0];
    assert_eq!(model["name"], format!("{NAME}:latest"));
    assert_eq!(model["details"]["format"], "gguf");
    let running = server.get("/api/ps").await.json();
    assert_eq!(running["models"][0]["digest"], model["digest"]);
    assert!(running["models"][0]["context_length"].as_u64().unwrap() > 0);
    let shown = server.post("/api/show", &json!({"model": format!("{NAME}:latest")})).await.json();
    let info = &shown["model_info"];
    let architecture = info["general.architecture"].as_str().unwrap();
    assert!(info[format!("{architecture}.context_length")].is_u64(), "{info}");
    assert!(shown["capabilities"].as_array().unwrap().contains(&json!("completion")));
    assert!(shown["template"].as_str().unwrap().contains("messages"));
    let other = server.post("/api/show", &json!({"model": "other"})).await;
    assert_eq!(other.status, StatusCode::NOT_FOUND);
    let version = server.get("/api/version").await.json();
    assert_eq!(version["version"].as_str().unwrap().split('.').count(), 3);
}

#[tokio::test]
async fn nothing_is_asked_to_load_the_model() {
    let server = Direct::new(1);
    let loaded = server.post("/api/generate", &json!({"model": NAME})).await.json();
    assert_eq!((&loaded["done"], &loaded["done_reason"]), (&json!(true), &json!("load")));
    let loaded = server.post("/api/chat", &json!({"model": NAME, "messages": []})).await.json();
    assert_eq!(loaded["message"]["content"], "");
    let loading = Direct::of(Arc::new(App::new(options())));
    let reply = loading.post("/api/generate", &json!({"model": NAME})).await;
    assert_eq!(reply.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(reply.json()["error"].is_string());
}

#[tokio::test]
async fn faults_are_a_string() {
    let server = Direct::new(1);
    let other = server.post("/api/chat", &chat(json!({"model": "other"}))).await;
    assert_eq!(other.status, StatusCode::NOT_FOUND);
    assert!(other.json()["error"].as_str().unwrap().contains("other"));
    for path in ["/api/copy", "/api/pull"] {
        let absent = server.post(path, &json!({"model": NAME, "input": "text"})).await;
        assert_eq!(absent.status, StatusCode::NOT_FOUND);
        assert!(absent.json()["error"].is_string());
    }
    let malformed = server.post_text("/api/chat", "[").await;
    assert_eq!(malformed.status, StatusCode::BAD_REQUEST);
    assert!(malformed.json()["error"].is_string());
    let method = server.get("/api/chat").await;
    assert_eq!(method.status, StatusCode::METHOD_NOT_ALLOWED);
    assert!(method.json()["error"].is_string());
}
