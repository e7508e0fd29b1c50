//! `POST /v1/responses/compact`: a long conversation as one item, a summary that the model writes.
//!
//! The item goes in the place of what it sums up. Its text is kept by the client, in base64: nothing is encrypted.

use super::create::{self, Read, ResponseBody};
use super::kept;
use crate::fault::Fault;
use crate::http::{Body, Client};
use crate::normal;
use crate::responses::input::item_id;
use crate::state::App;
use axum::Json as JsonBody;
use axum::extract::{Extension, State};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde_json::{Value as Json, json};
use std::borrow::Cow;
use std::sync::Arc;
use tokenizer::Message;

/// What the model is asked for, behind the conversation.
const ASKED: &str = "Sum up all of the above for someone who goes on with it and has not seen it: what was \
    asked for, what was decided and why, what was done and what came of it, names of files, commands and \
    values that matter, and what is still to do. Write only that.";

/// The share of the context that a summary may take.
const SHARE: usize = 4;

/// The body: that of a response.
pub(crate) struct CompactBody;

impl JsonSchema for CompactBody {
    fn schema_name() -> Cow<'static, str> {
        "CompactRequest".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        ResponseBody::json_schema(generator)
    }
}

/// A conversation in short.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "CompactedResponse")]
pub(crate) struct Compacted {
    id: String,
    #[schemars(extend("const" = "response.compaction"))]
    object: &'static str,
    /// Seconds since 1970.
    created_at: u64,
    /// What stands for the conversation: one item of type `compaction`.
    output: Vec<Json>,
    #[schemars(with = "serde_json::Map<String, Json>")]
    usage: Json,
}

/// The endpoint.
pub(crate) async fn compact(
    State(app): State<Arc<App>>,
    Extension(client): Extension<Client>,
    body: Body,
) -> Result<JsonBody<Compacted>, Fault> {
    let Read { mut request, head, .. } = create::read(&app, client, body).await?;
    request.messages.push(Message::new("user", ASKED));
    request.tools.clear();
    request.tool_choice = normal::ToolChoice::None;
    request.generation.constraint = None;
    request.shorten = true;
    let most = (app.model()?.replicas.context() / SHARE).max(1);
    request.generation.limit = Some(request.generation.limit.map_or(most, |limit| limit.min(most)));
    let mut answer = normal::chat(&app, request).await?;
    let whole = answer.collect().await?.pop();
    let whole = whole.ok_or_else(|| Fault::internal("an answer has no choice"))?;
    // A model that was cut off within its thoughts has no other summary.
    let summary = if whole.text.trim().is_empty() { &whole.reasoning } else { &whole.text };
    let item = json!({
        "id": item_id("cmp", &head.key, 'o', 0),
        "type": "compaction",
        "encrypted_content": kept::seal(summary.trim()),
    });
    Ok(JsonBody(Compacted {
        id: head.id(),
        object: "response.compaction",
        created_at: head.created,
        output: vec![item],
        usage: super::object::usage(&whole.finish),
    }))
}
