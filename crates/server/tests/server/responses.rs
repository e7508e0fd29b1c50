//! OpenAI's responses: what clients rely on.

use crate::support::{Direct, NAME, Reply, model, options, tool};
use arclight_server::{App, Options};
use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use serde_json::{Value as Json, json};
use std::sync::Arc;

const RESPONSES: &str = "/v1/responses";

fn ask(more: Json) -> Json {
    let mut body = json!({"model": NAME, "input": "What is your name?", "temperature": 0,
        "max_output_tokens": 24});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

/// The same tool with its fields beside the type.
fn look() -> Json {
    let function = tool("look")["function"].clone();
    json!({"type": "function", "name": "look", "parameters": function["parameters"]})
}

fn events(reply: &Reply) -> Vec<Json> {
    assert_eq!(reply.headers["content-type"], "text/event-stream; charset=utf-8");
    assert!(reply.text.ends_with("\n\n"), "{:?}", reply.text);
    let events = reply.text.split_terminator("\n\n").enumerate().map(|(at, text)| {
        let (event, data) = text.split_once('\n').unwrap_or_else(|| panic!("{text:?}"));
        let data: Json = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
        assert_eq!(event.strip_prefix("event: "), data["type"].as_str());
        assert_eq!(data["sequence_number"], at);
        data
    });
    events.collect()
}

async fn made(server: &Direct, more: Json) -> Json {
    let reply = server.post(RESPONSES, &ask(more)).await;
    assert_eq!(reply.status, StatusCode::OK, "{}", reply.text);
    reply.json()
}

fn text(response: &Json) -> &str {
    response["output"][0]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{response}"))
}

#[tokio::test]
async fn a_stream_tells_how_the_response_grows() {
    let server = Direct::new(1);
    let whole = made(&server, json!({})).await;
    let chat = server.chat(json!({})).await.json();
    assert_eq!(text(&whole), chat["choices"][0]["message"]["content"]);
    assert_eq!(whole["usage"]["output_tokens"], chat["usage"]["completion_tokens"]);
    let events = events(&server.post(RESPONSES, &ask(json!({"stream": true}))).await);
    let kinds: Vec<&str> = events.iter().map(|e| e["type"].as_str().unwrap()).collect();
    let deltas = kinds.iter().filter(|kind| **kind == "response.output_text.delta").count();
    let mut want = vec!["response.created", "response.in_progress"];
    want.extend(["response.output_item.added", "response.content_part.added"]);
    want.extend(vec!["response.output_text.delta"; deltas]);
    want.extend(["response.output_text.done", "response.content_part.done"]);
    want.extend(["response.output_item.done", "response.completed"]);
    assert_eq!(kinds, want);
    let said: String = events.iter().filter_map(|e| e["delta"].as_str()).collect();
    assert_eq!(said, text(&whole));
    // The item is the same in all that tell of it.
    let last = &events.last().unwrap()["response"];
    let id = &last["output"][0]["id"];
    assert!(events.iter().all(|e| e.get("item_id").is_none_or(|i| i == id)));
    assert_eq!(events[events.len() - 2]["item"], last["output"][0]);
    assert_eq!(last["output"][0]["content"], whole["output"][0]["content"]);
    assert_eq!(last["status"], whole["status"]);
    // What is cached differs, what is computed does not.
    assert_eq!(last["usage"]["total_tokens"], whole["usage"]["total_tokens"]);
    let created = &events[0]["response"];
    assert_eq!((&created["status"], &created["output"]), (&json!("in_progress"), &json!([])));
    assert_eq!(created["id"], last["id"]);
}

#[tokio::test]
async fn what_is_cut_off_is_incomplete() {
    let server = Direct::new(1);
    let cut = made(&server, json!({"max_output_tokens": 2})).await;
    assert_eq!(cut["status"], "incomplete");
    assert_eq!(cut["incomplete_details"], json!({"reason": "max_output_tokens"}));
    assert_eq!(cut["output"][0]["status"], "incomplete");
    let events = events(
        &server.post(RESPONSES, &ask(json!({"stream": true, "max_output_tokens": 2}))).await,
    );
    assert_eq!(events.last().unwrap()["type"], "response.incomplete");
}

#[tokio::test]
async fn calls_are_items_with_their_events() {
    let server = Direct::new(1);
    let choice = json!({"type": "allowed_tools", "mode": "required",
        "tools": [{"type": "function", "name": "look"}]});
    let more = json!({"tools": [look(), {"type": "function", "name": "other"}],
        "tool_choice": choice, "parallel_tool_calls": false, "max_output_tokens": 400});
    let whole = made(&server, more.clone()).await;
    let call = whole["output"].as_array().unwrap().last().unwrap();
    assert_eq!((&call["type"], &call["name"]), (&json!("function_call"), &json!("look")));
    assert_eq!(call["status"], "completed");
    let arguments: Json = serde_json::from_str(call["arguments"].as_str().unwrap()).unwrap();
    assert!(arguments["city"] == "Rome" || arguments["city"] == "Oslo");
    let mut more = more;
    more["stream"] = true.into();
    let events = events(&server.post(RESPONSES, &ask(more)).await);
    let of = |kind: &str| {
        let kind = format!("response.function_call_arguments.{kind}");
        events.iter().filter(move |e| e["type"] == *kind).collect::<Vec<_>>()
    };
    let pieces: String = of("delta").iter().map(|e| e["delta"].as_str().unwrap()).collect();
    assert_eq!(pieces, call["arguments"]);
    assert_eq!(of("done")[0]["arguments"], call["arguments"]);

    // Its result goes on from the response, by the id of the call.
    let result =
        json!([{"type": "function_call_output", "call_id": call["call_id"], "output": "rain"}]);
    let after = json!({"previous_response_id": whole["id"], "input": result});
    let after = made(&server, after).await;
    let items = format!("{RESPONSES}/{}/input_items?order=asc", after["id"].as_str().unwrap());
    let items = server.get(&items).await.json();
    let kinds: Vec<&Json> = items["data"].as_array().unwrap().iter().map(|i| &i["type"]).collect();
    assert_eq!(kinds.last().unwrap(), &"function_call_output");
    assert_eq!(kinds[kinds.len() - 2], "function_call");
}

#[tokio::test]
async fn a_conversation_goes_on_from_what_is_kept() {
    let server = Direct::new(1);
    let first = made(&server, json!({"instructions": "You are an owl."})).await;
    let id = first["id"].as_str().unwrap();
    let second = json!({"previous_response_id": id, "input": "And mine?"});
    let second = made(&server, second).await;
    // Instructions are of one response only.
    let messages = json!([
        {"role": "user", "content": "What is your name?"},
        {"role": "assistant", "content": text(&first)},
        {"role": "user", "content": "And mine?"},
    ]);
    let chat = server.chat(json!({"messages": messages})).await.json();
    assert_eq!(text(&second), chat["choices"][0]["message"]["content"]);
    // By the id of the item.
    let item = &first["output"][0]["id"];
    let input = json!([
        {"role": "user", "content": "What is your name?"},
        {"type": "item_reference", "id": item},
        {"role": "user", "content": "And mine?"},
    ]);
    assert_eq!(text(&made(&server, json!({"input": input})).await), text(&second));

    assert_eq!(server.get(&format!("{RESPONSES}/{id}")).await.json(), first);
    let page = format!("{RESPONSES}/{}/input_items?limit=2", second["id"].as_str().unwrap());
    let page = server.get(&page).await.json();
    assert_eq!((page["data"].as_array().unwrap().len(), &page["has_more"]), (2, &json!(true)));
    let delete = Request::builder().method(Method::DELETE).uri(format!("{RESPONSES}/{id}"));
    let deleted = server.send(delete.body(Body::empty()).unwrap()).await;
    assert_eq!(deleted.json()["deleted"], true);
    assert_eq!(server.get(&format!("{RESPONSES}/{id}")).await.status, StatusCode::NOT_FOUND);
    let gone = server.post(RESPONSES, &ask(json!({"previous_response_id": id}))).await;
    assert_eq!(gone.status, StatusCode::BAD_REQUEST);
    assert_eq!(gone.json()["error"]["code"], "previous_response_not_found");
    // What was made from it stays.
    let third = json!({"previous_response_id": second["id"], "input": "And his?"});
    made(&server, third).await;
    let forgotten = made(&server, json!({"store": false})).await;
    let forgotten = format!("{RESPONSES}/{}", forgotten["id"].as_str().unwrap());
    assert_eq!(server.get(&forgotten).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_key_sees_its_own_responses_only() {
    let keys = crate::support::keys(&["mine", "yours"]);
    let app = Arc::new(App::new(Options { keys, ..options() }));
    app.ready(model(1, 4));
    let server = Direct::of(app);
    let send = async |key: &str, request: axum::http::request::Builder, body: Body| {
        let request = request.header("authorization", format!("Bearer {key}"));
        server.send(request.body(body).unwrap()).await
    };
    let body = || Body::from(ask(json!({})).to_string());
    let made = send("mine", Request::post(RESPONSES), body()).await.json();
    let path = format!("{RESPONSES}/{}", made["id"].as_str().unwrap());
    let get = async |key| send(key, Request::get(path.as_str()), Body::empty()).await.status;
    assert_eq!(get("mine").await, StatusCode::OK);
    assert_eq!(get("yours").await, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn forms_and_logprobs() {
    let server = Direct::new(1);
    let schema = tool("look")["function"]["parameters"].clone();
    let form = json!({"format": {"type": "json_schema", "name": "c", "schema": schema}});
    let bound = made(&server, json!({"text": form, "max_output_tokens": 400})).await;
    let said: Json = serde_json::from_str(text(&bound)).unwrap();
    assert!(said["city"] == "Rome" || said["city"] == "Oslo");
    assert_eq!(bound["text"]["format"]["type"], "json_schema");
    let more = json!({"include": ["message.output_text.logprobs"], "top_logprobs": 2,
        "max_output_tokens": 3});
    let told = made(&server, more.clone()).await;
    let logprobs = told["output"][0]["content"][0]["logprobs"].as_array().unwrap().clone();
    assert_eq!(logprobs.len(), 3);
    assert!(logprobs.iter().all(|l| l["top_logprobs"].as_array().unwrap().len() == 2));
    let mut more = more;
    more["stream"] = true.into();
    let events = events(&server.post(RESPONSES, &ask(more)).await);
    let streamed: Vec<Json> = events
        .iter()
        .filter(|e| e["type"] == "response.output_text.delta")
        .flat_map(|e| e["logprobs"].as_array().unwrap().clone())
        .collect();
    assert_eq!(streamed, logprobs);
}

#[tokio::test]
async fn faults_name_their_field() {
    let server = Direct::new(1);
    for (more, param) in [
        (json!({"input": 1}), "input"),
        (json!({"input": []}), "input"),
        (json!({"input": [{"type": "telepathy_call"}]}), "input[0].type"),
        (json!({"input": [{"type": "item_reference", "id": "msg_none"}]}), "input[0].id"),
        (json!({"tools": [{"type": "telepathy"}]}), "tools[0].type"),
        (json!({"tools": [{"type": "function"}]}), "tools[0].name"),
        (json!({"tool_choice": "required"}), "tool_choice"),
        (json!({"text": {"format": {"type": "xml"}}}), "text.format.type"),
        (json!({"text": {"format": {"type": "json_schema"}}}), "text.format.schema"),
        (json!({"max_output_tokens": 0}), "max_output_tokens"),
        (json!({"background": true}), "background"),
        (json!({"truncation": "middle"}), "truncation"),
        (json!({"conversation": "conv_1"}), "conversation"),
        (json!({"top_logprobs": 21}), "logprobs"),
        (json!({"n": 2}), "n"),
        (json!({"temperature": -1}), "temperature"),
    ] {
        let reply = server.post(RESPONSES, &ask(more.clone())).await;
        assert_eq!(reply.status, StatusCode::BAD_REQUEST, "{more}: {}", reply.text);
        assert_eq!(reply.json()["error"]["param"], param, "{more}: {}", reply.text);
    }
    let other = server.post(RESPONSES, &ask(json!({"model": "other"}))).await;
    assert_eq!(other.status, StatusCode::NOT_FOUND);
    let counted = server.post("/v1/responses/input_tokens", &ask(json!({}))).await.json();
    let chat = server.chat(json!({})).await.json();
    assert_eq!(counted["input_tokens"], chat["usage"]["prompt_tokens"]);
}
