//! Ollama's endpoints and what they take and give.

use super::schemas::{count, flag, maybe, tokens, whole};
use super::{get, gives, in_words_of, post, reference};
use serde_json::{Map, Value as Json, json};

pub(super) fn paths() -> Map<String, Json> {
    let answer = |schema: &str| {
        json!({
            "description": "Lines of JSON, the last of them with `done: true`; with `stream: false` one object.",
            "content": {
                "application/x-ndjson": {"schema": {"type": "string"}},
                "application/json": {"schema": reference(schema)},
            },
        })
    };
    let list =
        |id: &str, summary: &str, schema: &str| get(id, summary, gives("It.", schema), &["503"]);
    let paths = [
        (
            "/api/chat",
            post("ollama_chat", "Answer a conversation", "OllamaChat", answer("OllamaChatAnswer")),
        ),
        (
            "/api/generate",
            post("ollama_generate", "Answer a prompt", "OllamaGenerate", answer("OllamaText")),
        ),
        (
            "/api/embed",
            post(
                "ollama_embed",
                "Texts as vectors",
                "OllamaEmbed",
                gives("Them.", "OllamaVectors"),
            ),
        ),
        (
            "/api/show",
            post("ollama_show", "What a model is", "OllamaShow", gives("It.", "OllamaModel")),
        ),
        ("/api/tags", list("ollama_tags", "The model's names", "OllamaModels")),
        ("/api/ps", list("ollama_ps", "What is loaded", "OllamaModels")),
        ("/api/version", list("ollama_version", "The API's version", "OllamaVersion")),
    ];
    let told = |(path, item): (&str, Json)| (path.to_owned(), in_words_of(item, "OllamaError"));
    paths.into_iter().map(told).collect()
}

pub(super) fn schemas() -> Map<String, Json> {
    let object = |required: &[&str], properties: Json| json!({"type": "object", "required": required, "properties": properties});
    let answer = |name: &str, said: Json| {
        let mut schema = object(&["model", "created_at", "done", "done_reason"], done());
        schema["properties"][name] = said;
        schema
    };
    let model = object(
        &["name", "model", "size", "digest", "details"],
        json!({
            "name": {"type": "string"}, "model": {"type": "string"}, "size": count(),
            "digest": {"type": "string"}, "details": {"type": "object"},
            "modified_at": {"type": "string", "format": "date-time"},
            "expires_at": {"type": "string", "format": "date-time"},
            "size_vram": count(), "context_length": count(),
        }),
    );
    let shown = object(
        &["details", "model_info", "capabilities"],
        json!({
            "details": {"type": "object"}, "model_info": {"type": "object"},
            "capabilities": {"type": "array", "items": {"type": "string"}},
            "template": {"type": "string"}, "parameters": {"type": "string"},
            "modelfile": {"type": "string"}, "license": {"type": "string"},
            "modified_at": {"type": "string", "format": "date-time"},
        }),
    );
    let all = [
        ("OllamaError", object(&["error"], json!({"error": {"type": "string"}}))),
        ("OllamaChat", request(chat_fields())),
        ("OllamaGenerate", request(generate_fields())),
        ("OllamaChatAnswer", answer("message", json!({"type": "object"}))),
        ("OllamaText", answer("response", json!({"type": "string"}))),
        (
            "OllamaShow",
            object(
                &["model"],
                json!({
                    "model": {"type": "string", "minLength": 1}, "name": maybe("string"),
                }),
            ),
        ),
        ("OllamaEmbed", object(&["input"], embed_fields())),
        (
            "OllamaVectors",
            object(
                &["model", "embeddings", "prompt_eval_count"],
                json!({
                    "model": {"type": "string"},
                    "embeddings": {"type": "array", "items": {"type": "array", "items": {"type": "number"}}},
                    "total_duration": count(), "load_duration": count(), "prompt_eval_count": count(),
                }),
            ),
        ),
        ("OllamaModel", shown),
        ("OllamaModels", object(&["models"], json!({"models": {"type": "array", "items": model}}))),
        ("OllamaVersion", object(&["version"], json!({"version": {"type": "string"}}))),
    ];
    all.into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect()
}

/// The end of an answer. Durations are nanoseconds.
fn done() -> Json {
    json!({
        "model": {"type": "string"},
        "created_at": {"type": "string", "format": "date-time"},
        "done": {"const": true},
        "done_reason": {"enum": ["stop", "length", "load"]},
        "total_duration": count(), "load_duration": count(),
        "prompt_eval_count": count(), "prompt_eval_duration": count(),
        "eval_count": count(), "eval_duration": count(),
        "context": tokens(),
        "logprobs": {"type": "array"},
    })
}

fn request(own: Json) -> Json {
    let mut fields = json!({
        "model": {"type": ["string", "null"], "description": "One of the model's names."},
        "stream": {"type": ["boolean", "null"], "default": true},
        "format": {"oneOf": [
            {"enum": ["", "json", null]},
            {"type": "object", "description": "A JSON schema."},
        ]},
        "options": options(),
        "think": {"enum": [null, false, true, "low", "medium", "high"]},
        "logprobs": flag(),
        "top_logprobs": whole(0, Some(20)),
    });
    if let (Json::Object(fields), Json::Object(own)) = (&mut fields, own) {
        fields.extend(own);
    }
    json!({"type": "object", "properties": fields})
}

fn embed_fields() -> Json {
    json!({
        "model": {"type": ["string", "null"], "description": "One of the model's names."},
        "input": {"oneOf": [
            {"type": "string"}, {"type": "array", "items": {"type": "string", "minLength": 1}},
        ]},
        "truncate": flag(),
        "dimensions": whole(1, None),
    })
}

fn chat_fields() -> Json {
    let call = json!({"type": "object", "required": ["function"], "properties": {
        "function": {"type": "object", "required": ["name"], "properties": {
            "name": {"type": "string"}, "arguments": {"type": "object"},
        }},
    }});
    json!({
        "messages": {"type": ["array", "null"], "items": {
            "type": "object", "required": ["role"], "properties": {
                "role": {"enum": ["system", "user", "assistant", "tool"]},
                "content": maybe("string"),
                "thinking": maybe("string"),
                "images": {"type": ["array", "null"], "items": {"type": "string", "description": "Base64."}},
                "tool_calls": {"type": ["array", "null"], "items": call},
                "tool_name": maybe("string"), "name": maybe("string"),
                "tool_call_id": maybe("string"),
            },
        }},
        "tools": {"type": ["array", "null"], "items": reference("Tool")},
    })
}

fn generate_fields() -> Json {
    json!({
        "prompt": maybe("string"),
        "suffix": maybe("string"),
        "system": maybe("string"),
        "template": {"type": ["string", "null"], "description": "A part of Go's text/template."},
        "context": {"type": ["array", "null"], "items": {"type": "integer", "minimum": 0}},
        "raw": flag(),
        "images": {"type": ["array", "null"], "items": {"type": "string", "description": "Base64."}},
    })
}

fn options() -> Json {
    json!({"type": ["object", "null"], "properties": {
        "num_ctx": whole(0, None),
        "num_predict": maybe("integer"),
        "temperature": {"type": ["number", "null"], "minimum": 0},
        "top_k": maybe("integer"),
        "top_p": {"type": ["number", "null"], "exclusiveMinimum": 0, "maximum": 1},
        "min_p": {"type": ["number", "null"], "minimum": 0, "maximum": 1},
        "typical_p": {"enum": [1, null]},
        "tfs_z": {"enum": [1, null]},
        "mirostat": {"enum": [0, null]},
        "repeat_penalty": {"type": ["number", "null"], "exclusiveMinimum": 0},
        "repeat_last_n": {"enum": [-1, 0, null]},
        "presence_penalty": maybe("number"),
        "frequency_penalty": maybe("number"),
        "seed": maybe("integer"),
        "stop": {"oneOf": [
            {"type": ["string", "null"]},
            {"type": "array", "maxItems": 64, "items": {"type": "string"}},
        ]},
    }})
}
