//! Tools as Anthropic describes them, and which of them a model must call.
//!
//! Those that the client runs and Anthropic's models know by their type (`bash_…`, `text_editor_…`, `memory_…`,
//! `computer_…`) are offered as functions with the schemas that are documented for them. Those that Anthropic runs
//! itself are left out.

use crate::fault::Fault;
use crate::normal::ToolChoice;
use serde_json::{Map, Value as Json, json};
use std::collections::HashSet;

/// What the types of tools begin with that Anthropic runs itself; behind it is a date.
const HOSTED: [&str; 6] = [
    "web_search_",
    "web_fetch_",
    "code_execution_",
    "tool_search_tool_",
    "mcp_toolset",
    "advisor_",
];

/// Tools of a request.
#[derive(Debug, Default)]
pub(super) struct Tools {
    /// In the normal form, which is OpenAI's.
    pub(super) offered: Vec<Json>,
    /// Types that are left out.
    pub(super) left_out: Vec<String>,
}

/// Reads tools. Those with `defer_loading` are offered when the conversation refers to them; at once if a server
/// should find them, which nobody does here.
///
/// # Errors
/// 400 for what is no description, for unknown types and for two tools of one name.
pub(super) fn read(tools: Vec<Json>, referred: &HashSet<String>) -> Result<Tools, Fault> {
    let mut read = Tools::default();
    let mut names = HashSet::new();
    let kind = |tool: &Json| tool["type"].as_str().unwrap_or_default().to_owned();
    let searched = tools.iter().any(|tool| kind(tool).starts_with("tool_search_tool_"));
    for (at, mut tool) in tools.into_iter().enumerate() {
        let at = |rest: &str| format!("tools[{at}]{rest}");
        let kind = match tool.get_mut("type").map(Json::take).unwrap_or_default() {
            Json::Null => "custom".to_owned(),
            Json::String(kind) => kind,
            other => {
                let message = format!("{other} is no type of tools");
                return Err(Fault::field(at(".type"), message));
            }
        };
        if HOSTED.iter().any(|hosted| kind.starts_with(hosted)) {
            read.left_out.push(kind);
            continue;
        }
        let known = known(&kind, &tool);
        if kind != "custom" && known.is_none() {
            let message = format!("tools of type {kind:?} are not supported: use custom");
            return Err(Fault::unsupported(at(".type"), message));
        }
        let name = tool["name"].as_str().filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| Fault::field(at(".name"), "a tool must have a name"))?;
        let name = name.to_owned();
        if !names.insert(name.clone()) {
            let message = format!("two tools have the name {name:?}");
            return Err(Fault::field(at(".name"), message));
        }
        let mut function = Map::new();
        function.insert("name".into(), name.as_str().into());
        if let Some((told, properties, required)) = known {
            function.insert("description".into(), told.into());
            let schema = json!({
                "type": "object", "properties": properties, "required": required,
            });
            function.insert("parameters".into(), schema);
        } else {
            custom(&mut tool, &mut function, &at)?;
        }
        if tool["defer_loading"] == true && !searched && !referred.contains(&name) {
            continue;
        }
        read.offered.push(json!({"type": "function", "function": function}));
    }
    Ok(read)
}

/// The description and the schema of a tool of the client's own.
fn custom(
    tool: &mut Json,
    function: &mut Map<String, Json>,
    at: &dyn Fn(&str) -> String,
) -> Result<(), Fault> {
    let schema = tool.get_mut("input_schema").map(Json::take).unwrap_or_default();
    if !schema.is_object() {
        let message = "a tool must have an input_schema: a JSON schema";
        return Err(Fault::field(at(".input_schema"), message));
    }
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
    function.insert("parameters".into(), schema);
    if let Some(strict) = tool.get("strict").filter(|strict| strict.is_boolean()) {
        function.insert("strict".into(), strict.clone());
    }
    Ok(())
}

/// What Anthropic's models know of a type of tools: a description, properties, and which must be there.
fn known(kind: &str, tool: &Json) -> Option<(String, Json, Json)> {
    let text = |told: &str| json!({"type": "string", "description": told});
    let number = |told: &str| json!({"type": "integer", "description": told});
    let place = |told: &str| {
        let whole = json!({"type": "integer"});
        json!({"type": "array", "items": whole, "minItems": 2, "maxItems": 2, "description": told})
    };
    let old = |dates: &[&str]| dates.iter().any(|date| kind.ends_with(date));
    // What editing files takes, in the editor and in the memory.
    let mut edits = json!({
        "path": text("The file or folder."),
        "view_range": place("First and last line to view, from 1; -1 for the end."),
        "file_text": text("All of the file, to create it."),
        "old_str": text("The text to replace, which must be in the file once."),
        "new_str": text("The text in its place."),
        "insert_line": number("The line behind which to insert; 0 for the beginning."),
        "insert_text": text("The lines to insert."),
    });
    if kind.starts_with("bash_") {
        let told = "Runs a command in a shell that stays open, and gives what it prints.";
        let properties = json!({
            "command": text("The command; not needed to restart."),
            "restart": json!({"type": "boolean", "description": "Restart the shell."}),
        });
        return Some((told.into(), properties, json!([])));
    }
    if kind.starts_with("text_editor_") {
        let mut commands = vec!["view", "create", "str_replace", "insert"];
        if old(&["20241022", "20250124"]) {
            commands.push("undo_edit");
        }
        edits["command"] = json!({"type": "string", "enum": commands});
        let told = "Views, creates and edits text files.";
        return Some((told.into(), edits, json!(["command", "path"])));
    }
    if kind.starts_with("memory_") {
        let commands = ["view", "create", "str_replace", "insert", "delete", "rename"];
        edits["command"] = json!({"type": "string", "enum": commands});
        edits["old_path"] = text("The file to rename.");
        edits["new_path"] = text("Its new name.");
        let told = "Keeps notes in files below /memories, which are there in later conversations.";
        return Some((told.into(), edits, json!(["command"])));
    }
    if kind.starts_with("computer_") {
        let mut actions = vec![
            "key",
            "type",
            "mouse_move",
            "left_click",
            "left_click_drag",
            "right_click",
            "middle_click",
            "double_click",
            "screenshot",
            "cursor_position",
        ];
        if !old(&["20241022"]) {
            actions.extend([
                "left_mouse_down",
                "left_mouse_up",
                "scroll",
                "hold_key",
                "wait",
                "triple_click",
            ]);
        }
        if !old(&["20241022", "20250124"]) {
            actions.push("zoom");
        }
        let region =
            json!({"type": "array", "items": {"type": "integer"}, "minItems": 4, "maxItems": 4});
        let properties = json!({
            "action": {"type": "string", "enum": actions},
            "coordinate": place("x and y in pixels, from the upper left corner."),
            "start_coordinate": place("Where to begin to drag."),
            "text": text("What to type, or the keys to press, as in ctrl+s."),
            "duration": {"type": "number", "description": "Seconds."},
            "scroll_direction": {"type": "string", "enum": ["up", "down", "left", "right"]},
            "scroll_amount": number("Steps of the wheel."),
            "region": region,
        });
        let size = |name: &str| tool[name].as_u64().unwrap_or_default();
        let told = format!(
            "Uses the mouse and the keyboard of a computer, and gives pictures of its screen, of {} x {} \
             pixels.",
            size("display_width_px"),
            size("display_height_px"),
        );
        return Some((told, properties, json!(["action"])));
    }
    None
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

#[cfg(test)]
mod tests {
    use super::*;

    fn names(tools: Json, referred: &[&str]) -> (Vec<String>, Vec<String>) {
        let referred = referred.iter().map(|name| (*name).to_owned()).collect();
        let read = read(tools.as_array().unwrap().clone(), &referred).unwrap();
        let name = |tool: &Json| tool["function"]["name"].as_str().unwrap().to_owned();
        (read.offered.iter().map(name).collect(), read.left_out)
    }

    #[test]
    fn tools_of_the_client_are_offered_and_others_left_out() {
        let tools = json!([
            {"type": "bash_20250124", "name": "bash"},
            {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"},
            {"type": "memory_20250818", "name": "memory"},
            {"type": "computer_20250124", "name": "computer", "display_width_px": 800,
             "display_height_px": 600},
            {"name": "own", "input_schema": {"type": "object"}},
            {"type": "web_search_20250305", "name": "web_search"},
            {"type": "code_execution_20250825", "name": "code_execution"},
        ]);
        let (offered, left_out) = names(tools.clone(), &[]);
        let want = ["bash", "str_replace_based_edit_tool", "memory", "computer", "own"];
        assert_eq!(offered, want);
        assert_eq!(left_out, ["web_search_20250305", "code_execution_20250825"]);
        let read = read(tools.as_array().unwrap().clone(), &HashSet::new()).unwrap();
        let computer = &read.offered[3]["function"];
        assert!(computer["description"].as_str().unwrap().contains("800 x 600"));
        let unknown = json!([{"type": "oracle_20300101", "name": "oracle"}]);
        let fault = super::read(unknown.as_array().unwrap().clone(), &HashSet::new()).unwrap_err();
        assert_eq!(fault.param.as_deref(), Some("tools[0].type"));
    }

    #[test]
    fn deferred_tools_wait_until_they_are_referred_to() {
        let later = json!({"name": "later", "input_schema": {}, "defer_loading": true});
        assert_eq!(names(json!([later]), &[]).0, [] as [&str; 0]);
        assert_eq!(names(json!([later]), &["later"]).0, ["later"]);
        let search = json!({"type": "tool_search_tool_regex_20251119", "name": "search"});
        assert_eq!(names(json!([search, later]), &[]).0, ["later"]);
    }
}
