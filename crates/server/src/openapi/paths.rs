//! The paths of each protocol.

use super::document::{Both, Document};
use crate::adapters::{Adapter, AdapterScale, Success};
use crate::anthropic::{self, Count, CountBody, MessagesBody};
use crate::cluster::render::Rendered;
use crate::models::{Changed, CopyBody, CreateBody, DeleteBody, Named, Progress, PullBody};
use crate::ollama::{self, Shared};
use crate::openai::chat::{ChatBody, ChatChoice};
use crate::openai::chat_stream::ChatDelta;
use crate::openai::completions::{TextBody, TextChoice};
use crate::openai::embeddings::{EmbedBody, List};
use crate::openai::llama::{Completed, CompletionBody, InfillBody, Props, SlotState};
use crate::openai::models::{Model, Models};
use crate::openai::wire::Object;
use crate::openai::{sampling::Sampling, shapes};
use crate::operate::{Health, Load, Version};
use crate::page;
use crate::rerank::{Ranked, RerankBody};
use crate::responses::{
    self, CompactBody, Compacted, DeletedResponse, InputTokens, ResponseBody, ResponseItems,
};
use crate::score::{ScoreBody, Scored};
use crate::slots::{Action, Slot, SlotBody};
use crate::status::Status;
use crate::text::{DetokenizeBody, Prompt, Text, TokenizeBody, TokenizerInfo, Tokens};
use serde_json::{Value as Json, json};

const EVENTS: &str = "text/event-stream";

pub(super) fn openai(doc: &mut Document) {
    doc.faults::<shapes::Error>();
    let text = "The answer; a stream of events with `stream: true`, each a chunk, the last [DONE].";
    let chunk = json!({"schema": {}, "x-event": doc.answer::<Object<ChatDelta>>()});
    let chat = doc.post::<Both<ChatBody, Sampling>, Object<ChatChoice>>(
        "/v1/chat/completions",
        "chat",
        "Answer a conversation",
    );
    also(chat, text, EVENTS, chunk);
    let chunk = json!({"schema": {}, "x-event": doc.answer::<Object<TextChoice>>()});
    let complete = doc.post::<Both<TextBody, Sampling>, Object<TextChoice>>(
        "/v1/completions",
        "complete",
        "Continue texts",
    );
    also(complete, text, EVENTS, chunk);
    doc.post::<Both<ChatBody, Sampling>, Rendered>(
        "/v1/chat/completions/render",
        "render_chat",
        "The tokens that a conversation becomes",
    );
    doc.post::<Both<TextBody, Sampling>, Vec<Rendered>>(
        "/v1/completions/render",
        "render_texts",
        "The tokens that texts become",
    );
    doc.post::<EmbedBody, List>("/v1/embeddings", "embed", "Texts as vectors");
    for (path, id, summary) in [
        ("/v1/rerank", "rerank", "Documents by how well they answer a query"),
        ("/v2/rerank", "rerank_v2", "As /v1/rerank"),
        ("/rerank", "rerank_plain", "As /v1/rerank"),
    ] {
        doc.post::<RerankBody, Ranked>(path, id, summary);
    }
    doc.post::<ScoreBody, Scored>("/v1/score", "score", "How well texts answer others");
    doc.get::<Models>("/v1/models", "models", "The model's names", &[]);
    let one = doc.get::<Model>("/v1/models/{model}", "model", "One of the model's names", &[404]);
    let mut name = parameter("path", "model", json!({"type": "string", "minLength": 1}));
    name["description"] = "May have slashes.".into();
    one["parameters"] = json!([name]);
}

pub(super) fn responses(doc: &mut Document) {
    let text = "The response; a stream of named events with `stream: true`.";
    let respond = doc.post::<Both<ResponseBody, Sampling>, responses::shapes::Response>(
        "/v1/responses",
        "respond",
        "Answer items, and keep the answer",
    );
    also(respond, text, EVENTS, json!({"schema": {}}));
    doc.post::<Both<ResponseBody, Sampling>, InputTokens>(
        "/v1/responses/input_tokens",
        "input_tokens",
        "Count the tokens of a prompt",
    );
    doc.post::<Both<CompactBody, Sampling>, Compacted>(
        "/v1/responses/compact",
        "compact",
        "Sum up a conversation as one item",
    );
    let id = parameter("path", "id", json!({"type": "string", "pattern": "^resp_[A-Za-z0-9]+$"}));
    let path = "/v1/responses/{id}";
    let get = doc.get::<responses::shapes::Response>(path, "response", "A response", &[404]);
    get["parameters"] = json!([id]);
    let responses = doc.responses::<DeletedResponse>(&[404]);
    doc.operation(
        path,
        "delete",
        json!({
            "operationId": "delete_response", "summary": "Forget a response",
            "responses": responses, "parameters": [id],
        }),
    );
    let path = "/v1/responses/{id}/input_items";
    let summary = "What a response answered";
    let items = doc.get::<ResponseItems>(path, "input_items", summary, &[400, 404]);
    items["parameters"] = json!([
        id,
        parameter("query", "after", json!({"type": "string"})),
        parameter("query", "limit", json!({"type": "integer", "minimum": 1, "maximum": 100})),
        parameter("query", "order", json!({"enum": ["asc", "desc"]})),
    ]);
}

pub(super) fn anthropic(doc: &mut Document) {
    doc.faults::<anthropic::shapes::Error>();
    let version = json!({"enum": ["2023-06-01", "2026-10-21"]});
    let version = json!([parameter("header", "anthropic-version", version)]);
    let text = "The message; a stream of named events with `stream: true`.";
    let messages = doc.post::<MessagesBody, anthropic::shapes::Message>(
        "/v1/messages",
        "messages",
        "Answer a conversation",
    );
    messages["parameters"] = version.clone();
    also(messages, text, EVENTS, json!({"schema": {}}));
    let count = doc.post::<CountBody, Count>(
        "/v1/messages/count_tokens",
        "count_tokens",
        "Count the tokens of a conversation's prompt",
    );
    count["parameters"] = version;
}

pub(super) fn ollama(doc: &mut Document) {
    doc.faults::<ollama::shapes::Error>();
    let text =
        "Lines of JSON, the last of them with `done: true`; with `stream: false` one object.";
    let (kind, lines) = ("application/x-ndjson", json!({"schema": {"type": "string"}}));
    let chat = doc.post::<Both<ollama::ChatBody, Shared>, ollama::shapes::ChatAnswer>(
        "/api/chat",
        "ollama_chat",
        "Answer a conversation",
    );
    also(chat, text, kind, lines.clone());
    let generate = doc.post::<Both<ollama::GenerateBody, Shared>, ollama::shapes::TextAnswer>(
        "/api/generate",
        "ollama_generate",
        "Answer a prompt",
    );
    also(generate, text, kind, lines);
    doc.post::<ollama::EmbedBody, ollama::Embedded>(
        "/api/embed",
        "ollama_embed",
        "Texts as vectors",
    );
    doc.post::<ollama::OneBody, ollama::One>(
        "/api/embeddings",
        "ollama_embeddings",
        "A text as a vector",
    );
    doc.post::<ollama::ShowBody, ollama::Shown>("/api/show", "ollama_show", "What a model is");
    doc.get::<ollama::Models>("/api/tags", "ollama_tags", "The model's names", &[503]);
    doc.get::<ollama::Models>("/api/ps", "ollama_ps", "What is loaded", &[503]);
    doc.get::<ollama::Version>("/api/version", "ollama_version", "The API's version", &[503]);
}

/// Text and tokens, adapters and slots, health and figures.
pub(super) fn operate(doc: &mut Document) {
    doc.faults::<shapes::Error>();
    doc.post::<TokenizeBody, Tokens>("/tokenize", "tokenize", "Tokens of a text or a conversation");
    doc.post::<DetokenizeBody, Text>("/detokenize", "detokenize", "Text of tokens");
    doc.post::<Both<ChatBody, Sampling>, Prompt>(
        "/apply-template",
        "apply_template",
        "The prompt that a conversation becomes",
    );
    let path = "/lora-adapters";
    let summary = "The adapters that the model was loaded with, and their scales";
    doc.get::<Vec<Adapter>>(path, "adapters", summary, &[503]);
    let summary = "Set these scales; adapters that are not listed are off";
    doc.post::<Vec<AdapterScale>, Success>(path, "scale_adapters", summary);
    let unsaved = doc.responses::<Slot>(&[501])["501"].take();
    let mut action = parameter("query", "action", doc.request::<Action>());
    action["required"] = true.into();
    let slot = doc.post::<SlotBody, Slot>(
        "/slots/{id}",
        "slot",
        "Save, restore or erase what the last request of a slot has left",
    );
    slot["requestBody"]["required"] = false.into();
    slot["responses"]["501"] = unsaved;
    slot["parameters"] =
        json!([parameter("path", "id", json!({"type": "integer", "minimum": 0})), action]);
    let text = "The answer; a stream of events with `stream: true`.";
    let complete = doc.post::<Both<CompletionBody, Sampling>, Completed>(
        "/completion",
        "llama_complete",
        "Continue a text, as llama-server does",
    );
    also(complete, text, EVENTS, json!({"schema": {}}));
    let fill = doc.post::<Both<InfillBody, Sampling>, Completed>(
        "/infill",
        "llama_infill",
        "Fill a gap, as llama-server does",
    );
    also(fill, text, EVENTS, json!({"schema": {}}));
    doc.get::<Vec<SlotState>>("/slots", "slots", "Which slots are taken", &[503]);
    doc.get::<Props>("/props", "props", "What the server has", &[503]);
    doc.get::<TokenizerInfo>("/tokenizer_info", "tokenizer_info", "The tokenizer's roles", &[503]);
    doc.get::<Version>("/version", "version", "The server's version", &[]);
    doc.get::<Load>("/load", "load", "Requests that run and wait", &[503]);
    doc.get::<Health>("/health", "health", "Whether requests are served", &[503]);
    let metrics = doc.get::<String>("/metrics", "metrics", "Figures for Prometheus", &[]);
    metrics["responses"]["200"] = json!({
        "description": "Prometheus' text format.",
        "content": {"text/plain": {"schema": {"type": "string"}}},
    });
    let summary = "What server and machine do at this moment, and why they are not faster";
    doc.get::<Status>("/status.json", "status", summary, &[500]);
    let summary = "The tools that the page can have called";
    doc.get::<page::Tools>("/page/mcp", "page_tools", summary, &[]);
    let without = doc.responses::<page::Called>(&[502]);
    let call = doc.post::<page::CallBody, page::Called>("/page/mcp", "page_call", "Call a tool");
    call["responses"]["502"] = without["502"].clone();
    let document =
        doc.get::<serde_json::Map<String, Json>>("/openapi.json", "openapi", "This document", &[]);
    document["responses"]["200"]["description"] = "OpenAPI 3.1.".into();
}

/// Loading by hand, where there are several models.
pub(super) fn several(doc: &mut Document) {
    for (path, id, summary) in [
        ("/models/load", "load_model", "Load a model; answers when it is loaded"),
        ("/models/unload", "unload_model", "Unload a model when its requests have ended"),
    ] {
        doc.post::<Named, Changed>(path, id, summary);
    }
    doc.faults::<ollama::shapes::Error>();
    let unchanged = doc.responses::<()>(&[501])["501"].take();
    let text =
        "Lines of JSON, the last of them `success` or an error; with `stream: false` one object.";
    let (kind, lines) = ("application/x-ndjson", json!({"schema": {"type": "string"}}));
    let pull = doc.post::<PullBody, Progress>("/api/pull", "pull", "Bring a model");
    also(pull, text, kind, lines.clone());
    pull["responses"]["501"] = unchanged.clone();
    let create =
        doc.post::<CreateBody, Progress>("/api/create", "create_model", "Make a model of another");
    also(create, text, kind, lines);
    create["responses"]["501"] = unchanged.clone();
    let copy = doc.post::<CopyBody, ()>("/api/copy", "copy_model", "Name a model anew");
    copy["responses"]["200"] = json!({"description": "It has the other name too."});
    copy["responses"]["501"] = unchanged.clone();
    let schema = doc.request::<DeleteBody>();
    let mut responses = doc.responses::<()>(&[400, 404, 415, 500, 501]);
    responses["200"] = json!({"description": "It is gone."});
    doc.operation(
        "/api/delete",
        "delete",
        json!({
            "operationId": "delete_model", "summary": "Remove a model",
            "requestBody": {"required": true, "content": {"application/json": {"schema": schema}}},
            "responses": responses,
        }),
    );
}

/// Another form of an operation's answer.
fn also(operation: &mut Json, description: &str, kind: &str, content: Json) {
    let success = &mut operation["responses"]["200"];
    success["description"] = description.into();
    success["content"][kind] = content;
}

/// A parameter; those in paths are required.
pub(super) fn parameter(place: &str, name: &str, schema: Json) -> Json {
    json!({"name": name, "in": place, "required": place == "path", "schema": schema})
}
