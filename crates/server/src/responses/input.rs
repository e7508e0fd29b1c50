//! The items of a request, as messages.
//!
//! A call and its result are items of their own here; in the normal form calls belong to the
//! assistant's message. Thoughts go to the message that they led to.

use super::store::Stored;
use crate::fault::Fault;
use crate::state::App;
use serde_json::{Value as Json, json};
use std::collections::HashMap;
use std::sync::Arc;
use tokenizer::Message;

/// The items of `input`: a text is a message of the user's. References are replaced by what they
/// refer to; all get ids, which begin with `key`.
///
/// # Errors
/// 400 for what is neither, and for references to what is not kept.
pub(super) fn items(
    app: &App,
    owner: u64,
    key: &str,
    input: Option<Json>,
) -> Result<Vec<Arc<Json>>, Fault> {
    let list = match input {
        Some(Json::String(text)) => {
            vec![json!({
                "type": "message",
                "role": "user",
                "content": [{"type": "input_text", "text": text}],
            })]
        }
        Some(Json::Array(list)) => list,
        None | Some(Json::Null) => Vec::new(),
        Some(_) => {
            let message = "input must be a string or a list of items";
            return Err(Fault::field("input", message));
        }
    };
    let mut kept: HashMap<String, Option<Stored>> = HashMap::new();
    let item = |(at, mut item): (usize, Json)| {
        if item["type"] == "item_reference" {
            let id = item["id"].as_str().unwrap_or_default();
            let response = response_of(id);
            let stored =
                kept.entry(response.clone()).or_insert_with(|| app.responses.get(&response, owner));
            let found = stored.iter().flat_map(|s| &s.items).find(|item| item["id"] == id);
            return found.cloned().ok_or_else(|| {
                let message = format!("input[{at}]: there is no item {id:?}, or no more");
                Fault::field(format!("input[{at}].id"), message)
            });
        }
        if let Json::Object(fields) = &mut item
            && fields.get("id").is_none_or(Json::is_null)
        {
            let prefix = match fields.get("type").and_then(Json::as_str) {
                Some("function_call") => "fc",
                Some("function_call_output") => "fco",
                Some("reasoning") => "rs",
                _ => "msg",
            };
            fields.insert("id".into(), item_id(prefix, key, 'i', at).into());
        }
        Ok(Arc::new(item))
    };
    list.into_iter().enumerate().map(item).collect()
}

/// An item's id has that of its response in it: a reference finds both. `part` is `i` for the input,
/// `o` for the output.
pub(super) fn item_id(prefix: &str, key: &str, part: char, at: usize) -> String {
    format!("{prefix}_{key}{part}{at}")
}

/// The response that an item's id belongs to.
fn response_of(id: &str) -> String {
    let key = id.split_once('_').map_or(id, |(_, key)| key);
    let end = key.char_indices().nth(24).map_or(key.len(), |(at, _)| at);
    format!("resp_{}", &key[..end])
}

/// Messages of instructions, the items of the conversation so far, and new ones.
///
/// # Errors
/// 400 that names the item and the field.
pub(super) fn messages(
    instructions: Option<&str>,
    before: &[Arc<Json>],
    items: &[Arc<Json>],
) -> Result<Vec<Message>, Fault> {
    let mut reader = Reader::default();
    if let Some(text) = instructions.filter(|text| !text.is_empty()) {
        reader.messages.push(Message::new("system", text));
    }
    if before.is_empty() && items.is_empty() {
        return Err(Fault::field("input", "input is missing: there must be one item at least"));
    }
    for item in before {
        reader.item(item, "previous_response_id")?;
    }
    for (at, item) in items.iter().enumerate() {
        reader.item(item, &format!("input[{at}]"))?;
    }
    if let Some(thought) = reader.thought.take() {
        reader.assistant().reasoning_content = Some(thought);
    }
    Ok(reader.messages)
}

#[derive(Default)]
struct Reader {
    messages: Vec<Message>,
    /// For the assistant's next message.
    thought: Option<String>,
    /// Names of the tools that were called, by the calls' ids.
    called: HashMap<String, String>,
    /// The assistant's message goes on.
    open: bool,
}

impl Reader {
    fn item(&mut self, item: &Json, at: &str) -> Result<(), Fault> {
        if !item.is_object() {
            return Err(Fault::field(at, format!("{at} must be an object")));
        }
        match item["type"].as_str() {
            None if item["type"].is_null() => self.message(item, at),
            Some("message") => self.message(item, at),
            Some("reasoning") => {
                let parts = item["content"].as_array().into_iter().flatten();
                let text: String = parts.filter_map(|part| part["text"].as_str()).collect();
                if !text.is_empty() {
                    self.thought.get_or_insert_default().push_str(&text);
                    self.open = false;
                }
                Ok(())
            }
            Some("function_call") => {
                let (id, name) = (string(item, "call_id", at)?, string(item, "name", at)?);
                let arguments = string(item, "arguments", at)?;
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
                Ok(())
            }
            Some("function_call_output") => {
                let id = string(item, "call_id", at)?;
                self.open = false;
                self.messages.push(Message {
                    role: "tool".into(),
                    content: text(&item["output"], &format!("{at}.output"))?.into(),
                    name: self.called.get(id).cloned(),
                    tool_call_id: Some(id.to_owned()),
                    ..Message::default()
                });
                Ok(())
            }
            kind => {
                let kind = kind.map_or_else(|| item["type"].to_string(), str::to_owned);
                let message = format!("{at}: items of type {kind} are not supported here");
                Err(Fault::unsupported(format!("{at}.type"), message))
            }
        }
    }

    fn message(&mut self, item: &Json, at: &str) -> Result<(), Fault> {
        let text = text(&item["content"], &format!("{at}.content"))?;
        match item["role"].as_str() {
            Some("assistant") => {
                let message = self.assistant();
                let before = message.content.as_str().unwrap_or_default();
                message.content = format!("{before}{text}").into();
            }
            Some(role @ ("user" | "system" | "developer")) => {
                self.open = false;
                self.messages.push(Message::new(role, text));
            }
            _ => {
                let at = format!("{at}.role");
                let message = format!("{at} must be user, assistant, system or developer");
                return Err(Fault::field(at, message));
            }
        }
        Ok(())
    }

    /// The assistant's message that goes on, or a new one.
    fn assistant(&mut self) -> &mut Message {
        if !self.open {
            self.messages.push(Message::new("assistant", ""));
            self.open = true;
        }
        let thought = self.thought.take();
        let message = self.messages.last_mut().expect("there is one");
        if thought.is_some() {
            message.reasoning_content = thought;
        }
        message
    }
}

/// A string, or the text of parts.
fn text(content: &Json, at: &str) -> Result<String, Fault> {
    let parts = match content {
        Json::String(text) => return Ok(text.clone()),
        Json::Array(parts) => parts,
        _ => {
            let message = format!("{at} must be a string or a list of parts");
            return Err(Fault::field(at, message));
        }
    };
    let part = |(i, part): (usize, &Json)| {
        let at = format!("{at}[{i}]");
        match part["type"].as_str() {
            Some("input_text" | "output_text" | "text") => {
                Ok(string(part, "text", &at)?.to_owned())
            }
            Some("refusal") => Ok(string(part, "refusal", &at)?.to_owned()),
            Some(kind) => {
                let message = format!("{at}: this model reads text only, not {kind:?}");
                Err(Fault::unsupported(format!("{at}.type"), message))
            }
            None => {
                let message = format!("{at} must be a part with a type: input_text");
                Err(Fault::field(format!("{at}.type"), message))
            }
        }
    };
    parts.iter().enumerate().map(part).collect()
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

    fn read(items: Json) -> Result<Vec<Message>, Fault> {
        let items: Vec<_> = items.as_array().unwrap().iter().cloned().map(Arc::new).collect();
        messages(Some("Be brief."), &[], &items)
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
        let said: Vec<_> =
            read.iter().map(|m| (m.role.as_str(), m.content.as_str().unwrap())).collect();
        assert_eq!(
            said,
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
        assert_eq!(at(json!({"type": "web_search_call"})), "input[0].type");
        assert_eq!(at(json!({"role": "user"})), "input[0].content");
        assert_eq!(at(json!({"role": "nobody", "content": "x"})), "input[0].role");
        let image = json!({"role": "user", "content": [{"type": "input_image"}]});
        assert_eq!(at(image), "input[0].content[0].type");
        assert_eq!(at(json!({"type": "function_call", "call_id": "a"})), "input[0].name");
        assert_eq!(at(json!({"type": 7})), "input[0].type");
        assert_eq!(at(json!("text")), "input[0]");
    }

    #[test]
    fn ids_of_items_tell_their_response() {
        let key = "abcdefghijklmnopqrstuvwx";
        assert_eq!(response_of(&item_id("msg", key, 'o', 12)), format!("resp_{key}"));
        assert_eq!(response_of("msg_short"), "resp_short");
        assert_eq!(response_of("äöü"), "resp_äöü");
    }
}
