//! `POST /v1/rerank` and `/v2/rerank`: documents by how well they answer a query.
//!
//! The requests of Jina's and Cohere's protocols, which differ in little, and one answer that has the fields of both;
//! `raw_scores` and `texts` are those of Hugging Face's text-embeddings-inference.

use crate::fault::Fault;
use crate::http::{Body, Client};
use crate::normal::{self, RankRequest};
use crate::state::{App, id};
use axum::Json as JsonBody;
use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Documents of one request, as Cohere has it.
const MOST: usize = 10_000;

/// The fields of a request.
#[derive(Debug, Deserialize)]
pub(crate) struct RerankBody {
    model: Option<String>,
    query: Option<Text>,
    documents: Option<Vec<Text>>,
    texts: Option<Vec<Text>>,
    top_n: Option<usize>,
    return_documents: Option<bool>,
    max_tokens_per_doc: Option<usize>,
    truncate: Option<bool>,
    raw_scores: Option<bool>,
}

/// A text, or an object with one.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "must be a string, or an object with a text")]
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

#[derive(Serialize)]
struct Ranked<'a> {
    id: String,
    object: &'static str,
    model: &'a str,
    results: Vec<Item<'a>>,
    usage: Usage,
}

#[derive(Serialize)]
struct Item<'a> {
    index: usize,
    relevance_score: f32,
    #[serde(skip_serializing_if = "Option::is_none")]
    document: Option<Document<'a>>,
}

#[derive(Serialize)]
struct Document<'a> {
    text: &'a str,
}

#[derive(Serialize)]
struct Usage {
    prompt_tokens: usize,
    total_tokens: usize,
}

/// The endpoint.
pub(crate) async fn rerank(
    State(app): State<Arc<App>>,
    Extension(client): Extension<Client>,
    body: Body,
) -> Result<Response, Fault> {
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
    };
    let found = normal::rank(&app, client, request).await?;
    let mut order: Vec<usize> = (0..documents.len()).collect();
    order.sort_by(|&a, &b| found.scores[b].total_cmp(&found.scores[a]));
    order.truncate(fields.top_n.unwrap_or(documents.len()));
    let shown = fields.return_documents.unwrap_or(false);
    let results = order.into_iter().map(|index| Item {
        index,
        relevance_score: found.scores[index],
        document: shown.then(|| Document { text: &documents[index] }),
    });
    let ranked = Ranked {
        id: id("rerank-"),
        object: "list",
        model: &model,
        results: results.collect(),
        usage: Usage { prompt_tokens: found.tokens, total_tokens: found.tokens },
    };
    Ok(JsonBody(ranked).into_response())
}
