//! Items as messages.
//!
//! A call and its result are items of their own here; in the normal form calls belong to the
//! assistant's message. Thoughts go to the message that they led to. Calls of whatever kind are calls of the function
//! that `tools` offers for it, and those that another server has run are calls with their results. Images in a
//! result are shown in a message of the user's behind it: templates show them there only.

use super::kept;
use super::tools::{as_arguments, joined};
use crate::fault::Fault;
use crate::normal::{Image, Media};
use serde_json::{Map, Value as Json, json};
use std::collections::HashMap;
use tokenizer::Message;

/// What items have become.
#[derive(Debug, Default)]
pub(super) struct Conversation {
    pub(super) messages: Vec<Message>,
    pub(super) images: Vec<Image>,
    /// Tools that searches have found.
    pub(super) found: Vec<Json>,
}

/// Makes messages of items, one after the other.
pub(super) struct Reader<'m> {
    media: &'m Media,
    said: Conversation,
    /// Images of results, which are to be shown behind them.
    shown: Vec<Image>,
    /// For the assistant's next message.
    thought: Option<String>,
    /// Names of the tools that were called, by the calls' ids.
    called: HashMap<String, String>,
    /// The assistant's message goes on.
    open: bool,
}

impl<'m> Reader<'m> {
    /// A conversation that begins with these instructions.
    pub(super) fn new(instructions: Option<&str>, media: &'m Media) -> Reader<'m> {
        let instructions = instructions.filter(|text| !text.is_empty());
        let messages = instructions.map(|text| Message::new("system", text)).into_iter().collect();
        Reader {
            media,
            said: Conversation { messages, ..Conversation::default() },
            shown: Vec::new(),
            thought: None,
            called: HashMap::new(),
            open: false,
        }
    }

    /// The conversation, complete.
    pub(super) fn end(mut self) -> Conversation {
        self.show();
        if self.thought.is_some() {
            self.assistant();
        }
        self.said
    }
}

impl Reader<'_> {
    /// The next item, which stands at `at` in the request.
    ///
    /// # Errors
    /// 400 that names the item and the field.
    pub(super) fn item(&mut self, item: &Json, at: &str) -> Result<(), Fault> {
        if !item.is_object() {
            return Err(Fault::field(at, format!("{at} must be an object")));
        }
        let kind = match &item["type"] {
            Json::Null => "message",
            Json::String(kind) => kind.as_str(),
            _ => "",
        };
        if !kind.ends_with("_output") {
            self.show();
        }
        match kind {
            "message" => self.message(item, at),
            "reasoning" => {
                self.think(item);
                Ok(())
            }
            "function_call" => {
                let name = joined(item["namespace"].as_str(), string(item, "name", at)?);
                self.call(string(item, "call_id", at)?, &name, string(item, "arguments", at)?);
                Ok(())
            }
            "custom_tool_call" => {
                let name = joined(item["namespace"].as_str(), string(item, "name", at)?);
                let arguments = as_arguments(string(item, "input", at)?);
                self.call(string(item, "call_id", at)?, &name, &arguments);
                Ok(())
            }
            "local_shell_call" | "shell_call" | "apply_patch_call" | "tool_search_call" => {
                let name = kind.trim_end_matches("_call");
                let mut arguments = match ["action", "operation", "arguments"].map(|key| &item[key])
                {
                    [Json::Object(fields), ..] | [_, Json::Object(fields), _] => fields.clone(),
                    [.., Json::Object(fields)] => fields.clone(),
                    _ => Map::new(),
                };
                if kind == "local_shell_call" {
                    arguments.shift_remove("type");
                }
                arguments.retain(|_, value| !value.is_null() && *value != json!({}));
                let id = ["call_id", "id"].iter().find_map(|key| item[key].as_str());
                self.call(id.unwrap_or_default(), name, &Json::from(arguments).to_string());
                Ok(())
            }
            "function_call_output"
            | "custom_tool_call_output"
            | "local_shell_call_output"
            | "shell_call_output"
            | "apply_patch_call_output" => self.result(item, kind, at),
            "tool_search_output" => {
                let tools = item["tools"].as_array().cloned().unwrap_or_default();
                let names: Vec<&str> = tools.iter().filter_map(|t| t["name"].as_str()).collect();
                let text = match names[..] {
                    [] => "No tools were found.".to_owned(),
                    _ => format!("These tools can be called now: {}", names.join(", ")),
                };
                self.answer(item["call_id"].as_str().unwrap_or_default(), text);
                self.said.found.extend(tools);
                Ok(())
            }
            // Run by another server, with all that came of it.
            "web_search_call"
            | "file_search_call"
            | "code_interpreter_call"
            | "computer_call"
            | "image_generation_call"
            | "mcp_call" => {
                self.foreign(item, kind);
                Ok(())
            }
            "compaction" | "compaction_summary" => {
                let summary = item["encrypted_content"].as_str().and_then(kept::open);
                let summary = summary.ok_or_else(|| {
                    let at = format!("{at}.encrypted_content");
                    let message = format!("{at} was not made by this server, and cannot be read");
                    Fault::field(at, message)
                })?;
                self.open = false;
                let text = format!("What was said and done so far, in short:\n\n{summary}");
                self.said.messages.push(Message::new("user", text));
                Ok(())
            }
            // Lists of tools that another server had.
            "mcp_list_tools" => Ok(()),
            _ => {
                let kind =
                    item["type"].as_str().map_or_else(|| item["type"].to_string(), str::to_owned);
                let message = format!("{at}: items of type {kind} are not supported here");
                Err(Fault::unsupported(format!("{at}.type"), message))
            }
        }
    }

    /// Thoughts: as they are, or as the client has kept them.
    fn think(&mut self, item: &Json) {
        let parts = item["content"].as_array().into_iter().flatten();
        let mut text: String = parts.filter_map(|part| part["text"].as_str()).collect();
        if text.is_empty() {
            text = item["encrypted_content"].as_str().and_then(kept::open).unwrap_or_default();
        }
        if !text.is_empty() {
            self.thought.get_or_insert_default().push_str(&text);
            self.open = false;
        }
    }

    fn call(&mut self, id: &str, name: &str, arguments: &str) {
        let call = json!({
            "id": id,
            "type": "function",
            "function": {"name": name, "arguments": arguments},
        });
        self.called.insert(id.to_owned(), name.to_owned());
        match &mut self.assistant().tool_calls {
            Some(Json::Array(calls)) => calls.push(call),
            none => *none = Some(json!([call])),
        }
    }

    fn result(&mut self, item: &Json, kind: &str, at: &str) -> Result<(), Fault> {
        let id = match kind {
            // Its call has no other id in some clients.
            "local_shell_call_output" => item["call_id"].as_str().or_else(|| item["id"].as_str()),
            _ => item["call_id"].as_str(),
        };
        let id = match id {
            Some(id) => id,
            None => string(item, "call_id", at)?,
        };
        let output = &item["output"];
        let text = match (kind, output) {
            ("shell_call_output", Json::Array(pieces)) => {
                pieces.iter().map(printed).collect::<Vec<_>>().join("\n")
            }
            ("apply_patch_call_output", output) => {
                let status = item["status"].as_str().unwrap_or("completed");
                [Some(status), output.as_str()].into_iter().flatten().collect::<Vec<_>>().join("\n")
            }
            _ => {
                let at = format!("{at}.output");
                let content = content(output, &at, (&mut self.shown, self.media))?;
                text_of(&content)
            }
        };
        self.answer(id, text);
        Ok(())
    }

    /// The result of a call.
    fn answer(&mut self, id: &str, text: String) {
        self.open = false;
        self.said.messages.push(Message {
            role: "tool".into(),
            content: text.into(),
            name: self.called.get(id).cloned(),
            tool_call_id: Some(id.to_owned()),
            ..Message::default()
        });
    }

    /// A call that another server has run, with its result.
    fn foreign(&mut self, item: &Json, kind: &str) {
        let mut fields = item.as_object().cloned().unwrap_or_default();
        let mut result = Map::new();
        // An image is not what the model has seen.
        for other in ["id", "type", "status", "result"] {
            fields.shift_remove(other);
        }
        for given in ["output", "outputs", "results", "error"] {
            if let Some(value) = fields.shift_remove(given).filter(|value| !value.is_null()) {
                result.insert(given.to_owned(), value);
            }
        }
        let name = match fields.shift_remove("name") {
            Some(Json::String(name)) => name,
            _ => kind.trim_end_matches("_call").to_owned(),
        };
        let arguments = match fields.shift_remove("arguments") {
            Some(Json::String(text)) => text,
            _ => Json::from(fields).to_string(),
        };
        let id = item["id"].as_str().unwrap_or_default();
        self.call(id, &name, &arguments);
        let text = match result.get("output").and_then(Json::as_str) {
            Some(text) => text.to_owned(),
            None if result.is_empty() => "done".to_owned(),
            None => Json::from(result).to_string(),
        };
        self.answer(id, text);
    }

    fn message(&mut self, item: &Json, at: &str) -> Result<(), Fault> {
        let of_assistant = item["role"] == "assistant";
        let mut images = Vec::new();
        let said = content(&item["content"], &format!("{at}.content"), (&mut images, self.media))?;
        match item["role"].as_str() {
            Some("assistant") if of_assistant && images.is_empty() => {
                let text = text_of(&said);
                let message = self.assistant();
                let before = message.content.as_str().unwrap_or_default();
                message.content = format!("{before}{text}").into();
            }
            Some(role @ ("user" | "system" | "developer")) => {
                self.open = false;
                self.said.images.extend(images);
                self.said.messages.push(Message { content: said, ..Message::new(role, "") });
            }
            Some("assistant") => {
                let at = format!("{at}.content");
                return Err(Fault::unsupported(
                    at.as_str(),
                    format!("{at}: this model writes text only"),
                ));
            }
            _ => {
                let at = format!("{at}.role");
                let message = format!("{at} must be user, assistant, system or developer");
                return Err(Fault::field(at, message));
            }
        }
        Ok(())
    }

    /// Shows the images of results.
    fn show(&mut self) {
        if self.shown.is_empty() {
            return;
        }
        self.open = false;
        self.said.messages.push(crate::normal::shown_behind(self.shown.len()));
        self.said.images.append(&mut self.shown);
    }

    /// The assistant's message that goes on, or a new one.
    fn assistant(&mut self) -> &mut Message {
        if !self.open {
            self.said.messages.push(Message::new("assistant", ""));
            self.open = true;
        }
        let thought = self.thought.take();
        let message = self.said.messages.last_mut().expect("there is one");
        if thought.is_some() {
            message.reasoning_content = thought;
        }
        message
    }
}

/// What a command has printed, and how it ended.
fn printed(piece: &Json) -> String {
    let outcome = match piece["outcome"]["type"].as_str() {
        Some("timeout") => "It took too long and was ended.".to_owned(),
        _ => match piece["outcome"]["exit_code"].as_i64() {
            Some(code) => format!("Exit code: {code}"),
            None => String::new(),
        },
    };
    let texts = [piece["stdout"].as_str(), piece["stderr"].as_str(), Some(&*outcome)];
    let texts: Vec<&str> =
        texts.into_iter().flatten().map(str::trim_end).filter(|text| !text.is_empty()).collect();
    texts.join("\n")
}

/// A string, or the text of parts; parts, if images are among them.
fn content(
    content: &Json,
    at: &str,
    (images, media): (&mut Vec<Image>, &Media),
) -> Result<Json, Fault> {
    let parts = match content {
        Json::String(text) => return Ok(text.as_str().into()),
        Json::Array(parts) => parts,
        _ => {
            let message = format!("{at} must be a string or a list of parts");
            return Err(Fault::field(at, message));
        }
    };
    let (mut read, before) = (Vec::with_capacity(parts.len()), images.len());
    for (i, part) in parts.iter().enumerate() {
        let at = format!("{at}[{i}]");
        match part["type"].as_str() {
            Some("input_text" | "output_text" | "text" | "summary_text") => {
                read.push(json!({"type": "text", "text": string(part, "text", &at)?}));
            }
            Some("refusal") => {
                read.push(json!({"type": "text", "text": string(part, "refusal", &at)?}));
            }
            Some("input_image") if part["image_url"].is_null() && part["file_id"].is_string() => {
                let at = format!("{at}.file_id");
                let message = format!("{at}: images are not kept here: send them in image_url");
                return Err(Fault::unsupported(at, message));
            }
            Some("input_image") => {
                let url = string(part, "image_url", &at)?;
                images.push(Image::url(url, &format!("{at}.image_url"), media)?);
                read.push(json!({"type": "image"}));
            }
            Some(kind) => {
                let message = format!("{at}: this model reads text and images only, not {kind:?}");
                return Err(Fault::unsupported(format!("{at}.type"), message));
            }
            None => {
                let message = format!("{at} must be a part with a type: input_text");
                return Err(Fault::field(format!("{at}.type"), message));
            }
        }
    }
    if images.len() > before {
        return Ok(read.into());
    }
    Ok(text_of(&read.into()).into())
}

/// The text of a content.
fn text_of(content: &Json) -> String {
    match content {
        Json::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        content => content.as_str().unwrap_or_default().to_owned(),
    }
}

fn string<'a>(item: &'a Json, name: &str, at: &str) -> Result<&'a str, Fault> {
    item[name].as_str().ok_or_else(|| {
        let at = format!("{at}.{name}");
        Fault::field(at.as_str(), format!("{at} must be a string"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conversation(instructions: Option<&str>, items: &Json) -> Result<Conversation, Fault> {
        let media = Media::default();
        let mut reader = Reader::new(instructions, &media);
        for (at, item) in items.as_array().unwrap().iter().enumerate() {
            reader.item(item, &format!("input[{at}]"))?;
        }
        Ok(reader.end())
    }

    fn read(items: Json) -> Result<Vec<Message>, Fault> {
        Ok(conversation(Some("Be brief."), &items)?.messages)
    }

    fn said(messages: &[Message]) -> Vec<(&str, &str)> {
        messages.iter().map(|m| (m.role.as_str(), m.content.as_str().unwrap())).collect()
    }

    #[test]
    fn items_become_messages() {
        let read = read(json!([
            {"role": "user", "content": "Oslo and Rome?"},
            {"type": "reasoning", "id": "rs_1", "summary": [],
             "content": [{"type": "reasoning_text", "text": "Two calls."}]},
            {"type": "message", "role": "assistant",
             "content": [{"type": "output_text", "text": "A moment."}]},
            {"type": "function_call", "call_id": "a", "name": "weather", "arguments": "{}"},
            {"type": "function_call", "call_id": "b", "name": "weather", "arguments": "{\"c\":1}"},
            {"type": "function_call_output", "call_id": "a", "output": "rain"},
            {"type": "function_call_output", "call_id": "b",
             "output": [{"type": "input_text", "text": "sun"}]},
            {"role": "assistant", "content": "Rain and sun."},
            {"role": "user", "content": [{"type": "input_text", "text": "Thanks"}]},
        ]))
        .unwrap();
        assert_eq!(
            said(&read),
            [
                ("system", "Be brief."),
                ("user", "Oslo and Rome?"),
                ("assistant", "A moment."),
                ("tool", "rain"),
                ("tool", "sun"),
                ("assistant", "Rain and sun."),
                ("user", "Thanks"),
            ]
        );
        assert_eq!(read[2].reasoning_content.as_deref(), Some("Two calls."));
        assert_eq!(read[2].tool_calls.as_ref().unwrap().as_array().unwrap().len(), 2);
        assert_eq!(read[4].name.as_deref(), Some("weather"));
        assert_eq!(read[5].reasoning_content, None);
    }

    #[test]
    fn faults_name_the_item() {
        let at = |item: Json| read(json!([item])).unwrap_err().param.unwrap();
        assert_eq!(at(json!({"type": "telepathy_call"})), "input[0].type");
        assert_eq!(at(json!({"role": "user"})), "input[0].content");
        assert_eq!(at(json!({"role": "nobody", "content": "x"})), "input[0].role");
        let image = json!({"role": "user", "content": [{"type": "input_image"}]});
        assert_eq!(at(image), "input[0].content[0].image_url");
        let kept =
            json!({"role": "user", "content": [{"type": "input_image", "file_id": "file-1"}]});
        assert_eq!(at(kept), "input[0].content[0].file_id");
        let audio = json!({"role": "user", "content": [{"type": "input_audio"}]});
        assert_eq!(at(audio), "input[0].content[0].type");
        let foreign = json!({"type": "compaction", "encrypted_content": "gAAAA"});
        assert_eq!(at(foreign), "input[0].encrypted_content");
        assert_eq!(at(json!({"type": "function_call", "call_id": "a"})), "input[0].name");
        assert_eq!(at(json!({"type": 7})), "input[0].type");
        assert_eq!(at(json!("text")), "input[0]");
    }

    #[test]
    fn calls_of_every_kind_and_their_results() {
        let read = read(json!([
            {"type": "custom_tool_call", "call_id": "a", "name": "patch", "input": "*** Begin"},
            {"type": "custom_tool_call_output", "call_id": "a", "output": "ok"},
            {"type": "function_call", "call_id": "b", "namespace": "agents", "name": "spawn", "arguments": "{"},
            {"type": "function_call_output", "call_id": "b", "output": "no"},
            {"type": "local_shell_call", "call_id": "c", "status": "completed",
             "action": {"type": "exec", "command": ["ls"], "env": {}}},
            {"type": "local_shell_call_output", "id": "c", "output": "a.txt"},
            {"type": "shell_call", "call_id": "d", "action": {"commands": ["ls"], "timeout_ms": null}},
            {"type": "shell_call_output", "call_id": "d", "output": [
                {"stdout": "a\n", "stderr": "", "outcome": {"type": "exit", "exit_code": 2}}]},
            {"type": "apply_patch_call", "call_id": "e",
             "operation": {"type": "delete_file", "path": "a"}},
            {"type": "apply_patch_call_output", "call_id": "e", "status": "failed", "output": "gone"},
            {"type": "web_search_call", "id": "ws", "status": "completed",
             "action": {"type": "search", "query": "owls"}},
            {"type": "mcp_call", "id": "m", "name": "log", "arguments": "{}", "output": "empty"},
            {"type": "mcp_list_tools", "tools": []},
        ]))
        .unwrap();
        let calls: Vec<String> = read
            .iter()
            .flat_map(|m| m.tool_calls.iter().flat_map(|c| c.as_array().unwrap()))
            .map(|call| {
                let function = &call["function"];
                let (name, arguments) = (&function["name"], &function["arguments"]);
                format!("{} {}", name.as_str().unwrap(), arguments.as_str().unwrap())
            })
            .collect();
        let want = [
            r#"patch {"input":"*** Begin"}"#,
            "agents__spawn {",
            r#"local_shell {"command":["ls"]}"#,
            r#"shell {"commands":["ls"]}"#,
            r#"apply_patch {"type":"delete_file","path":"a"}"#,
            r#"web_search {"action":{"type":"search","query":"owls"}}"#,
            "log {}",
        ];
        assert_eq!(calls, want);
        let results: Vec<_> = said(&read)
            .into_iter()
            .filter(|(role, _)| *role == "tool")
            .map(|(_, text)| text)
            .collect();
        assert_eq!(
            results,
            ["ok", "no", "a.txt", "a\nExit code: 2", "failed\ngone", "done", "empty"]
        );
        assert_eq!(read.iter().find(|m| m.role == "tool").unwrap().name.as_deref(), Some("patch"));
    }

    #[test]
    fn what_clients_keep_is_read_again() {
        let read = read(json!([
            {"type": "compaction", "encrypted_content": kept::seal("An owl was found.")},
            {"type": "reasoning", "summary": [], "encrypted_content": kept::seal("Owls fly.")},
            {"type": "reasoning", "summary": [], "encrypted_content": "gAAAA"},
            {"role": "assistant", "content": "It flew."},
        ]))
        .unwrap();
        assert!(read[1].content.as_str().unwrap().ends_with("An owl was found."));
        assert_eq!(read[2].reasoning_content.as_deref(), Some("Owls fly."));
    }

    #[test]
    fn images_of_results_are_shown_behind_them() {
        let image = json!({"type": "input_image", "image_url": "data:image/png;base64,AA=="});
        let output = json!([{"type": "input_text", "text": "Two:"}, image.clone(), image.clone()]);
        let items = json!([
            {"type": "function_call", "call_id": "a", "name": "view", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "a", "output": output},
            {"role": "user", "content": [image]},
        ]);
        let read = conversation(None, &items).unwrap();
        let roles: Vec<&str> = read.messages.iter().map(|m| &*m.role).collect();
        assert_eq!(roles, ["assistant", "tool", "user", "user"]);
        assert_eq!(read.messages[1].content, "Two:");
        assert_eq!(read.messages[2].content.as_array().unwrap().len(), 3);
        assert_eq!(read.images.len(), 3);
    }
}
