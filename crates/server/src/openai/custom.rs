//! Custom tools: the model writes one text for them, in the form of a grammar if they have one. To the model they are
//! functions with one field.

use crate::fault::Fault;
use chat::complete_object;
use serde_json::{Map, Value as Json, json};
use std::collections::HashSet;

/// The field of a custom tool's text.
pub(crate) const INPUT: &str = "input";

/// The schema of a custom tool's text, and what the model is told of it. A grammar in Lark is told; a pattern is in
/// the schema too, and so holds where the call is forced.
pub(crate) fn schema(tool: &Json) -> (Json, String) {
    let mut input = json!({"type": "string"});
    let mut told = tool["description"].as_str().unwrap_or_default().to_owned();
    let format = &tool["format"];
    // Of older clients the definition stands beside the type.
    let grammar = if format["grammar"].is_object() { &format["grammar"] } else { format };
    if let (Some(syntax), Some(text)) = (grammar["syntax"].as_str(), grammar["definition"].as_str())
    {
        told.push_str(&format!("\n\nThe input must match this {syntax} grammar:\n{text}"));
        if syntax == "regex" {
            input["pattern"] = format!("^(?:{text})$").into();
        }
    }
    (input, told)
}

/// A function of these fields.
pub(crate) fn function(told: &str, properties: Json, required: &[&str]) -> Map<String, Json> {
    let parameters = json!({
        "type": "object", "properties": properties, "required": required,
        "additionalProperties": false,
    });
    [("description".to_owned(), told.into()), ("parameters".to_owned(), parameters)]
        .into_iter()
        .collect()
}

/// The text of a custom tool's call; of one that was cut off, what has come.
pub(crate) fn input(arguments: &str) -> String {
    match complete_object(arguments).and_then(|mut given| given.shift_remove(INPUT)) {
        Some(Json::String(text)) => text,
        Some(other) => other.to_string(),
        None => String::new(),
    }
}

/// The arguments by which the model has called a custom tool.
pub(crate) fn as_arguments(input: &str) -> String {
    json!({INPUT: input}).to_string()
}

/// The names of the custom tools of a chat completion.
pub(super) fn names(tools: Option<&[Json]>) -> HashSet<String> {
    let custom = tools.unwrap_or_default().iter().filter(|tool| tool["type"] == "custom");
    custom.filter_map(|tool| tool["custom"]["name"].as_str().map(str::to_owned)).collect()
}

/// The tools of a chat completion as the model is offered them.
///
/// # Errors
/// 400 for a custom tool without a name, or with a format that is none.
pub(super) fn offered(tools: Vec<Json>) -> Result<Vec<Json>, Fault> {
    let offer = |(at, tool): (usize, Json)| {
        if tool["type"] != "custom" {
            return Ok(tool);
        }
        let field = |name: &str| format!("tools[{at}].custom{name}");
        let custom = &tool["custom"];
        if !custom.is_object() {
            return Err(Fault::field(field(""), "a custom tool must have a custom"));
        }
        let name = custom["name"].as_str().filter(|name| !name.is_empty());
        let name =
            name.ok_or_else(|| Fault::field(field(".name"), "a custom tool must have a name"))?;
        let format = &custom["format"];
        let grammar = &format["grammar"];
        let fine = match format["type"].as_str() {
            _ if format.is_null() => true,
            Some("text") => true,
            Some("grammar") => {
                grammar["definition"].is_string()
                    && matches!(grammar["syntax"].as_str(), Some("lark" | "regex"))
            }
            _ => false,
        };
        if !fine {
            let message = "format must be of type text, or of type grammar with a grammar that has a \
                           definition and the syntax lark or regex";
            return Err(Fault::field(field(".format"), message));
        }
        let (input, told) = schema(custom);
        let mut function = function(&told, json!({INPUT: input}), &[INPUT]);
        function.insert("name".into(), name.into());
        Ok(json!({"type": "function", "function": function}))
    };
    tools.into_iter().enumerate().map(offer).collect()
}

/// A call of the history as the model has made it.
///
/// # Errors
/// 400 for a call of a custom tool without name or input.
pub(super) fn called(call: Json, at: &str) -> Result<Json, Fault> {
    if call["type"] != "custom" {
        return Ok(call);
    }
    let text = |name: &str| {
        let at = format!("{at}.custom.{name}");
        let fault = || Fault::field(at.as_str(), format!("{at} must be a string"));
        call["custom"][name].as_str().ok_or_else(fault)
    };
    let function = json!({"name": text("name")?, "arguments": as_arguments(text("input")?)});
    Ok(json!({"id": call["id"], "type": "function", "function": function}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_custom_tool_is_a_function_with_one_text() {
        let tools = json!([
            {"type": "custom", "custom": {"name": "patch", "description": "Patches.", "format":
                {"type": "grammar", "grammar": {"syntax": "regex", "definition": "[a-z]+"}}}},
            {"type": "function", "function": {"name": "look"}},
        ]);
        let tools = tools.as_array().unwrap().clone();
        assert_eq!(names(Some(&tools)), HashSet::from(["patch".to_owned()]));
        let offered = offered(tools).unwrap();
        let patch = &offered[0]["function"];
        assert_eq!(patch["parameters"]["properties"]["input"]["pattern"], "^(?:[a-z]+)$");
        assert!(patch["description"].as_str().unwrap().starts_with("Patches.\n\nThe input must"));
        assert_eq!(offered[1]["function"]["name"], "look");
        assert_eq!(input(&as_arguments("a\n\"b")), "a\n\"b");
    }

    #[test]
    fn faults_name_the_field() {
        let at = |custom: Json| offered(vec![json!({"type": "custom", "custom": custom})]);
        for (custom, field) in [
            (json!(null), ""),
            (json!({}), ".name"),
            (json!({"name": ""}), ".name"),
            (json!({"name": "a", "format": {"type": "grammar"}}), ".format"),
            (json!({"name": "a", "format": "text"}), ".format"),
        ] {
            let param = at(custom).unwrap_err().param;
            assert_eq!(param, Some(format!("tools[0].custom{field}")));
        }
        let call = json!({"id": "a", "type": "custom", "custom": {"name": "x"}});
        assert_eq!(called(call, "c").unwrap_err().param.as_deref(), Some("c.custom.input"));
    }
}
