//! Text and tokens, health and figures.

use super::{fault, get, gives, post};
use serde_json::{Map, Value as Json, json};

fn slots() -> Json {
    let mut item = post(
        "slot",
        "Save, restore or erase what the last request of a slot has left",
        "SlotRequest",
        gives("It is done.", "Slot"),
    );
    item["post"]["requestBody"]["required"] = false.into();
    item["post"]["responses"]["501"] = fault("The server was started without --slot-save-path.");
    item["post"]["parameters"] = json!([
        {"name": "id", "in": "path", "required": true, "schema": {"type": "integer", "minimum": 0}},
        {"name": "action", "in": "query", "required": true, "schema": {"enum": ["save", "restore", "erase"]}},
    ]);
    item
}

fn adapters() -> Json {
    let all = gives("All, with the scales of requests that say nothing.", "Adapters");
    let mut item = get("adapters", "The adapters that the model was loaded with", all, &["503"]);
    let change = post(
        "scale_adapters",
        "Set these scales; adapters that are not listed are off",
        "AdapterScales",
        gives("It is done.", "Success"),
    );
    item["post"] = change["post"].clone();
    item
}

pub(super) fn paths() -> Map<String, Json> {
    let text = |kind: &str, description: &str| json!({"description": description, "content": {kind: {"schema": {"type": "string"}}}});
    let document = json!({
        "description": "OpenAPI 3.1.",
        "content": {"application/json": {"schema": {"type": "object"}}},
    });
    Map::from_iter([
        (
            "/tokenize".to_owned(),
            post(
                "tokenize",
                "Tokens of a text or a conversation",
                "TokenizeRequest",
                gives("Tokens.", "Tokens"),
            ),
        ),
        (
            "/detokenize".to_owned(),
            post("detokenize", "Text of tokens", "DetokenizeRequest", gives("Text.", "Text")),
        ),
        (
            "/apply-template".to_owned(),
            post(
                "apply_template",
                "The prompt that a conversation becomes",
                "ChatRequest",
                gives("Text.", "Prompt"),
            ),
        ),
        ("/lora-adapters".to_owned(), adapters()),
        ("/slots/{id}".to_owned(), slots()),
        (
            "/health".to_owned(),
            get("health", "Whether requests are served", gives("They are.", "Health"), &["503"]),
        ),
        (
            "/metrics".to_owned(),
            get(
                "metrics",
                "Figures for Prometheus",
                text("text/plain", "Prometheus' text format."),
                &[],
            ),
        ),
        ("/openapi.json".to_owned(), get("openapi", "This document", document, &[])),
    ])
}
