//! `/page/mcp`: tools that the process has beside the model, for the page. The page offers them to the model and asks
//! its user before it has one called. Requests need the page's token, or a key where there are keys.

use crate::fault::Fault;
use crate::http::Body;
use crate::state::App;
use axum::Json as JsonBody;
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// Time for which a client waits for a call. Its thread keeps its turn until the call has ended.
const LONGEST: Duration = Duration::from_secs(300);

/// The tools that the page can have called.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "PageTools")]
pub(crate) struct Tools {
    #[schemars(with = "Vec<crate::openai::shapes::Tool>")]
    tools: Vec<Json>,
}

/// A call.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(rename = "PageCall")]
pub(crate) struct CallBody {
    /// The tool.
    name: String,
    /// What it is given.
    arguments: Map<String, Json>,
}

/// What a call has brought.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "PageResult")]
pub(crate) struct Called {
    content: String,
    /// The tool says that it has failed.
    is_error: bool,
}

/// The paths; they concern no model.
pub(crate) fn routes() -> Router<Arc<App>> {
    Router::new().route("/page/mcp", get(tools).post(call))
}

/// `GET /page/mcp`.
async fn tools(State(app): State<Arc<App>>) -> JsonBody<Tools> {
    let tools = app.options.page_tools.as_ref().map(|tools| tools.servers.tools());
    JsonBody(Tools { tools: tools.unwrap_or_default() })
}

/// `POST /page/mcp`.
async fn call(State(app): State<Arc<App>>, body: Body) -> Result<JsonBody<Called>, Fault> {
    let CallBody { name, arguments } = body.json().await?;
    let tools = app.options.page_tools.clone().ok_or_else(|| {
        let message = "this server has no tools: start it with --mcp-config";
        Fault::new(StatusCode::NOT_FOUND, message).code("no_tools")
    })?;
    let turn = tools.turn().await?;
    tracing::info!(tool = name, "a tool is called for the page");
    let (done, result) = oneshot::channel();
    let work = move || {
        let called = tools.servers.call(&name, arguments);
        drop(turn);
        let _ = done.send(called);
    };
    std::thread::Builder::new()
        .name("mcp".to_owned())
        .spawn(work)
        .map_err(|e| Fault::internal(format!("no thread for it: {e}")))?;
    let called = timeout(LONGEST, result).await.map_err(|_| {
        let message = format!("the tool has not answered within {} s", LONGEST.as_secs());
        Fault::new(StatusCode::GATEWAY_TIMEOUT, message).code("tool_late")
    })?;
    let called = called.map_err(|_| Fault::internal("calling the tool has failed"))?;
    let (content, is_error) =
        called.map_err(|why| Fault::new(StatusCode::BAD_GATEWAY, why).code("tool_not_called"))?;
    Ok(JsonBody(Called { content, is_error }))
}
