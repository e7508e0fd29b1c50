//! `POST /v1/score`: how well texts answer others, by a model that ranks; vLLM's request.

use crate::fault::Fault;
use crate::http::{Body, Client};
use crate::normal::{self, RankRequest};
use crate::openai::embeddings::PromptUsage;
use crate::stamp::{id, now};
use crate::state::App;
use axum::Json as JsonBody;
use axum::extract::{Extension, State};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Pairs of one request, at most.
const MOST: usize = 10_000;

/// Texts to score.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(rename = "ScoreRequest")]
pub(crate) struct ScoreBody {
    /// One of the model's names, or an adapter's.
    model: Option<String>,
    /// The first texts: one for all of the second, or one for each.
    #[schemars(required)]
    text_1: Option<Texts>,
    /// The second texts.
    #[schemars(required)]
    text_2: Option<Texts>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "must be a string or a list of strings")]
#[schemars(inline)]
enum Texts {
    One(String),
    Several(#[schemars(length(min = 1))] Vec<String>),
}

impl Texts {
    fn list(self) -> Vec<String> {
        match self {
            Texts::One(text) => vec![text],
            Texts::Several(texts) => texts,
        }
    }
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ScoreList")]
pub(crate) struct Scored {
    id: String,
    #[schemars(extend("const" = "list"))]
    object: &'static str,
    /// Seconds since 1970.
    created: u64,
    model: String,
    data: Vec<Score>,
    usage: PromptUsage,
}

#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
struct Score {
    index: usize,
    #[schemars(extend("const" = "score"))]
    object: &'static str,
    score: f32,
}

/// The endpoint.
pub(crate) async fn score(
    State(app): State<Arc<App>>,
    Extension(client): Extension<Client>,
    body: Body,
) -> Result<JsonBody<Scored>, Fault> {
    let fields: ScoreBody = body.json().await?;
    app.check_name(fields.model.as_deref())?;
    let list = |texts: Option<Texts>, field: &str| {
        let texts = texts.map(Texts::list).filter(|texts| !texts.is_empty());
        texts.ok_or_else(|| Fault::field(field, format!("{field} is missing or an empty list")))
    };
    let (first, second) = (list(fields.text_1, "text_1")?, list(fields.text_2, "text_2")?);
    if second.len() > MOST {
        let message = format!("there are {} texts, and {MOST} are allowed", second.len());
        return Err(Fault::field("text_2", message));
    }
    let groups: Vec<(String, Vec<String>)> = match &first[..] {
        [query] => vec![(query.clone(), second)],
        _ if first.len() == second.len() => {
            first.into_iter().zip(second).map(|(query, text)| (query, vec![text])).collect()
        }
        _ => {
            let message = format!(
                "text_1 must be one text, or as many as text_2: there are {} and {}",
                first.len(),
                second.len()
            );
            return Err(Fault::field("text_1", message));
        }
    };
    let room = body.into_room();
    let (mut scores, mut tokens) = (Vec::new(), 0);
    for (query, documents) in groups {
        let request = RankRequest {
            query,
            documents: documents.into(),
            most: None,
            truncate: true,
            adapters: app.adapters(fields.model.as_deref(), None)?,
            raw: false,
            room: room.clone(),
        };
        let found = normal::rank(&app, client, request).await?;
        scores.extend(found.scores);
        tokens += found.tokens;
    }
    let score = |(index, score)| Score { index, object: "score", score };
    Ok(JsonBody(Scored {
        id: id("score-"),
        object: "list",
        created: now(),
        model: app.shown(fields.model.as_deref()),
        data: scores.into_iter().enumerate().map(score).collect(),
        usage: PromptUsage { prompt_tokens: tokens, total_tokens: tokens },
    }))
}
