//! OpenAI's responses and what they take and give.

use super::schemas::{count, flag, maybe, whole, with_sampling};
use super::{get, gives, post, reference};
use serde_json::{Map, Value as Json, json};

pub(super) fn paths() -> Map<String, Json> {
    let answer = json!({
        "description": "The response; a stream of named events with `stream: true`.",
        "content": {
            "application/json": {"schema": reference("Response")},
            "text/event-stream": {"schema": {}},
        },
    });
    let id = json!({"name": "id", "in": "path", "required": true,
        "schema": {"type": "string", "pattern": "^resp_[A-Za-z0-9]+$"}});
    let mut one = get("response", "A response", gives("It.", "Response"), &["404"]);
    let mut delete =
        get("delete_response", "Forget it", gives("Done.", "DeletedResponse"), &["404"]);
    one["delete"] = delete["get"].take();
    one["parameters"] = json!([id]);
    let items = gives("Items.", "ResponseItems");
    let mut items = get("input_items", "What a response answered", items, &["400", "404"]);
    items["parameters"] = json!([
        id,
        query("after", json!({"type": "string"})),
        query("limit", json!({"type": "integer", "minimum": 1, "maximum": 100})),
        query("order", json!({"enum": ["asc", "desc"]})),
    ]);
    Map::from_iter([
        (
            "/v1/responses".to_owned(),
            post("respond", "Answer items, and keep the answer", "ResponseRequest", answer),
        ),
        (
            "/v1/responses/input_tokens".to_owned(),
            post(
                "input_tokens",
                "Count the tokens of a prompt",
                "ResponseRequest",
                gives("How many.", "InputTokens"),
            ),
        ),
        ("/v1/responses/{id}".to_owned(), one),
        ("/v1/responses/{id}/input_items".to_owned(), items),
    ])
}

fn query(name: &str, schema: Json) -> Json {
    json!({"name": name, "in": "query", "required": false, "schema": schema})
}

pub(super) fn schemas() -> Map<String, Json> {
    let object = |required: &[&str], properties: Json| json!({"type": "object", "required": required, "properties": properties});
    let mut request = with_sampling(&[], fields());
    // Here these have other names, or no meaning.
    if let Json::Object(properties) = &mut request["properties"] {
        for name in ["max_tokens", "stream_options"] {
            properties.remove(name);
        }
        properties.insert("n".to_owned(), json!({"enum": [1, null]}));
    }
    let list = json!({"type": "array", "items": {"type": "object"}});
    let all = [
        ("ResponseRequest", request),
        (
            "Response",
            object(
                &["id", "object", "created_at", "status", "model", "output", "usage"],
                json!({
                    "id": {"type": "string"},
                    "object": {"const": "response"},
                    "created_at": count(),
                    "completed_at": {"type": ["integer", "null"]},
                    "status": {"enum": ["in_progress", "completed", "incomplete", "failed"]},
                    "model": {"type": "string"},
                    "output": list,
                    "error": maybe("object"),
                    "incomplete_details": maybe("object"),
                    "usage": maybe("object"),
                }),
            ),
        ),
        (
            "ResponseItems",
            object(
                &["object", "data", "has_more"],
                json!({
                    "object": {"const": "list"}, "data": list, "has_more": {"type": "boolean"},
                    "first_id": maybe("string"), "last_id": maybe("string"),
                }),
            ),
        ),
        (
            "DeletedResponse",
            object(
                &["id", "object", "deleted"],
                json!({
                    "id": {"type": "string"}, "object": {"const": "response"},
                    "deleted": {"const": true},
                }),
            ),
        ),
        (
            "InputTokens",
            object(
                &["object", "input_tokens"],
                json!({
                    "object": {"const": "response.input_tokens"}, "input_tokens": count(),
                }),
            ),
        ),
    ];
    all.into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect()
}

fn fields() -> Json {
    let part = json!({"type": "object", "required": ["type", "text"], "properties": {
        "type": {"enum": ["input_text", "output_text"]}, "text": {"type": "string"},
    }});
    let text = json!({"oneOf": [{"type": "string"}, {"type": "array", "items": part}]});
    let item = |kind: &str, required: &[&str], properties: Json| {
        let mut item = json!({"type": "object", "required": required, "properties": properties});
        item["properties"]["type"] = json!({"const": kind});
        item
    };
    let string = json!({"type": "string"});
    json!({
        "input": {"oneOf": [
            {"type": "string"},
            {"type": "array", "minItems": 1, "items": {"anyOf": [
                item("message", &["role", "content"], json!({
                    "role": {"enum": ["user", "assistant", "system", "developer"]}, "content": text,
                })),
                item("function_call", &["type", "call_id", "name", "arguments"], json!({
                    "call_id": string, "name": string,
                    "arguments": {"type": "string", "description": "JSON."},
                })),
                item("function_call_output", &["type", "call_id", "output"], json!({
                    "call_id": string, "output": text,
                })),
                item("reasoning", &["type"], json!({"content": {"type": "array"}})),
                item("item_reference", &["type", "id"], json!({"id": string})),
            ]}},
        ]},
        "instructions": maybe("string"),
        "previous_response_id": maybe("string"),
        "store": {"type": ["boolean", "null"], "default": true},
        "tools": {"type": ["array", "null"], "items": {
            "type": "object", "required": ["type", "name"], "properties": {
                "type": {"const": "function"},
                "name": {"type": "string", "minLength": 1},
                "description": maybe("string"),
                "parameters": maybe("object"),
                "strict": flag(),
            },
        }},
        "tool_choice": {"oneOf": [
            {"enum": ["auto", "none", "required", "any", null]},
            {"type": "object", "required": ["type", "name"], "properties": {
                "type": {"const": "function"}, "name": {"type": "string"},
            }},
            {"type": "object", "required": ["type", "mode", "tools"], "properties": {
                "type": {"const": "allowed_tools"}, "mode": {"enum": ["auto", "required"]},
                "tools": {"type": "array", "items": {"type": "object"}},
            }},
        ]},
        "parallel_tool_calls": flag(),
        "text": {"type": ["object", "null"], "properties": {"format": {"oneOf": [
            {"type": "null"},
            {"type": "object", "required": ["type"],
                "properties": {"type": {"enum": ["text", "json_object"]}}},
            {"type": "object", "required": ["type", "schema"], "properties": {
                "type": {"const": "json_schema"}, "schema": {"type": "object"},
                "name": {"type": "string"},
            }},
        ]}}},
        "reasoning": {"type": ["object", "null"], "properties": {"effort": maybe("string")}},
        "max_output_tokens": whole(1, None),
        "include": {"type": ["array", "null"], "items": {"type": "string"}},
        "top_logprobs": whole(0, Some(20)),
        "metadata": maybe("object"),
        "user": maybe("string"),
        "safety_identifier": maybe("string"),
        "truncation": {"enum": ["disabled", null]},
        "background": {"enum": [false, null]},
        "conversation": {"type": "null"},
        "prompt": {"type": "null"},
        "context_management": {"type": ["array", "null"], "maxItems": 0},
        "moderation": {"type": "null"},
    })
}
