//! Chat completions: what clients rely on.

use crate::support::{Direct, load, model, options, question, tool};
use arclight_server::Options;
use axum::http::StatusCode;
use serde_json::{Value as Json, json};
use std::path::Path;
use std::time::Duration;

/// The texts of a stream's choices.
fn texts(events: &[Json], choices: usize) -> Vec<String> {
    let mut texts = vec![String::new(); choices];
    for choice in events.iter().filter_map(|e| e["choices"].get(0)) {
        let text = choice["delta"]["content"].as_str().unwrap_or_default();
        texts[choice["index"].as_u64().unwrap() as usize].push_str(text);
    }
    texts
}

#[tokio::test]
async fn the_role_is_in_the_first_delta_of_each_choice_and_in_no_other() {
    let events = Direct::new(2).chat(json!({"stream": true, "n": 2})).await.events();
    for index in 0..2 {
        let mine: Vec<&Json> =
            events.iter().filter(|e| e["choices"][0]["index"] == index).collect();
        assert_eq!(mine[0]["choices"][0]["delta"], json!({"role": "assistant", "content": ""}));
        assert!(mine[1..].iter().all(|e| e["choices"][0]["delta"].get("role").is_none()));
        let reasons: Vec<&Json> = mine.iter().map(|e| &e["choices"][0]["finish_reason"]).collect();
        let (last, before) = reasons.split_last().unwrap();
        assert_eq!(**last, "stop");
        assert!(before.iter().all(|reason| reason.is_null()));
    }
}

#[tokio::test]
async fn usage_is_null_until_a_last_chunk_without_choices() {
    let server = Direct::new(1);
    let usage = json!({"stream": true, "stream_options": {"include_usage": true}});
    let events = server.chat(usage).await.events();
    let (last, before) = events.split_last().unwrap();
    assert!(before.iter().all(|e| e["usage"].is_null() && e.get("usage").is_some()));
    assert_eq!(last["choices"], json!([]));
    let whole = server.chat(json!({})).await.json();
    for field in ["prompt_tokens", "completion_tokens", "total_tokens"] {
        assert_eq!(last["usage"][field], whole["usage"][field]);
    }
    // Without the option there is no word of it.
    let events = server.chat(json!({"stream": true})).await.events();
    assert!(events.iter().all(|e| e.get("usage").is_none()));
}

#[tokio::test]
async fn a_stream_says_what_the_whole_answer_says() {
    let server = Direct::new(3);
    let body = json!({"n": 3, "seed": 7, "temperature": 1.5, "logprobs": true, "top_logprobs": 1});
    let whole = server.chat(body.clone()).await.json();
    let mut body = body;
    body["stream"] = true.into();
    let events = server.chat(body).await.events();
    let texts = texts(&events, 3);
    for (index, text) in texts.iter().enumerate() {
        let choice = &whole["choices"][index];
        assert_eq!(choice["message"]["content"], **text);
        let told: Vec<Json> = events
            .iter()
            .map(|e| &e["choices"][0])
            .filter(|c| c["index"] == index)
            .flat_map(|c| c["logprobs"]["content"].as_array().cloned().unwrap_or_default())
            .collect();
        assert_eq!(*choice["logprobs"]["content"].as_array().unwrap(), told);
    }
    // Each choice has a seed of its own.
    assert!(texts[0] != texts[1] || texts[1] != texts[2], "{texts:?}");
}

#[tokio::test]
async fn answers_under_load_are_those_alone() {
    let server = Direct::new(4);
    let ask = |i: usize| {
        json!({"messages": [{"role": "user", "content": format!("Tell me about {i} dogs.")}],
            "temperature": if i.is_multiple_of(2) { 0.0 } else { 1.2 }, "seed": i, "max_tokens": 40})
    };
    let mut alone = Vec::new();
    for i in 0..12 {
        alone.push(server.chat(ask(i)).await.json()["choices"].clone());
    }
    let together = futures_util::future::join_all((0..12).map(|i| server.chat(ask(i)))).await;
    let together: Vec<Json> = together.iter().map(|r| r.json()["choices"].clone()).collect();
    assert_eq!(alone, together);
}

#[tokio::test]
async fn the_second_turn_computes_its_new_tokens_only() {
    let server = Direct::new(1);
    let system =
        "You are a kind old owl who answers little questions of little animals. ".repeat(8);
    let mut messages = vec![
        json!({"role": "system", "content": system}),
        json!({"role": "user", "content": "Hello"}),
    ];
    let first = server.chat(json!({"messages": messages})).await.json();
    assert_eq!(first["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
    messages.push(first["choices"][0]["message"].clone());
    messages.push(json!({"role": "user", "content": "Who are you?"}));
    let computed = server.metric("prefix_cache_queries_total").await
        - server.metric("prefix_cache_hits_total").await;
    let second = server.chat(json!({"messages": messages})).await.json();
    let usage = &second["usage"];
    let cached = usage["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
    let prompt = usage["prompt_tokens"].as_u64().unwrap();
    let known = first["usage"]["prompt_tokens"].as_u64().unwrap();
    // Pages are whole, so a part of the last one is computed again.
    assert!(cached + 32 >= known && cached < prompt, "{cached} of {prompt}, {known} were known");
    let now = server.metric("prefix_cache_queries_total").await
        - server.metric("prefix_cache_hits_total").await;
    assert_eq!(now - computed, (prompt - cached) as f64);
}

#[tokio::test]
async fn ids_have_their_prefixes_and_are_one_per_answer() {
    let server = Direct::new(1);
    let whole = server.chat(json!({})).await.json();
    assert!(whole["id"].as_str().unwrap().starts_with("chatcmpl-"));
    assert_eq!(whole["object"], "chat.completion");
    let events = server.chat(json!({"stream": true})).await.events();
    assert!(events.iter().all(|e| e["id"] == events[0]["id"]));
    assert!(events.iter().all(|e| e["object"] == "chat.completion.chunk"));
    assert_ne!(events[0]["id"], whole["id"]);
}

#[tokio::test]
async fn stop_strings_end_an_answer_and_are_not_in_it() {
    let server = Direct::new(1);
    let whole = server.chat(json!({})).await.json();
    let text = whole["choices"][0]["message"]["content"].as_str().unwrap().to_owned();
    // Across tokens: the end of one word and the beginning of the next.
    let at = text.find(' ').unwrap();
    let stop = &text[at - 1..at + 2];
    let cut = server.chat(json!({"stop": [stop, "never"]})).await.json();
    assert_eq!(cut["choices"][0]["message"]["content"], text[..at - 1]);
    assert_eq!(cut["choices"][0]["finish_reason"], "stop");
    let events = server.chat(json!({"stop": stop, "stream": true})).await.events();
    assert_eq!(texts(&events, 1)[0], text[..at - 1]);
    server.idle().await;
}

#[tokio::test]
async fn limits_on_tokens_hold() {
    let server = Direct::new(1);
    let two = server.chat(json!({"max_tokens": null, "max_completion_tokens": 2})).await.json();
    assert_eq!(two["usage"]["completion_tokens"], 2);
    assert_eq!(two["choices"][0]["finish_reason"], "length");
    let more = server.chat(json!({"min_tokens": 40, "max_tokens": 41})).await.json();
    assert!(more["usage"]["completion_tokens"].as_u64().unwrap() >= 40);
    let all = server.chat(json!({"ignore_eos": true, "max_tokens": 50})).await.json();
    assert_eq!(all["usage"]["completion_tokens"], 50);
    assert_eq!(all["choices"][0]["finish_reason"], "length");
}

#[tokio::test]
async fn a_bias_forbids_and_forces_tokens() {
    let server = Direct::new(1);
    let tokens = server.post("/tokenize", &json!({"prompt": "dog"})).await.json()["tokens"].clone();
    let bias = json!({tokens[0].to_string(): 100});
    let forced = server.chat(json!({"logit_bias": bias, "max_tokens": 3})).await.json();
    let text = forced["choices"][0]["message"]["content"].as_str().unwrap();
    let first = server.post("/detokenize", &json!({"tokens": [tokens[0]]})).await.json();
    assert_eq!(text, first["prompt"].as_str().unwrap().repeat(3));
}

#[tokio::test]
async fn calls_stream_with_their_index_and_end_with_their_reason() {
    let server = Direct::new(1);
    let body = json!({"tools": [tool("look"), tool("listen")], "tool_choice": "required",
        "parallel_tool_calls": false, "max_tokens": 400});
    let whole = server.chat(body.clone()).await.json();
    let choice = &whole["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls");
    assert!(choice["message"]["content"].is_null());
    let call = &choice["message"]["tool_calls"][0];
    assert!(call["id"].as_str().unwrap().starts_with("call_"));
    let arguments = call["function"]["arguments"].as_str().unwrap();
    let parsed: Json = serde_json::from_str(arguments).unwrap();
    assert!(["Rome", "Oslo"].contains(&parsed["city"].as_str().unwrap()));

    let mut body = body;
    body["stream"] = true.into();
    let events = server.chat(body).await.events();
    let calls: Vec<&Json> = events
        .iter()
        .flat_map(|e| e["choices"][0]["delta"]["tool_calls"].as_array().into_iter().flatten())
        .collect();
    assert!(calls.len() > 1 && calls.iter().all(|c| c["index"] == 0));
    assert_eq!(calls[0]["function"]["name"], call["function"]["name"]);
    assert!(calls[1..].iter().all(|c| c.get("id").is_none()));
    let streamed: String =
        calls.iter().map(|c| c["function"]["arguments"].as_str().unwrap()).collect();
    assert_eq!(streamed, arguments);
    assert_eq!(events.last().unwrap()["choices"][0]["finish_reason"], "tool_calls");
}

#[tokio::test]
async fn a_named_tool_is_the_one_that_is_called() {
    let server = Direct::new(1);
    let body = json!({"tools": [tool("look"), tool("listen")],
        "tool_choice": {"type": "function", "function": {"name": "listen"}}, "max_tokens": 400,
        "parallel_tool_calls": false});
    let whole = server.chat(body).await.json();
    let calls = &whole["choices"][0]["message"]["tool_calls"];
    assert_eq!(calls[0]["function"]["name"], "listen");
    assert_eq!(calls.as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_history_with_calls_becomes_a_prompt() {
    let server = Direct::new(1);
    let messages = json!([
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Where?"}]},
        {"role": "assistant", "content": null, "tool_calls": [{"id": "call_1", "type": "function",
            "function": {"name": "look", "arguments": "{\"city\": \"Rome\"}"}}]},
        {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
    ]);
    let reply = server.chat(json!({"messages": messages})).await;
    assert!(reply.json()["usage"]["prompt_tokens"].as_u64().unwrap() > 10);
    let broken = json!([{"role": "assistant", "tool_calls": [{"id": "1", "type": "function",
        "function": {"name": "look", "arguments": "{"}}]}]);
    // As a limit cuts it off: the server does not refuse what it has said.
    let reply = server.post("/apply-template", &question(json!({"messages": broken}))).await;
    assert_eq!(reply.status, StatusCode::OK, "{}", reply.text);
    let prompt = reply.json()["prompt"].as_str().unwrap().to_owned();
    let call = "<tool_call>\n{\"name\": \"look\", \"arguments\": {}\n</tool_call>";
    assert!(prompt.contains(call), "{prompt}");
}

#[tokio::test]
async fn answers_keep_to_a_schema() {
    let server = Direct::new(1);
    let schema = json!({"type": "object", "properties": {"age": {"enum": [3, 4]}, "kind": {"const": "dog"}},
        "required": ["age", "kind"], "additionalProperties": false});
    for temperature in [0.0, 2.0] {
        let format = json!({"type": "json_schema", "json_schema": {"name": "a", "schema": schema}});
        let body =
            json!({"response_format": format, "temperature": temperature, "max_tokens": 800});
        let whole = server.chat(body).await.json();
        let text = whole["choices"][0]["message"]["content"].as_str().unwrap();
        let value: Json = serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"));
        assert!(value["age"] == 3 || value["age"] == 4);
        assert_eq!(
            (&value["kind"], &whole["choices"][0]["finish_reason"]),
            (&"dog".into(), &"stop".into())
        );
    }
    let choice =
        server.chat(json!({"guided_choice": ["red", "green"], "n": 2, "temperature": 2.0}));
    for choice in choice.await.json()["choices"].as_array().unwrap() {
        assert!(["red", "green"].contains(&choice["message"]["content"].as_str().unwrap()));
    }
    let regex =
        server.chat(json!({"structured_outputs": {"regex": "[0-9]{3}-[a-c]"}})).await.json();
    let text = regex["choices"][0]["message"]["content"].as_str().unwrap();
    assert!(text.len() == 5 && text.as_bytes()[3] == b'-', "{text}");
}

#[tokio::test]
async fn with_tools_an_answer_is_a_call_or_keeps_to_the_schema() {
    let server = Direct::new(4);
    let schema = json!({"type": "object", "properties": {"age": {"enum": [3, 4]}},
        "required": ["age"], "additionalProperties": false});
    let format = json!({"type": "json_schema", "json_schema": {"name": "a", "schema": schema}});
    // The first token decides, so that is what is pushed.
    for (first, calls) in [("<", true), ("{", false)] {
        let tokens = server.post("/tokenize", &json!({"prompt": first})).await.json();
        let bias = json!({tokens["tokens"][0].to_string(): 100});
        let body = json!({"response_format": format, "tools": [tool("look")], "logit_bias": bias,
            "max_tokens": 800, "parallel_tool_calls": false});
        let choice = server.chat(body).await.json()["choices"][0].clone();
        if calls {
            assert_eq!(choice["message"]["tool_calls"][0]["function"]["name"], "look");
        } else {
            let text = choice["message"]["content"].as_str().unwrap();
            let value: Json = serde_json::from_str(text).unwrap();
            assert!(value["age"] == 3 || value["age"] == 4, "{text}");
        }
    }
    let tokens = server.post("/tokenize", &json!({"prompt": "x"})).await.json();
    let bias = json!({tokens["tokens"][0].to_string(): 100});
    let body = json!({"guided_regex": "x{3}", "tools": [tool("look")], "logit_bias": bias});
    let choice = server.chat(body).await.json()["choices"][0].clone();
    assert_eq!(choice["message"]["content"], "xxx");
}

#[tokio::test]
async fn an_answer_goes_on_with_the_last_message() {
    let server = Direct::new(1);
    let whole = server.chat(json!({})).await.json();
    let text = whole["choices"][0]["message"]["content"].as_str().unwrap();
    let (begin, rest) = text.split_at(text.find(' ').unwrap());
    let messages = json!([{"role": "user", "content": "What is your name?"},
        {"role": "assistant", "content": begin}]);
    let more = json!({"messages": messages, "continue_final_message": true});
    let on = server.chat(more).await.json();
    assert_eq!(on["choices"][0]["message"]["content"], rest);
}

#[tokio::test]
async fn comments_come_while_nothing_else_does() {
    let options = Options { ping: Duration::from_millis(1), ..options() };
    let server = Direct::with(options, model(1, 4));
    // The only place is taken, so the second waits for its first token.
    let long = server.chat(json!({"ignore_eos": true, "max_tokens": 1500}));
    let second = async {
        while server.get("/health").await.json()["running"] == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        server.chat(json!({"stream": true})).await
    };
    let (_, second) = tokio::join!(long, second);
    assert!(second.text.contains("\n\n: ping\n\n"), "{}", second.text);
    assert!(!texts(&second.events(), 1)[0].is_empty());
}

#[tokio::test]
async fn a_failure_in_mid_stream_is_an_error_event() {
    let long = json!({"ignore_eos": true, "max_tokens": 2000, "stream": true});
    // Some tokens must come, but not all: on a busy machine the first may take a while.
    let mut waits = [30, 100, 300, 1000].into_iter().map(Duration::from_millis);
    let (server, events) = loop {
        let late = waits.next().expect("a token within a second");
        let late = Options { request_timeout: Some(late), ..options() };
        let server = Direct::with(late, model(1, 4));
        let events = server.chat(long.clone()).await.events();
        if events.len() > 2 {
            break (server, events);
        }
    };
    let (last, before) = events.split_last().unwrap();
    assert_eq!(last["error"]["type"], "timeout_error");
    assert!(before.iter().all(|e| e.get("error").is_none()));
    let mut whole = long;
    whole["stream"] = false.into();
    let reply = server.post("/v1/chat/completions", &question(whole)).await;
    assert_eq!(reply.status, StatusCode::GATEWAY_TIMEOUT);
    server.idle().await;
}

#[tokio::test]
async fn fields_that_nobody_knows_are_ignored_and_null_is_nothing() {
    let body = json!({"user": "me", "store": false, "metadata": {"a": "b"}, "whatever": [1],
        "tools": null, "stop": null, "n": null, "seed": null, "response_format": {"type": "text"},
        "stream": null, "logit_bias": null, "top_p": null, "tool_choice": "auto"});
    Direct::new(1).chat(body).await;
}

#[tokio::test]
async fn a_template_without_tools_is_completed() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../demo/arclight-demo.gguf");
    let body = question(json!({"tools": [tool("look")]}));
    let server = Direct::with(options(), load(&path, None, 1, 4));
    let prompt = server.post("/apply-template", &body).await.json();
    let prompt = prompt["prompt"].as_str().unwrap();
    assert!(prompt.contains("<tools>") && prompt.contains("\"name\": \"look\""), "{prompt}");
    assert!(prompt.contains("<tool_call>\n{\"name\": "), "{prompt}");
    // And its calls are read as such.
    let forced = json!({"tools": [tool("look")], "tool_choice": "required", "max_tokens": 400,
        "parallel_tool_calls": false});
    let forced = server.chat(forced).await.json();
    assert_eq!(forced["choices"][0]["message"]["tool_calls"][0]["function"]["name"], "look");
    // Who names another family is told in its way; who says that there are no calls is taken at his word.
    let server = Direct::with(options(), load(&path, Some("mistral".parse().unwrap()), 1, 4));
    let prompt = server.post("/apply-template", &body).await.json();
    assert!(prompt["prompt"].as_str().unwrap().contains("[TOOL_CALLS]NAME[ARGS]"), "{prompt}");
    let server = Direct::with(options(), load(&path, Some("plain".parse().unwrap()), 1, 4));
    let refused = server.post("/v1/chat/completions", &body).await;
    assert_eq!(refused.json()["error"]["param"], "tools");
}

#[tokio::test]
async fn custom_tools_are_called_with_a_text() {
    let server = Direct::new(2);
    let format =
        json!({"type": "grammar", "grammar": {"syntax": "regex", "definition": "go|stay"}});
    let tools = json!([
        {"type": "custom", "custom": {"name": "move", "description": "Moves.", "format": format}},
        tool("look"),
    ]);
    let choice = json!({"type": "custom", "custom": {"name": "move"}});
    let forced = json!({"tools": tools, "tool_choice": choice, "max_tokens": 100});
    let message = server.chat(forced.clone()).await.json()["choices"][0]["message"].clone();
    let call = &message["tool_calls"][0];
    assert_eq!((&call["type"], &call["custom"]["name"]), (&json!("custom"), &json!("move")));
    assert!(["go", "stay"].contains(&call["custom"]["input"].as_str().unwrap()), "{call}");
    assert!(call["function"].is_null());
    // The same as a stream.
    let mut body = forced;
    body["stream"] = true.into();
    let events = server.chat(body).await.events();
    let calls: Vec<&Json> =
        events.iter().filter_map(|e| e.pointer("/choices/0/delta/tool_calls/0")).collect();
    assert_eq!(
        (&calls[0]["type"], &calls[0]["custom"]["name"]),
        (&json!("custom"), &json!("move"))
    );
    let input: String = calls.iter().filter_map(|call| call["custom"]["input"].as_str()).collect();
    assert_eq!(input, call["custom"]["input"].as_str().unwrap());
    // And as a part of a history.
    let messages = json!([
        {"role": "user", "content": "Move."}, message,
        {"role": "tool", "tool_call_id": call["id"], "content": "done"},
    ]);
    let asked = json!({"messages": messages, "tools": tools});
    let prompt =
        server.post("/apply-template", &asked).await.json()["prompt"].as_str().unwrap().to_owned();
    assert!(prompt.contains(&format!("{{\"input\":\"{input}\"}}")), "{prompt}");
    let wrong = json!({"tools": [{"type": "custom", "custom": {}}]});
    let reply = server.post("/v1/chat/completions", &question(wrong)).await;
    assert_eq!(reply.json()["error"]["param"], "tools[0].custom.name");
}
