//! OpenAI's endpoints.

use super::{get, gives, post, reference};
use serde_json::{Map, Value as Json, json};

pub(super) fn paths() -> Map<String, Json> {
    let answer = |whole: &str, chunk: &str| {
        json!({
            "description": "The answer; a stream of events with `stream: true`, each a chunk, the last [DONE].",
            "content": {
                "application/json": {"schema": reference(whole)},
                "text/event-stream": {"schema": {}, "x-event": reference(chunk)},
            },
        })
    };
    let mut one = get("model", "One of the model's names", gives("It.", "Model"), &["404"]);
    one["get"]["parameters"] = json!([{
        "name": "model", "in": "path", "required": true,
        "schema": {"type": "string", "minLength": 1},
        "description": "May have slashes.",
    }]);
    Map::from_iter([
        (
            "/v1/chat/completions".to_owned(),
            post(
                "chat",
                "Answer a conversation",
                "ChatRequest",
                answer("ChatCompletion", "ChatChunk"),
            ),
        ),
        (
            "/v1/completions".to_owned(),
            post("complete", "Continue texts", "TextRequest", answer("Completion", "Completion")),
        ),
        (
            "/v1/embeddings".to_owned(),
            post("embed", "Texts as vectors", "EmbeddingRequest", gives("Them.", "Embeddings")),
        ),
        (
            "/v1/rerank".to_owned(),
            post(
                "rerank",
                "Documents by how well they answer a query",
                "RerankRequest",
                gives("The best first.", "Ranked"),
            ),
        ),
        (
            "/v2/rerank".to_owned(),
            post("rerank_v2", "As /v1/rerank", "RerankRequest", gives("The best first.", "Ranked")),
        ),
        (
            "/rerank".to_owned(),
            post(
                "rerank_plain",
                "As /v1/rerank",
                "RerankRequest",
                gives("The best first.", "Ranked"),
            ),
        ),
        ("/v1/models".to_owned(), get("models", "The model's names", gives("All.", "Models"), &[])),
        ("/v1/models/{model}".to_owned(), one),
    ])
}
