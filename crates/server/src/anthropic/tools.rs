//! Tools as Anthropic describes them, and which of them a model must call.

use crate::fault::Fault;
use crate::normal::ToolChoice;
use serde_json::{Map, Value as Json, json};
use std::collections::HashSet;

/// Tools in the normal form, which is OpenAI's.
///
/// # Errors
/// 400 for those that the server would have to run itself, and for what is no description.
pub(super) fn read(tools: &[Json]) -> Result<Vec<Json>, Fault> {
    let mut names = HashSet::new();
    let tool = |(at, tool): (usize, &Json)| {
        let at = |rest: &str| format!("tools[{at}]{rest}");
        match tool.get("type") {
            None | Some(Json::Null) => {}
            Some(kind) if kind == "custom" => {}
            Some(kind) => {
                let message = format!("tools of type {kind} are not supported: use custom");
                return Err(Fault::unsupported(at(".type"), message));
            }
        }
        let name = tool.get("name").and_then(Json::as_str).filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| Fault::field(at(".name"), "a tool must have a name"))?;
        if !names.insert(name.to_owned()) {
            let message = format!("two tools have the name {name:?}");
            return Err(Fault::field(at(".name"), message));
        }
        let schema = tool.get("input_schema").filter(|schema| schema.is_object());
        let schema = schema.ok_or_else(|| {
            Fault::field(at(".input_schema"), "a tool must have an input_schema: a JSON schema")
        })?;
        let mut function = Map::new();
        function.insert("name".into(), name.into());
        match tool.get("description") {
            None | Some(Json::Null) => {}
            Some(Json::String(text)) => {
                function.insert("description".into(), text.as_str().into());
            }
            Some(_) => {
                let message = "a description must be a string";
                return Err(Fault::field(at(".description"), message));
            }
        }
        function.insert("parameters".into(), schema.clone());
        if let Some(strict) = tool.get("strict").filter(|strict| strict.is_boolean()) {
            function.insert("strict".into(), strict.clone());
        }
        Ok(json!({"type": "function", "function": function}))
    };
    tools.iter().enumerate().map(tool).collect()
}

/// What `tool_choice` says, and whether several tools may be called at once.
///
/// # Errors
/// 400 for a choice that is none, or of a tool that is not there.
pub(super) fn choice(choice: Option<&Json>, tools: &[Json]) -> Result<(ToolChoice, bool), Fault> {
    let choice = match choice {
        None | Some(Json::Null) => return Ok((ToolChoice::Auto, true)),
        Some(choice) => choice,
    };
    let fault = |message: String| Fault::field("tool_choice", message);
    let parallel = !choice["disable_parallel_tool_use"].as_bool().unwrap_or(false);
    let said = match choice["type"].as_str() {
        Some("auto") => ToolChoice::Auto,
        Some("none") => ToolChoice::None,
        Some("any") => ToolChoice::Required,
        Some("tool") => {
            let name = choice["name"].as_str();
            let name = name.ok_or_else(|| {
                Fault::field("tool_choice.name", "tool_choice of type tool must have a name")
            })?;
            ToolChoice::Named(name.to_owned())
        }
        _ => {
            let message = "tool_choice must be an object whose type is auto, any, tool or none";
            return Err(Fault::field("tool_choice.type", message));
        }
    };
    match &said {
        ToolChoice::Required if tools.is_empty() => {
            Err(fault("a tool is required, but there are no tools".into()))
        }
        ToolChoice::Named(name)
            if !tools.iter().any(|t| t["function"]["name"].as_str() == Some(name)) =>
        {
            Err(fault(format!("there is no tool with the name {name:?}")))
        }
        _ => Ok((said, parallel)),
    }
}
