//! Anthropic's endpoints and what they take and give.

use super::schemas::{count, flag, maybe, number, whole};
use super::{gives, in_words_of, post, reference};
use serde_json::{Map, Value as Json, json};

pub(super) fn paths() -> Map<String, Json> {
    let answer = json!({
        "description": "The message; a stream of named events with `stream: true`.",
        "content": {
            "application/json": {"schema": reference("AnthropicMessage")},
            "text/event-stream": {"schema": {}},
        },
    });
    let version = json!([{
        "name": "anthropic-version", "in": "header", "required": false,
        "schema": {"enum": ["2023-06-01", "2026-10-21"]},
    }]);
    let post = |id: &str, summary: &str, request: &str, response: Json| {
        let mut item = post(id, summary, request, response);
        item["post"]["parameters"] = version.clone();
        in_words_of(item, "AnthropicError")
    };
    Map::from_iter([
        (
            "/v1/messages".to_owned(),
            post("messages", "Answer a conversation", "AnthropicRequest", answer),
        ),
        (
            "/v1/messages/count_tokens".to_owned(),
            post(
                "count_tokens",
                "Count the tokens of a conversation's prompt",
                "AnthropicCountRequest",
                gives("How many.", "AnthropicCount"),
            ),
        ),
    ])
}

pub(super) fn schemas() -> Map<String, Json> {
    let request =
        |required: &[&str]| json!({"type": "object", "required": required, "properties": fields()});
    let text = json!({"type": "object", "required": ["type", "text"], "properties": {
        "type": {"const": "text"}, "text": {"type": "string"},
    }});
    let input = json!({"type": "object"});
    Map::from_iter([
        (
            "AnthropicError".to_owned(),
            json!({"type": "object", "required": ["type", "error"], "properties": {
                "type": {"const": "error"},
                "error": {"type": "object", "required": ["type", "message"], "properties": {
                    "type": {"type": "string"}, "message": {"type": "string"},
                }},
            }}),
        ),
        ("AnthropicRequest".to_owned(), request(&["messages", "max_tokens"])),
        ("AnthropicCountRequest".to_owned(), request(&["messages"])),
        (
            "AnthropicCount".to_owned(),
            json!({"type": "object", "required": ["input_tokens"],
                "properties": {"input_tokens": count()}}),
        ),
        ("AnthropicText".to_owned(), text),
        (
            "AnthropicBlock".to_owned(),
            json!({"oneOf": [
                reference("AnthropicText"),
                block("thinking", json!({"thinking": {"type": "string"}})),
                block("tool_use", json!({
                    "id": {"type": "string"}, "name": {"type": "string"}, "input": input,
                })),
            ]}),
        ),
        (
            "AnthropicMessage".to_owned(),
            json!({
                "type": "object",
                "required": ["id", "type", "role", "model", "content", "stop_reason",
                    "stop_sequence", "usage"],
                "properties": {
                    "id": {"type": "string"},
                    "type": {"const": "message"},
                    "role": {"const": "assistant"},
                    "model": {"type": "string"},
                    "content": {"type": "array", "items": reference("AnthropicBlock")},
                    "stop_reason": {"enum": ["end_turn", "max_tokens", "stop_sequence", "tool_use",
                        "model_context_window_exceeded"]},
                    "stop_sequence": maybe("string"),
                    "usage": {
                        "type": "object",
                        "required": ["input_tokens", "output_tokens", "cache_read_input_tokens"],
                        "properties": {
                            "input_tokens": count(),
                            "output_tokens": count(),
                            "cache_read_input_tokens": count(),
                            "cache_creation_input_tokens": count(),
                        },
                    },
                },
            }),
        ),
    ])
}

/// A block of a type with what it must have.
fn block(kind: &str, fields: Json) -> Json {
    let mut properties = Map::from_iter([("type".to_owned(), json!({"const": kind}))]);
    if let Json::Object(fields) = fields {
        properties.extend(fields);
    }
    let required: Vec<&String> = properties.keys().collect();
    json!({"type": "object", "required": required, "properties": properties})
}

fn fields() -> Json {
    let texts = json!({"oneOf": [
        {"type": "string"},
        {"type": "array", "items": reference("AnthropicText")},
    ]});
    let mut result = block("tool_result", json!({"tool_use_id": {"type": "string"}}));
    result["properties"]["content"] = texts.clone();
    result["properties"]["is_error"] = json!({"type": "boolean"});
    let source = json!({"oneOf": [
        block("base64", json!({"data": {"type": "string"}})),
        block("url", json!({"url": {"type": "string"}})),
    ]});
    let image = block("image", json!({ "source": source }));
    let turn = |role: &str, blocks: Json| {
        json!({"type": "object", "required": ["role", "content"], "properties": {
            "role": {"const": role},
            "content": {"oneOf": [{"type": "string"}, {"type": "array", "items": blocks}]},
        }})
    };
    json!({
        "model": {"type": ["string", "null"], "description": "One of the model's names."},
        "messages": {"type": "array", "minItems": 1, "items": {"oneOf": [
            turn("user", json!({"oneOf": [reference("AnthropicText"), image, result]})),
            turn("assistant", reference("AnthropicBlock")),
        ]}},
        "max_tokens": {"type": "integer", "minimum": 0},
        "system": {"oneOf": [{"type": "null"}, texts]},
        "stream": flag(),
        "stop_sequences": {"type": ["array", "null"], "items": {"type": "string", "minLength": 1}},
        "temperature": number(0.0, None),
        "top_k": whole(0, None),
        "top_p": {"type": ["number", "null"], "exclusiveMinimum": 0, "maximum": 1},
        "tools": {"type": ["array", "null"], "items": {
            "type": "object", "required": ["name", "input_schema"], "properties": {
                "type": {"enum": ["custom", null]},
                "name": {"type": "string", "minLength": 1},
                "description": {"type": "string"},
                "input_schema": {"type": "object"},
            },
        }},
        "tool_choice": {"oneOf": [
            {"type": "null"},
            {"type": "object", "required": ["type"], "properties": {
                "type": {"enum": ["auto", "any", "none"]},
                "disable_parallel_tool_use": {"type": "boolean"},
            }},
            {"type": "object", "required": ["type", "name"], "properties": {
                "type": {"const": "tool"}, "name": {"type": "string"},
                "disable_parallel_tool_use": {"type": "boolean"},
            }},
        ]},
        "thinking": {"oneOf": [
            {"type": "null"},
            {"type": "object", "required": ["type"],
                "properties": {"type": {"enum": ["enabled", "adaptive", "disabled"]}}},
        ]},
        "output_config": {"type": ["object", "null"], "properties": {
            "effort": maybe("string"),
            "format": {"oneOf": [{"type": "null"}, form()]},
        }},
        "output_format": {"oneOf": [{"type": "null"}, form()]},
        "container": {"type": "null"},
        "mcp_servers": {"type": ["array", "null"], "maxItems": 0},
    })
}

fn form() -> Json {
    json!({"type": "object", "required": ["type", "schema"], "properties": {
        "type": {"const": "json_schema"}, "schema": {"type": "object"},
    }})
}
