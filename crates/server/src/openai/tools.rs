//! Tools that a model may call, and which of them it must.

use crate::fault::Fault;
use crate::normal::ToolChoice;
use axum::http::{HeaderName, HeaderValue};
use axum::response::Response;
use serde_json::Value as Json;

/// Checks that tools are functions with names, each its own.
pub(crate) fn check(tools: &[Json]) -> Result<(), Fault> {
    let mut names = std::collections::HashSet::new();
    for (at, tool) in tools.iter().enumerate() {
        let at = |rest: &str| format!("tools[{at}]{rest}");
        match tool.get("type").and_then(Json::as_str) {
            Some("function") => {}
            Some(kind) => {
                let message = format!("tools of type {kind:?} are not supported: use function");
                return Err(Fault::unsupported(at(".type"), message));
            }
            None => return Err(Fault::field(at(".type"), "a tool must have a type: function")),
        }
        let function = tool.get("function").and_then(Json::as_object);
        let function =
            function.ok_or_else(|| Fault::field(at(".function"), "a tool must have a function"))?;
        let name = function.get("name").and_then(Json::as_str).filter(|name| !name.is_empty());
        let name =
            name.ok_or_else(|| Fault::field(at(".function.name"), "a function must have a name"))?;
        if !names.insert(name) {
            let message = format!("two tools have the name {name:?}");
            return Err(Fault::field(at(".function.name"), message));
        }
        if function.get("parameters").is_some_and(|p| !p.is_object() && !p.is_null()) {
            let message = "parameters must be a JSON schema of an object";
            return Err(Fault::field(at(".function.parameters"), message));
        }
    }
    Ok(())
}

/// The header that names tools which nobody can run here.
pub(crate) const LEFT_OUT: HeaderName = HeaderName::from_static("x-arclight-left-out");

/// An answer whose model was not told of some kinds of tools, because nobody can run them here: its header and the
/// log say which.
pub(crate) fn told_left_out(mut response: Response, kinds: &[String]) -> Response {
    if !kinds.is_empty() {
        let kinds = kinds.join(", ");
        tracing::warn!(tools = kinds, "tools that this server cannot run were left out");
        if let Ok(value) = HeaderValue::from_str(&kinds) {
            response.headers_mut().insert(LEFT_OUT, value);
        }
    }
    response
}

/// What `tool_choice` says; `auto` if it is not there and there are tools.
pub(crate) fn choice(choice: Option<&Json>, tools: &[Json]) -> Result<ToolChoice, Fault> {
    let fault = |message: String| Fault::field("tool_choice", message);
    let choice = match choice {
        None | Some(Json::Null) => ToolChoice::Auto,
        Some(Json::String(word)) => match word.as_str() {
            "auto" => ToolChoice::Auto,
            "none" => ToolChoice::None,
            "required" | "any" => ToolChoice::Required,
            _ => return Err(fault(format!("{word:?} is none of auto, none, required"))),
        },
        Some(Json::Object(object)) => match object.get("type").and_then(Json::as_str) {
            Some(kind @ ("function" | "custom")) => {
                let name = object.get(kind).and_then(|f| f.get("name"));
                let name = name.or_else(|| object.get("name")).and_then(Json::as_str);
                let name = name.ok_or_else(|| fault("it must name a function".into()))?;
                ToolChoice::Named(name.to_owned())
            }
            kind => {
                let message = format!("tool_choice of type {kind:?} is not supported");
                return Err(Fault::unsupported("tool_choice", message));
            }
        },
        Some(_) => return Err(fault("it must be a word or an object".into())),
    };
    match &choice {
        ToolChoice::Required if tools.is_empty() => {
            Err(fault("a tool is required, but there are no tools".into()))
        }
        ToolChoice::Named(name)
            if !tools.iter().any(|t| t["function"]["name"].as_str() == Some(name)) =>
        {
            Err(fault(format!("there is no tool with the name {name:?}")))
        }
        _ => Ok(choice),
    }
}
