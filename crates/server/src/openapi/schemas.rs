//! The schemas that paths refer to.

use super::reference;
use serde_json::{Map, Value as Json, json};

pub(super) fn all() -> Map<String, Json> {
    let mut all = Map::new();
    let mut add = |name: &str, schema: Json| all.insert(name.to_owned(), schema);
    add(
        "Error",
        json!({
            "type": "object", "required": ["error"], "properties": {"error": {
                "type": "object", "required": ["message", "type", "param", "code"], "properties": {
                    "message": {"type": "string"},
                    "type": {"type": "string"},
                    "param": {"type": ["string", "null"]},
                    "code": {"type": ["string", "null"]},
                },
            }},
        }),
    );
    add("ChatRequest", with_sampling(&["messages"], chat_fields()));
    add("TextRequest", with_sampling(&["prompt"], text_fields()));
    add("EmbeddingRequest", embed_request());
    add("Embeddings", embeddings());
    add("RerankRequest", rerank_request());
    add("Ranked", ranked());
    add("Message", message());
    add(
        "Tool",
        json!({
            "type": "object", "required": ["type", "function"], "properties": {
                "type": {"const": "function"},
                "function": {"type": "object", "required": ["name"], "properties": {
                    "name": {"type": "string", "minLength": 1},
                    "description": {"type": "string"},
                    "parameters": {"type": "object"},
                }},
            },
        }),
    );
    add(
        "Usage",
        json!({
            "type": "object", "required": ["prompt_tokens", "completion_tokens", "total_tokens"],
            "properties": {
                "prompt_tokens": count(), "completion_tokens": count(), "total_tokens": count(),
                "prompt_tokens_details": {"type": "object", "properties": {"cached_tokens": count()}},
                "completion_tokens_details": {
                    "type": "object", "properties": {"reasoning_tokens": count()},
                },
            },
        }),
    );
    add(
        "ChatCompletion",
        answer(
            "chat.completion",
            json!({
                "index": count(),
                "message": reference("Message"),
                "logprobs": {"type": ["object", "null"]},
                "finish_reason": {"enum": ["stop", "length", "tool_calls"]},
            }),
        ),
    );
    add(
        "ChatChunk",
        answer(
            "chat.completion.chunk",
            json!({
                "index": count(),
                "delta": {"type": "object"},
                "logprobs": {"type": ["object", "null"]},
                "finish_reason": {"enum": ["stop", "length", "tool_calls", null]},
            }),
        ),
    );
    add(
        "Completion",
        answer(
            "text_completion",
            json!({
                "index": count(),
                "text": {"type": "string"},
                "logprobs": {"type": ["object", "null"]},
                "finish_reason": {"enum": ["stop", "length", null]},
            }),
        ),
    );
    add(
        "Model",
        json!({
            "type": "object", "required": ["id", "object", "created", "owned_by"], "properties": {
                "id": {"type": "string"}, "object": {"const": "model"}, "created": count(),
                "owned_by": {"type": "string"},
                "parent": {"type": ["string", "null"], "description": "An adapter's model."},
                "max_model_len": {"type": ["integer", "null"]},
            },
        }),
    );
    add(
        "Models",
        json!({
            "type": "object", "required": ["object", "data"], "properties": {
                "object": {"const": "list"}, "data": {"type": "array", "items": reference("Model")},
            },
        }),
    );
    add(
        "AdapterScale",
        json!({
            "type": "object", "required": ["id", "scale"],
            "properties": {"id": count(), "scale": {"type": "number"}},
        }),
    );
    add("AdapterScales", json!({"type": "array", "items": reference("AdapterScale")}));
    add(
        "Adapters",
        json!({
            "type": "array", "items": {
                "type": "object", "required": ["id", "name", "path", "scale"], "properties": {
                    "id": count(), "name": {"type": "string"}, "path": {"type": "string"},
                    "scale": {"type": "number"},
                },
            },
        }),
    );
    add(
        "Success",
        json!({
            "type": "object", "required": ["success"], "properties": {"success": {"const": true}},
        }),
    );
    add(
        "TokenizeRequest",
        json!({
            "type": "object",
            "oneOf": [{"required": ["prompt"]}, {"required": ["content"]}, {"required": ["messages"]}],
            "properties": {
                "model": {"type": ["string", "null"]},
                "prompt": {"type": "string"},
                "content": {"type": "string", "description": "The same as prompt."},
                "messages": {"type": "array", "minItems": 1, "items": reference("Message")},
                "add_special_tokens": flag(), "add_special": flag(), "parse_special": flag(),
                "return_token_strs": flag(), "with_pieces": flag(),
            },
        }),
    );
    add(
        "Tokens",
        json!({
            "type": "object", "required": ["count", "max_model_len", "tokens"], "properties": {
                "count": count(), "max_model_len": count(), "tokens": tokens(),
                "token_strs": {"type": "array"},
            },
        }),
    );
    add(
        "DetokenizeRequest",
        json!({
            "type": "object", "required": ["tokens"],
            "properties": {"model": {"type": ["string", "null"]}, "tokens": tokens()},
        }),
    );
    add(
        "Text",
        json!({
            "type": "object", "required": ["prompt", "content"],
            "properties": {"prompt": {"type": "string"}, "content": {"type": "string"}},
        }),
    );
    add(
        "Prompt",
        json!({
            "type": "object", "required": ["prompt"], "properties": {"prompt": {"type": "string"}},
        }),
    );
    add(
        "Health",
        json!({
            "type": "object", "required": ["status", "running", "waiting"], "properties": {
                "status": {"const": "ok"}, "running": count(), "waiting": count(),
            },
        }),
    );
    add(
        "SlotRequest",
        json!({
            "type": "object", "required": ["filename"],
            "properties": {"filename": {"type": "string"}},
        }),
    );
    let ms = || json!({"type": "object"});
    add(
        "Slot",
        json!({
            "type": "object", "required": ["id_slot"], "properties": {
                "id_slot": count(), "filename": {"type": "string"}, "n_saved": count(), "n_written": count(),
                "n_restored": count(), "n_read": count(), "n_erased": count(), "timings": ms(),
            },
        }),
    );
    for more in [super::anthropic::schemas(), super::ollama::schemas(), super::responses::schemas()]
    {
        all.extend(more);
    }
    all
}

pub(super) fn count() -> Json {
    json!({"type": "integer", "minimum": 0})
}

pub(super) fn flag() -> Json {
    json!({"type": ["boolean", "null"]})
}

pub(super) fn tokens() -> Json {
    json!({"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": u32::MAX}})
}

pub(super) fn maybe(kind: &str) -> Json {
    json!({"type": [kind, "null"]})
}

pub(super) fn number(least: f64, most: Option<f64>) -> Json {
    let mut schema = json!({"type": ["number", "null"], "minimum": least});
    if let Some(most) = most {
        schema["maximum"] = most.into();
    }
    schema
}

pub(super) fn whole(least: i64, most: Option<i64>) -> Json {
    let mut schema = json!({"type": ["integer", "null"], "minimum": least});
    if let Some(most) = most {
        schema["maximum"] = most.into();
    }
    schema
}

/// A request: fields of its own, and those of sampling.
pub(super) fn with_sampling(required: &[&str], fields: Json) -> Json {
    let mut properties = sampling();
    if let Json::Object(fields) = fields {
        properties.extend(fields);
    }
    json!({"type": "object", "required": required, "properties": properties})
}

fn sampling() -> Map<String, Json> {
    let fields = json!({
        "model": {"type": ["string", "null"], "description": "One of the model's names, or an adapter's."},
        "n": whole(1, Some(128)),
        "temperature": number(0.0, None),
        "top_p": {"type": ["number", "null"], "exclusiveMinimum": 0, "maximum": 1},
        "top_k": whole(-1, None),
        "min_p": number(0.0, Some(1.0)),
        "repetition_penalty": {"type": ["number", "null"], "exclusiveMinimum": 0},
        "presence_penalty": maybe("number"),
        "frequency_penalty": maybe("number"),
        "seed": {"type": ["integer", "null"], "minimum": i64::MIN, "maximum": i64::MAX},
        "stop": {"oneOf": [
            {"type": ["string", "null"]},
            {"type": "array", "maxItems": 64, "items": {"type": "string"}},
        ]},
        "stop_token_ids": {"type": ["array", "null"], "items": {"type": "integer", "minimum": 0}},
        "logit_bias": {
            "type": ["object", "null"],
            "description": "Token ids, and what is added to their logits.",
            "propertyNames": {"pattern": "^[0-9]+$"},
            "additionalProperties": {"type": "number", "minimum": -100, "maximum": 100},
        },
        "max_tokens": whole(0, None),
        "min_tokens": whole(0, None),
        "ignore_eos": flag(),
        "priority": {
            "type": ["integer", "null"], "minimum": -128, "maximum": 127,
            "description": "Lower ones are served first.",
        },
        "lora": {
            "type": ["array", "null"], "items": reference("AdapterScale"),
            "description": "The adapters that the request has: no others.",
        },
        "prompt_cache_key": {
            "type": ["string", "null"],
            "description": "Requests of one key go to the same replica.",
        },
        "stream": flag(),
        "stream_options": {
            "type": ["object", "null"], "properties": {"include_usage": flag()},
            "description": "Only with stream.",
        },
        "response_format": {"oneOf": [
            {"type": "null"},
            {"type": "object", "required": ["type"],
                "properties": {"type": {"enum": ["text", "json_object"]}}},
            {"type": "object", "required": ["type", "json_schema"], "properties": {
                "type": {"const": "json_schema"},
                "json_schema": {"type": "object", "required": ["schema"], "properties": {
                    "name": {"type": "string"}, "schema": {"type": "object"},
                    "strict": flag(),
                }},
            }},
        ]},
        "structured_outputs": {
            "type": ["object", "null"], "maxProperties": 1, "additionalProperties": false,
            "properties": {
                "json": {"type": ["object", "string"]}, "regex": {"type": "string"},
                "choice": {"type": "array", "minItems": 1, "items": {"type": "string"}},
                "grammar": {"type": "string", "description": "In Lark."},
                "json_object": {"const": true},
            },
        },
        "guided_json": {"type": ["object", "string", "null"]},
        "guided_regex": maybe("string"),
        "guided_choice": {"type": ["array", "null"], "minItems": 1, "items": {"type": "string"}},
        "guided_grammar": {"type": ["string", "null"], "description": "In Lark."},
        "grammar": {"type": "null", "description": "GBNF is not supported."},
        "best_of": {"type": ["integer", "null"], "description": "Only the same as n."},
    });
    match fields {
        Json::Object(fields) => fields,
        _ => Map::new(),
    }
}

fn chat_fields() -> Json {
    json!({
        "messages": {"type": "array", "minItems": 1, "items": reference("Message")},
        "tools": {"type": ["array", "null"], "items": reference("Tool")},
        "tool_choice": {"oneOf": [
            {"type": "null"},
            {"enum": ["auto", "none", "required", "any"]},
            {"type": "object", "required": ["type", "function"], "properties": {
                "type": {"const": "function"},
                "function": {"type": "object", "required": ["name"],
                    "properties": {"name": {"type": "string"}}},
            }},
        ]},
        "parallel_tool_calls": flag(),
        "functions": {"type": "null"},
        "function_call": {"type": "null"},
        "logprobs": flag(),
        "top_logprobs": whole(0, Some(20)),
        "max_tokens": whole(1, None),
        "max_completion_tokens": whole(1, None),
        "reasoning_effort": maybe("string"),
        "chat_template_kwargs": maybe("object"),
        "add_generation_prompt": flag(),
        "continue_final_message": flag(),
        "modalities": {"type": ["array", "null"], "items": {"const": "text"}},
        "audio": {"type": "null"},
        "web_search_options": {"type": "null"},
    })
}

/// A text, several, tokens, or several lists of them.
fn texts() -> Json {
    json!({"oneOf": [
        {"type": "string"},
        tokens(),
        {"type": "array", "minItems": 1, "items": {"type": "string"}},
        {"type": "array", "minItems": 1, "items": tokens()},
    ]})
}

fn embed_request() -> Json {
    json!({
        "type": "object", "required": ["input"], "properties": {
            "model": {"type": ["string", "null"], "description": "One of the model's names."},
            "input": texts(),
            "encoding_format": {
                "enum": ["float", "base64", null], "default": "float",
                "description": "Numbers, or the same as f32, little-endian, in base64.",
            },
            "dimensions": whole(1, None),
        },
    })
}

fn embeddings() -> Json {
    let item = json!({
        "type": "object", "required": ["object", "index", "embedding"], "properties": {
            "object": {"const": "embedding"},
            "index": count(),
            "embedding": {"oneOf": [
                {"type": "array", "items": {"type": "number"}}, {"type": "string"},
            ]},
        },
    });
    json!({
        "type": "object", "required": ["object", "data", "model", "usage"], "properties": {
            "object": {"const": "list"},
            "data": {"type": "array", "items": item},
            "model": {"type": "string"},
            "usage": {
                "type": "object", "required": ["prompt_tokens", "total_tokens"],
                "properties": {"prompt_tokens": count(), "total_tokens": count()},
            },
        },
    })
}

fn rerank_request() -> Json {
    let text = json!({"oneOf": [
        {"type": "string"},
        {"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}}},
    ]});
    let documents =
        json!({"type": ["array", "null"], "minItems": 1, "maxItems": 10_000, "items": text});
    json!({
        "type": "object", "required": ["query"], "properties": {
            "model": {"type": ["string", "null"], "description": "One of the model's names."},
            "query": text,
            "documents": documents,
            "texts": documents,
            "top_n": whole(1, None),
            "return_documents": flag(),
            "max_tokens_per_doc": whole(1, None),
            "truncate": flag(),
            "raw_scores": flag(),
        },
    })
}

fn ranked() -> Json {
    let item = json!({
        "type": "object", "required": ["index", "relevance_score"], "properties": {
            "index": count(),
            "relevance_score": {"type": "number"},
            "document": {"type": "object", "properties": {"text": {"type": "string"}}},
        },
    });
    json!({
        "type": "object", "required": ["id", "object", "model", "results", "usage"], "properties": {
            "id": {"type": "string"},
            "object": {"const": "list"},
            "model": {"type": "string"},
            "results": {"type": "array", "items": item},
            "usage": {
                "type": "object", "required": ["prompt_tokens", "total_tokens"],
                "properties": {"prompt_tokens": count(), "total_tokens": count()},
            },
        },
    })
}

fn text_fields() -> Json {
    json!({
        "prompt": texts(),
        "suffix": maybe("string"),
        "echo": flag(),
        "logprobs": whole(0, Some(20)),
    })
}

fn message() -> Json {
    let text = json!({
        "type": "object", "required": ["type", "text"],
        "properties": {"type": {"const": "text"}, "text": {"type": "string"}},
    });
    let url = json!({"type": "string", "description": "A data URL in base64, or file://PATH."});
    let image = json!({
        "type": "object", "required": ["type", "image_url"], "properties": {
            "type": {"const": "image_url"},
            "image_url": {"oneOf": [
                url.clone(),
                {"type": "object", "required": ["url"], "properties": {"url": url}},
            ]},
        },
    });
    let part = json!({"oneOf": [text, image]});
    let call = json!({
        "type": "object", "required": ["function"], "properties": {
            "id": {"type": "string"}, "type": {"const": "function"},
            "function": {"type": "object", "required": ["name", "arguments"], "properties": {
                "name": {"type": "string"},
                "arguments": {"type": "string", "description": "JSON."},
            }},
        },
    });
    json!({
        "type": "object", "required": ["role"], "properties": {
            "role": {"enum": ["system", "developer", "user", "assistant", "tool", "function"]},
            "content": {"oneOf": [
                {"type": ["string", "null"]},
                {"type": "array", "items": part},
            ]},
            "reasoning_content": maybe("string"),
            "reasoning": maybe("string"),
            "refusal": maybe("string"),
            "tool_calls": {"type": ["array", "null"], "items": call},
            "name": maybe("string"),
            "tool_call_id": maybe("string"),
        },
    })
}

/// An answer of a kind, with what its choices have.
fn answer(kind: &str, choice: Json) -> Json {
    let required: Vec<&String> = choice.as_object().into_iter().flat_map(Map::keys).collect();
    let required: Vec<&String> =
        required.into_iter().filter(|name| name.as_str() != "delta").collect();
    json!({
        "type": "object", "required": ["id", "object", "created", "model", "choices"],
        "properties": {
            "id": {"type": "string"},
            "object": {"const": kind},
            "created": count(),
            "model": {"type": "string"},
            "system_fingerprint": {"type": "string"},
            "choices": {"type": "array", "items": {
                "type": "object", "required": required, "properties": choice,
            }},
            "usage": {"oneOf": [{"type": "null"}, reference("Usage")]},
        },
    })
}
