//! gpt-oss's way of answering, over the demo model: its channels as control tokens in the place of the
//! vocabulary's last words, and the published template. What the model then says is nonsense in the
//! right places.

use crate::support::{Direct, Reply, load, options, tool};
use chat::HARMONY_MARKS as MARKS;
use gguf::{Gguf, OwnedValue, Value, Writer};
use serde_json::{Value as Json, json};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// The token type of control tokens.
const CONTROL: i32 = 3;

static FILE: LazyLock<PathBuf> = LazyLock::new(|| {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &str| std::fs::read(root.join(path)).unwrap();
    let demo = read("../../demo/arclight-demo.gguf");
    let template = read("../tokenizer/tests/data/templates/gpt-oss.jinja");
    let gguf = Gguf::parse(&demo).unwrap();
    let meta = gguf.metadata();
    let mut tokens = list(meta.get("tokenizer.ggml.tokens"));
    let mut types = meta.opt_i32s("tokenizer.ggml.token_type").unwrap().unwrap();
    // Its own control tokens are the last.
    let first = types.iter().rposition(|&ty| ty != CONTROL).unwrap() + 1 - MARKS.len();
    let gone: Vec<_> = MARKS
        .iter()
        .enumerate()
        .map(|(at, mark)| {
            types[first + at] = CONTROL;
            std::mem::replace(&mut tokens[first + at], mark.as_bytes().to_vec())
        })
        .collect();
    let mut merges = list(meta.get("tokenizer.ggml.merges"));
    merges.retain(|merge| {
        let joined: Vec<u8> = merge.iter().copied().filter(|&byte| byte != b' ').collect();
        !gone.contains(&joined)
    });
    let mut writer = Writer::new();
    for (key, value) in meta.iter() {
        match key {
            "tokenizer.ggml.tokens" => writer.kv(key, OwnedValue::strings(&tokens)),
            "tokenizer.ggml.token_type" => writer.kv(key, &types[..]),
            "tokenizer.ggml.merges" => writer.kv(key, OwnedValue::strings(&merges)),
            "tokenizer.chat_template" => writer.kv(key, OwnedValue::bytes(&template)),
            _ => writer.kv(key, OwnedValue::from(value)),
        };
    }
    for tensor in gguf.tensors() {
        writer.tensor(tensor.name(), tensor.shape.dims(), tensor.ty, tensor.data);
    }
    let mut bytes = Vec::new();
    writer.write_to(&mut bytes).unwrap();
    // Other processes of this test may have it mapped: it is replaced, not written over.
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("harmony.gguf");
    let own = path.with_extension(std::process::id().to_string());
    std::fs::write(&own, bytes).unwrap();
    std::fs::rename(&own, &path).unwrap();
    path
});

fn list(value: Option<&Value<'_>>) -> Vec<Vec<u8>> {
    let Some(Value::Array(array)) = value else { panic!("no list") };
    array.strings().unwrap().map(<[u8]>::to_vec).collect()
}

/// A server that takes its format from the file's template.
fn server() -> Direct {
    Direct::with(options(), load(&FILE, None, 1, 8))
}

/// An answer whose course is decided by the tokens that are pushed.
async fn ask(server: &Direct, push: &[(&str, i32)], more: Json) -> Json {
    let mut bias = json!({});
    for (text, weight) in push {
        let tokens = server.post("/tokenize", &json!({"prompt": text})).await.json();
        assert_eq!(tokens["count"], 1, "{text} is {tokens}");
        bias[tokens["tokens"][0].to_string()] = (*weight).into();
    }
    let body = json!({"logit_bias": bias, "logprobs": true, "max_tokens": 400});
    let mut body = body.as_object().unwrap().clone();
    body.extend(more.as_object().unwrap().clone());
    let reply: Reply = server.chat(body.into()).await;
    reply.json()["choices"][0].clone()
}

/// The text of an answer's tokens, marks included.
fn written(choice: &Json) -> String {
    let tokens = choice["logprobs"]["content"].as_array().unwrap();
    tokens.iter().map(|token| token["token"].as_str().unwrap()).collect()
}

fn format() -> Json {
    let schema = json!({"type": "object", "properties": {"old": {"enum": [3, 4]}},
        "required": ["old"], "additionalProperties": false});
    json!({"type": "json_schema", "json_schema": {"name": "a", "schema": schema}})
}

#[tokio::test]
async fn a_schema_holds_for_the_final_channel() {
    let server = server();
    let at_once: &[_] = &[("f", 100)];
    // Thinks as soon as it may, and ends that as soon as it may.
    let thinks: &[_] = &[("a", 90), ("<|end|>", 100)];
    for (push, before) in
        [(at_once, ""), (thinks, "<|channel|>analysis<|message|><|end|><|start|>assistant")]
    {
        let choice = ask(&server, push, json!({"response_format": format()})).await;
        let content = choice["message"]["content"].as_str().unwrap();
        let value: Json = serde_json::from_str(content).unwrap_or_else(|e| panic!("{e}: {choice}"));
        assert!(value["old"] == 3 || value["old"] == 4, "{content}");
        assert_eq!(written(&choice), format!("{before}<|channel|>final<|message|>{content}"));
        assert_eq!(choice["finish_reason"], "stop");
    }
    let choice = ask(&server, at_once, json!({"guided_regex": "[0-9]{3}-[a-c]"})).await;
    let content = choice["message"]["content"].as_str().unwrap();
    assert!(content.len() == 5 && content.as_bytes()[3] == b'-', "{content}");
    assert!(written(&choice).starts_with("<|channel|>final<|message|>"));
}

#[tokio::test]
async fn calls_are_forced_in_the_commentary_channel() {
    let server = server();
    let tools = json!([tool("look"), tool("listen")]);
    let named = json!({"type": "function", "function": {"name": "listen"}});
    for (choice, name) in [(json!("required"), None), (named, Some("listen"))] {
        let body = json!({"tools": tools, "tool_choice": choice});
        let choice = ask(&server, &[("c", 100)], body).await;
        assert_eq!(choice["finish_reason"], "tool_calls", "{choice}");
        assert!(choice["message"]["content"].is_null());
        let call = &choice["message"]["tool_calls"][0]["function"];
        let called = call["name"].as_str().unwrap();
        assert!(["look", "listen"].contains(&called) && name.is_none_or(|name| name == called));
        let arguments = call["arguments"].as_str().unwrap();
        let parsed: Json = serde_json::from_str(arguments).unwrap();
        assert!(["Rome", "Oslo"].contains(&parsed["city"].as_str().unwrap()));
        assert_eq!(
            written(&choice),
            format!(
                "<|channel|>commentary to=functions.{called} <|constrain|>json<|message|>{arguments}"
            )
        );
    }
}

#[tokio::test]
async fn with_tools_an_answer_has_its_form_or_is_a_call() {
    let server = server();
    let body = json!({"tools": [tool("look")], "response_format": format()});
    let call = ask(&server, &[("c", 100)], body.clone()).await;
    assert_eq!(call["message"]["tool_calls"][0]["function"]["name"], "look");
    let answer = ask(&server, &[("f", 100)], body).await;
    let value: Json = serde_json::from_str(answer["message"]["content"].as_str().unwrap()).unwrap();
    assert!(value["old"] == 3 || value["old"] == 4);
}

#[tokio::test]
async fn an_answer_that_goes_on_has_no_header_of_its_own() {
    let server = server();
    let messages = json!([{"role": "user", "content": "How old?"},
        {"role": "assistant", "content": "It is"}]);
    let body = json!({"messages": messages, "continue_final_message": true,
        "guided_choice": [" three", " four"]});
    let choice = ask(&server, &[], body).await;
    let content = choice["message"]["content"].as_str().unwrap();
    assert!([" three", " four"].contains(&content), "{content:?}");
    assert_eq!(written(&choice), content);
}
