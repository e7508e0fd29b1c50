//! What agents sent, recorded: every request is answered, and the answers are such that the agents went on. The model
//! follows a script: it calls the tool by which the agent runs commands, and then says that it is done.

use crate::support::{Direct, Reply, options};
use arclight_engine::{LoadOptions, ModelFile, ReplicaOptions};
use arclight_server::{ChatStyle, Model};
use axum::body::Body;
use axum::http::{Request, StatusCode};
use serde_json::{Value as Json, json};
use std::path::Path;
use std::sync::Arc;
use testkit::{Script, scripted};

const DONE: &str = "All is done.";

fn call(name: &str, arguments: &str) -> (String, String) {
    let call = format!("{{\"name\": \"{name}\", \"arguments\": {arguments}}}");
    (name.to_owned(), format!("I look.\n<tool_call>\n{call}\n</tool_call>"))
}

/// A model that calls the first of these tools that is offered.
fn agent(context: u32) -> Model {
    agent_with(context, &ChatStyle::default())
}

fn agent_with(context: u32, style: &ChatStyle) -> Model {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let demo = std::fs::read(root.join("demo/arclight-demo.gguf")).unwrap();
    let rules = vec![
        call("exec_command", r#"{"cmd": "ls"}"#),
        call("Bash", r#"{"command": "ls"}"#),
        call("bash", r#"{"command": "ls"}"#),
        call("patch", r#"{"input": "*** Begin\n+1"}"#),
        call("agents__spawn", r#"{"n": 1}"#),
        call("shell", r#"{"commands": ["ls"]}"#),
        call("apply_patch", r#"{"type": "delete_file", "path": "a"}"#),
        call("tool_search", r#"{"query": "git"}"#),
    ];
    let script = Script { context, rules, otherwise: DONE.to_owned(), ..Script::default() };
    let file = Arc::new(ModelFile::from_bytes("scripted", scripted(&script, &demo)));
    let options = LoadOptions {
        threads: Some(2),
        sequences: Some(2),
        no_pin: true,
        ..LoadOptions::default()
    };
    let serving = ReplicaOptions { queue: Some(8), ..ReplicaOptions::default() };
    Model::load(&file, &options, &serving, style, &mut |_| {}).unwrap()
}

fn server() -> Direct {
    let mut options = options();
    options.names = vec!["demo".to_owned()];
    Direct::with(options, agent(16_384))
}

fn recorded(name: &str) -> Vec<Json> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/transcripts/{name}.json"));
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

async fn replay(server: &Direct, name: &str) -> Vec<Reply> {
    let mut replies = Vec::new();
    for request in recorded(name) {
        let mut sent = Request::post(request["path"].as_str().unwrap());
        for (name, value) in request["headers"].as_object().unwrap() {
            sent = sent.header(name, value.as_str().unwrap());
        }
        let reply = server.send(sent.body(Body::from(request["body"].to_string())).unwrap()).await;
        assert_eq!(reply.status, StatusCode::OK, "{name}: {}", reply.text);
        replies.push(reply);
    }
    replies
}

/// The data of a stream's events.
fn events(reply: &Reply) -> Vec<Json> {
    let data = reply.text.lines().filter_map(|line| line.strip_prefix("data: "));
    data.filter(|data| *data != "[DONE]").map(|data| serde_json::from_str(data).unwrap()).collect()
}

#[tokio::test]
async fn codex_calls_its_shell_and_ends() {
    let replies = replay(&server(), "codex").await;
    // Nobody searches the web here.
    assert_eq!(replies[0].headers["x-arclight-left-out"], "web_search");
    let last = events(&replies[0]).pop().unwrap();
    let output = last["response"]["output"].as_array().unwrap();
    assert_eq!(output[0]["content"][0]["text"], "I look.");
    assert_eq!(
        (&output[1]["type"], &output[1]["name"]),
        (&json!("function_call"), &json!("exec_command"))
    );
    assert_eq!(output[1]["arguments"], r#"{"cmd": "ls"}"#);
    let last = events(&replies[1]).pop().unwrap();
    assert_eq!(last["type"], "response.completed");
    assert_eq!(last["response"]["output"][0]["content"][0]["text"], DONE);
}

#[tokio::test]
async fn claude_code_calls_its_shell_and_ends() {
    let replies = replay(&server(), "claude-code").await;
    let first = events(&replies[0]);
    let of = |kind: &str| first.iter().filter(|e| e["type"] == kind).collect::<Vec<_>>();
    let blocks = of("content_block_start");
    assert_eq!(blocks.last().unwrap()["content_block"]["name"], "Bash");
    let end = of("message_delta")[0];
    assert_eq!(end["delta"]["stop_reason"], "tool_use");
    // It speaks of edits of the context, of which there are none.
    assert_eq!(end["context_management"], json!({"applied_edits": []}));
    let second = events(&replies[1]);
    let text: String = second.iter().filter_map(|e| e["delta"]["text"].as_str()).collect();
    assert_eq!(text, DONE);
}

#[tokio::test]
async fn opencode_calls_its_shell_and_ends() {
    let replies = replay(&server(), "opencode").await;
    let said = |reply: &Reply| -> String {
        let events = events(reply);
        events.iter().filter_map(|e| e["choices"][0]["delta"]["content"].as_str()).collect()
    };
    assert_eq!(said(&replies[0]), DONE);
    let calls: Vec<Json> = events(&replies[1])
        .iter()
        .filter_map(|e| e["choices"][0]["delta"]["tool_calls"][0]["function"]["name"].as_str())
        .map(Json::from)
        .collect();
    assert_eq!(calls, [json!("bash")]);
    assert_eq!(said(&replies[2]), DONE);
}

/// The last item of the answer to a request with one tool.
async fn called(server: &Direct, tool: Json) -> (Json, Vec<Json>) {
    let body = json!({"model": "demo", "input": "Go.", "tools": [tool], "stream": true});
    let reply = server.post("/v1/responses", &body).await;
    assert_eq!(reply.status, StatusCode::OK, "{}", reply.text);
    let events = events(&reply);
    let output = events.last().unwrap()["response"]["output"].clone();
    (output.as_array().unwrap().last().unwrap().clone(), events)
}

#[tokio::test]
async fn every_kind_of_call_is_an_item_of_its_own() {
    let server = server();
    let kinds = |events: &[Json]| -> Vec<String> {
        let of_call = events.iter().filter(|e| e["output_index"] == 1);
        of_call.map(|e| e["type"].as_str().unwrap().to_owned()).collect()
    };
    let custom = json!({"type": "custom", "name": "patch", "description": "Patches.",
        "format": {"type": "grammar", "syntax": "lark", "definition": "start: \"x\""}});
    let (item, events) = called(&server, custom).await;
    assert_eq!((&item["type"], &item["name"]), (&json!("custom_tool_call"), &json!("patch")));
    assert_eq!(item["input"], "*** Begin\n+1");
    let of_input = ["delta", "done"].map(|kind| format!("response.custom_tool_call_input.{kind}"));
    let [delta, done] = of_input;
    let item_events = ["response.output_item.added", &delta, &done, "response.output_item.done"];
    assert_eq!(kinds(&events), item_events);

    let spawn = json!({"type": "function", "name": "spawn", "parameters": {"type": "object"}});
    let (item, _) =
        called(&server, json!({"type": "namespace", "name": "agents", "tools": [spawn]})).await;
    assert_eq!((&item["namespace"], &item["name"]), (&json!("agents"), &json!("spawn")));

    let (item, events) = called(&server, json!({"type": "shell"})).await;
    assert_eq!(
        (&item["type"], &item["action"]["commands"]),
        (&json!("shell_call"), &json!(["ls"]))
    );
    assert_eq!(kinds(&events), ["response.output_item.added", "response.output_item.done"]);

    // Half of a command is not given to be run.
    let cut = json!({"input": "Go.", "tools": [{"type": "shell"}], "max_output_tokens": 2});
    let cut = server.post("/v1/responses", &cut).await.json();
    assert_eq!(cut["status"], "incomplete");
    let kinds: Vec<&Json> = cut["output"].as_array().unwrap().iter().map(|i| &i["type"]).collect();
    assert_eq!(kinds, ["message"]);

    let (item, _) = called(&server, json!({"type": "apply_patch"})).await;
    assert_eq!(item["operation"], json!({"type": "delete_file", "path": "a"}));

    let search = json!({"type": "tool_search", "execution": "client"});
    let (item, _) = called(&server, search).await;
    assert_eq!(item["arguments"], json!({"query": "git"}));
}

#[tokio::test]
async fn a_conversation_that_is_too_long_is_refused_in_the_words_that_clients_know() {
    let server = Direct::with(options(), agent(512));
    let long = "word ".repeat(2_000);
    let message = json!([{"role": "user", "content": long}]);
    let error = |reply: Reply| {
        assert_eq!(reply.status, StatusCode::BAD_REQUEST, "{}", reply.text);
        reply.json()["error"].clone()
    };
    let chat = error(server.post("/v1/chat/completions", &json!({"messages": message})).await);
    assert_eq!(chat["code"], "context_length_exceeded");
    let text = chat["message"].as_str().unwrap();
    assert!(
        text.starts_with("This model's maximum context length is 512 tokens. However, "),
        "{text}"
    );
    let claude = json!({"messages": message, "max_tokens": 10});
    let claude = error(server.post("/v1/messages", &claude).await);
    let text = claude["message"].as_str().unwrap();
    assert!(
        text.starts_with("prompt is too long: ") && text.ends_with(" tokens > 512 maximum"),
        "{text}"
    );
    let response = error(server.post("/v1/responses", &json!({"input": message})).await);
    assert_eq!(response["code"], "context_length_exceeded");
    let text = response["message"].as_str().unwrap();
    assert!(text.starts_with("Your input exceeds the context window of this model."), "{text}");
    // Codex looks for it in a stream.
    let stream = json!({"input": message, "stream": true});
    let stream = events(&server.post("/v1/responses", &stream).await).pop().unwrap();
    assert_eq!(stream["type"], "response.failed");
    assert_eq!(stream["response"]["error"]["code"], "context_length_exceeded");
}

#[tokio::test]
async fn the_oldest_items_are_left_out_if_the_client_says_so() {
    let server = Direct::with(options(), agent(512));
    let mut items = vec![json!({"role": "system", "content": "Be an owl."})];
    for turn in 0..20 {
        items.push(
            json!({"role": "user", "content": format!("Turn {turn}: {}", "word ".repeat(20))}),
        );
        items.push(json!({"role": "assistant", "content": "Yes."}));
    }
    items.push(json!({"role": "user", "content": "And now?"}));
    let body = |truncation: &str| json!({"input": items, "truncation": truncation, "max_output_tokens": 50});
    let refused = server.post("/v1/responses", &body("disabled")).await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);
    let reply = server.post("/v1/responses", &body("auto")).await;
    assert_eq!(reply.status, StatusCode::OK, "{}", reply.text);
    let response = reply.json();
    assert_eq!(response["truncation"], "auto");
    assert_eq!(response["output"][0]["content"][0]["text"], DONE);
    // As much as fits stays, and room for the answer.
    let tokens = response["usage"]["input_tokens"].as_u64().unwrap();
    assert!((350..=462).contains(&tokens), "{tokens}");
    // Ollama's clients expect it unless they say otherwise.
    let ollama = json!({"model": "demo", "messages": items, "stream": false});
    assert_eq!(server.post("/api/chat", &ollama).await.status, StatusCode::OK);
    // A summary stands for a conversation.
    let compact = server.post("/v1/responses/compact", &json!({"input": items})).await.json();
    assert_eq!(compact["object"], "response.compaction", "{compact}");
    let mut next = compact["output"].as_array().unwrap().clone();
    next.push(json!({"role": "user", "content": "And now?"}));
    let reply = server.post("/v1/responses", &json!({"input": next})).await;
    assert_eq!(reply.status, StatusCode::OK, "{}", reply.text);
}

#[tokio::test]
async fn a_text_that_is_scored_has_a_token_behind_it() {
    // The model would end its answer at once.
    let body = json!({"prompt": "The dog", "echo": true, "logprobs": 1, "max_tokens": 1, "temperature": 0});
    let server = server();
    let tokens = server.post("/tokenize", &json!({"prompt": "The dog"})).await.json();
    let scored = server.complete(body).await.json();
    let logprobs = scored["choices"][0]["logprobs"]["token_logprobs"].as_array().unwrap().len();
    assert_eq!(logprobs as u64, tokens["count"].as_u64().unwrap() + 1);
    assert_eq!(scored["choices"][0]["text"], "The dog");
}

#[tokio::test]
async fn every_published_template_renders_what_agents_send() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tokenizer/tests/data/templates");
    let mut seen = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        // The one changes a list in place, which the engine does not know; the other is of no model.
        if path.extension().is_none_or(|e| e != "jinja") || ["kimi-k2", "tools"].contains(&&*name) {
            continue;
        }
        let style = ChatStyle {
            template: Some(std::fs::read_to_string(&path).unwrap()),
            ..ChatStyle::default()
        };
        let server = Direct::with(options(), agent_with(16_384, &style));
        for (agent, to) in [
            ("codex", "/v1/responses/input_tokens"),
            ("claude-code", "/v1/messages/count_tokens"),
            ("opencode", "/apply-template"),
        ] {
            for request in recorded(agent) {
                let reply = server.post(to, &request["body"]).await;
                assert_eq!(reply.status, StatusCode::OK, "{name}, {agent}: {}", reply.text);
            }
        }
        seen += 1;
    }
    assert!(seen >= 14, "{seen} templates");
}
