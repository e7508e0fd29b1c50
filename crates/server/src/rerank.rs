//! `POST /v1/rerank` and `/v2/rerank`: documents by how well they answer a query.
//!
//! The requests of Jina's and Cohere's protocols, which differ in little, and one answer that has the fields of both;
//! `raw_scores` and `texts` are those of Hugging Face's text-embeddings-inference.

use crate::fault::Fault;
use crate::http::{Body, Client};
use crate::normal::{self, RankRequest};
use crate::openai::embeddings::PromptUsage;
use crate::stamp::id;
use crate::state::App;
use axum::Json as JsonBody;
use axum::extract::{Extension, State};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Documents of one request, as Cohere has it.
const MOST: usize = 10_000;

/// Documents to rank.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(rename = "RerankRequest")]
pub(crate) struct RerankBody {
    /// One of the model's names, or an adapter's.
    model: Option<String>,
    /// What the documents shall answer.
    #[schemars(required)]
    query: Option<Text>,
    /// The documents.
    #[schemars(length(min = 1, max = MOST))]
    documents: Option<Vec<Text>>,
    /// The same as `documents`.
    #[schemars(length(min = 1, max = MOST))]
    texts: Option<Vec<Text>>,
    /// Documents to give at most; all without it.
    #[schemars(range(min = 1))]
    top_n: Option<usize>,
    /// Give the texts of the documents too.
    return_documents: Option<bool>,
    /// Tokens of a document that are read at most.
    #[schemars(range(min = 1))]
    max_tokens_per_doc: Option<usize>,
    /// Cut documents that are longer than the context.
    #[schemars(extend("default" = true))]
    truncate: Option<bool>,
    /// Give the model's numbers as they are.
    raw_scores: Option<bool>,
}

/// A text, or an object with one.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "must be a string, or an object with a text")]
#[schemars(inline)]
enum Text {
    Plain(String),
    Object { text: String },
}

impl Text {
    fn into_string(self) -> String {
        match self {
            Text::Plain(text) | Text::Object { text } => text,
        }
    }
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Ranked {
    id: String,
    #[schemars(extend("const" = "list"))]
    object: &'static str,
    model: String,
    results: Vec<Item>,
    usage: PromptUsage,
}

#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
struct Item {
    index: usize,
    relevance_score: f32,
    #[serde(skip_serializing_if = "Option::is_none")]
    document: Option<Document>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
struct Document {
    text: String,
}

/// The endpoint.
pub(crate) async fn rerank(
    State(app): State<Arc<App>>,
    Extension(client): Extension<Client>,
    body: Body,
) -> Result<JsonBody<Ranked>, Fault> {
    let fields: RerankBody = body.json().await?;
    app.check_name(fields.model.as_deref())?;
    let model = app.shown(fields.model.as_deref());
    let query = fields.query.ok_or_else(|| Fault::field("query", "query is missing"))?;
    let documents = fields.documents.or(fields.texts);
    let documents = documents
        .filter(|all| !all.is_empty())
        .ok_or_else(|| Fault::field("documents", "documents is missing or an empty list"))?;
    if documents.len() > MOST {
        let message = format!("there are {} documents, and {MOST} are allowed", documents.len());
        return Err(Fault::field("documents", message));
    }
    for (field, value) in
        [("top_n", fields.top_n), ("max_tokens_per_doc", fields.max_tokens_per_doc)]
    {
        if value == Some(0) {
            return Err(Fault::field(field, format!("{field} must be at least 1")));
        }
    }
    let documents: Arc<[String]> = documents.into_iter().map(Text::into_string).collect();
    let request = RankRequest {
        query: query.into_string(),
        documents: documents.clone(),
        most: fields.max_tokens_per_doc,
        truncate: fields.truncate.unwrap_or(true),
        adapters: app.adapters(fields.model.as_deref(), None)?,
        raw: fields.raw_scores.unwrap_or(false),
        room: body.into_room(),
    };
    let found = normal::rank(&app, client, request).await?;
    let mut order: Vec<usize> = (0..documents.len()).collect();
    order.sort_by(|&a, &b| found.scores[b].total_cmp(&found.scores[a]));
    order.truncate(fields.top_n.unwrap_or(documents.len()));
    let shown = fields.return_documents.unwrap_or(false);
    let results = order.into_iter().map(|index| Item {
        index,
        relevance_score: found.scores[index],
        document: shown.then(|| Document { text: documents[index].clone() }),
    });
    Ok(JsonBody(Ranked {
        id: id("rerank-"),
        object: "list",
        model,
        results: results.collect(),
        usage: PromptUsage { prompt_tokens: found.tokens, total_tokens: found.tokens },
    }))
}
