//! Messages as Anthropic writes them: turns of blocks.
//!
//! A result of a tool is a block of the user's turn here and a message of its own in the normal form.
//! Neighbouring turns of one speaker are one turn.

use crate::fault::Fault;
use crate::http::value;
use crate::normal::{Image, Media, shown_behind};
use serde_json::value::RawValue;
use serde_json::{Value as Json, json};
use std::collections::{HashMap, HashSet};
use tokenizer::Message;

/// Reads a system prompt and messages.
///
/// # Errors
/// 400 that names the message and the block.
pub(super) fn read(
    system: Option<Json>,
    messages: Vec<Box<RawValue>>,
    media: &Media,
) -> Result<Conversation, Fault> {
    if messages.is_empty() {
        return Err(Fault::field("messages", "there must be one message at least"));
    }
    let mut reader = Reader::new(media);
    if let Some(system) = system.filter(|system| !system.is_null()) {
        let text = text_only(&system, "system")?;
        if !text.is_empty() {
            reader.said("system", &text);
        }
    }
    for (at, message) in messages.into_iter().enumerate() {
        let at = format!("messages[{at}]");
        // One at a time: values are many times as large as their text.
        reader.message(&value(&message, &at)?, &at)?;
    }
    reader.show();
    let Reader { messages, images, referred, .. } = reader;
    Ok(Conversation { messages, images, referred })
}

/// What a conversation has become.
#[derive(Debug)]
pub(super) struct Conversation {
    pub(super) messages: Vec<Message>,
    pub(super) images: Vec<Image>,
    /// Names of tools that searches have found, or that were called.
    pub(super) referred: HashSet<String>,
}

struct Reader<'a> {
    media: &'a Media,
    images: Vec<Image>,
    messages: Vec<Message>,
    /// Names of the tools that were called, by the calls' ids: some templates show them.
    called: HashMap<String, String>,
    referred: HashSet<String>,
    /// Images of results, which are shown behind them.
    shown: Vec<Image>,
}

impl<'a> Reader<'a> {
    fn new(media: &'a Media) -> Reader<'a> {
        Reader {
            media,
            images: Vec::new(),
            messages: Vec::new(),
            called: HashMap::new(),
            referred: HashSet::new(),
            shown: Vec::new(),
        }
    }

    fn message(&mut self, message: &Json, at: &str) -> Result<(), Fault> {
        let field = |name: &str| format!("{at}.{name}");
        if !message.is_object() {
            return Err(Fault::field(at, format!("{at} must be an object")));
        }
        let content = &message["content"];
        let text;
        let blocks = match content {
            Json::String(_) => {
                text = [json!({"type": "text", "text": content})];
                &text[..]
            }
            Json::Array(blocks) => blocks,
            _ => {
                let at = field("content");
                let message = format!("{at} must be a string or a list of blocks");
                return Err(Fault::field(at, message));
            }
        };
        let at = |i: usize| format!("{}[{i}]", field("content"));
        match message["role"].as_str() {
            Some("user") => {
                for (i, block) in blocks.iter().enumerate() {
                    self.of_user(block, &at(i))?;
                }
                Ok(())
            }
            Some("assistant") => {
                for (i, block) in blocks.iter().enumerate() {
                    self.of_assistant(block, &at(i))?;
                }
                Ok(())
            }
            Some("system") => {
                self.show();
                self.said("system", &text_only(content, &field("content"))?);
                Ok(())
            }
            _ => {
                let message = format!("{} must be user or assistant", field("role"));
                Err(Fault::field(field("role"), message))
            }
        }
    }

    fn of_user(&mut self, block: &Json, at: &str) -> Result<(), Fault> {
        if block["type"] != "tool_result" {
            self.show();
        }
        if block["type"] == "image" {
            let image = self.image(block, at)?;
            self.picture(image);
            return Ok(());
        }
        if block["type"] != "tool_result" {
            let text = text(block, at)?;
            self.said("user", &text);
            return Ok(());
        }
        let id = string(block, "tool_use_id", at)?;
        let content = match &block["content"] {
            Json::Null => String::new(),
            content => self.result(content, &format!("{at}.content"))?,
        };
        let failed = block["is_error"].as_bool().unwrap_or(false);
        self.answer(id, if failed { format!("Error: {content}") } else { content });
        Ok(())
    }

    /// The result of a call.
    fn answer(&mut self, id: &str, content: String) {
        self.messages.push(Message {
            role: "tool".into(),
            content: content.into(),
            name: self.called.get(id).cloned(),
            tool_call_id: Some(id.to_owned()),
            ..Message::default()
        });
    }

    /// The text of a result; its images are kept, and its references to tools noted.
    fn result(&mut self, content: &Json, at: &str) -> Result<String, Fault> {
        let Json::Array(blocks) = content else { return text_only(content, at) };
        let mut texts = Vec::new();
        for (i, block) in blocks.iter().enumerate() {
            let at = format!("{at}[{i}]");
            match block["type"].as_str() {
                Some("image") => {
                    let image = self.image(block, &at)?;
                    self.shown.push(image);
                }
                Some("tool_reference") => {
                    let name = string(block, "tool_name", &at)?;
                    self.referred.insert(name.to_owned());
                    texts.push(format!("The tool {name} can be called now."));
                }
                _ => texts.push(text(block, &at)?),
            }
        }
        Ok(texts.join("\n\n"))
    }

    /// Shows the images of results.
    fn show(&mut self) {
        if !self.shown.is_empty() {
            self.messages.push(shown_behind(self.shown.len()));
            self.images.append(&mut self.shown);
        }
    }

    fn of_assistant(&mut self, block: &Json, at: &str) -> Result<(), Fault> {
        self.show();
        match block["type"].as_str() {
            Some("thinking") => {
                let thought = string(block, "thinking", at)?;
                let said = &mut self.turn("assistant").reasoning_content;
                match said {
                    Some(said) => said.push_str(thought),
                    None => *said = Some(thought.to_owned()),
                }
            }
            // Thoughts that only their maker can read.
            Some("redacted_thinking") => {}
            // Of tools that another server has run, too.
            Some("tool_use" | "server_tool_use" | "mcp_tool_use") => {
                let (id, name) = (string(block, "id", at)?, string(block, "name", at)?);
                self.called.insert(id.to_owned(), name.to_owned());
                self.referred.insert(name.to_owned());
                // What was cut off may be no object.
                let arguments = match &block["input"] {
                    Json::Null => "{}".to_owned(),
                    Json::String(text) => text.clone(),
                    input => input.to_string(),
                };
                let call = json!({
                    "id": id,
                    "type": "function",
                    "function": {"name": name, "arguments": arguments},
                });
                match &mut self.turn("assistant").tool_calls {
                    Some(Json::Array(calls)) => calls.push(call),
                    none => *none = Some(json!([call])),
                }
            }
            Some(kind) if kind.ends_with("_tool_result") => {
                let id = string(block, "tool_use_id", at)?;
                let content = match &block["content"] {
                    Json::String(text) => text.clone(),
                    content => content.to_string(),
                };
                self.answer(id, content);
            }
            _ => {
                let text = text(block, at)?;
                self.said("assistant", &text);
            }
        }
        Ok(())
    }

    /// The turn of a speaker that goes on, or a new one.
    fn turn(&mut self, role: &str) -> &mut Message {
        if self.messages.last().is_none_or(|last| last.role != role) {
            self.messages.push(Message::new(role, ""));
        }
        self.messages.last_mut().expect("there is one")
    }

    /// Text, in a paragraph of its own.
    fn said(&mut self, role: &str, text: &str) {
        let content = &mut self.turn(role).content;
        if let Json::Array(parts) = content {
            parts.push(json!({"type": "text", "text": text}));
            return;
        }
        match content.as_str() {
            None | Some("") => *content = text.into(),
            Some(before) => *content = format!("{before}\n\n{text}").into(),
        }
    }
}

impl Reader<'_> {
    /// The image of a block.
    fn image(&self, block: &Json, at: &str) -> Result<Image, Fault> {
        let source = &block["source"];
        let at = format!("{at}.source");
        match source["type"].as_str() {
            Some("base64") => Ok(Image::base64(string(source, "data", &at)?, format!("{at}.data"))),
            Some("url") => {
                Image::url(string(source, "url", &at)?, &format!("{at}.url"), self.media)
            }
            _ => {
                let message = format!("{at}.type must be base64 or url");
                Err(Fault::unsupported(format!("{at}.type"), message))
            }
        }
    }

    /// An image of the user's.
    fn picture(&mut self, image: Image) {
        self.images.push(image);
        let content = &mut self.turn("user").content;
        if let Some(text) = content.as_str() {
            *content = match text {
                "" => json!([]),
                text => json!([{"type": "text", "text": text}]),
            };
        }
        if let Json::Array(parts) = content {
            parts.push(json!({"type": "image"}));
        }
    }
}

/// The text of a block that has some.
fn text(block: &Json, at: &str) -> Result<String, Fault> {
    match block["type"].as_str() {
        Some("text") => Ok(string(block, "text", at)?.to_owned()),
        Some("document") => match block["source"]["type"].as_str() {
            Some("text") => Ok(string(&block["source"], "data", &format!("{at}.source"))?.into()),
            Some("content") => text_only(&block["source"]["content"], &format!("{at}.source")),
            _ => {
                let message = "this model reads text only: a document's source must be text";
                Err(Fault::unsupported(format!("{at}.source.type"), message))
            }
        },
        Some("search_result") => text_only(&block["content"], &format!("{at}.content")),
        Some(kind) => {
            let message = format!("{at}: blocks of type {kind:?} are not supported here");
            Err(Fault::unsupported(format!("{at}.type"), message))
        }
        None => {
            Err(Fault::field(format!("{at}.type"), format!("{at} must be a block with a type")))
        }
    }
}

/// A string, or the text of blocks, each in a paragraph of its own.
fn text_only(content: &Json, at: &str) -> Result<String, Fault> {
    match content {
        Json::String(text) => Ok(text.clone()),
        Json::Array(blocks) => {
            let texts = blocks.iter().enumerate().map(|(i, b)| text(b, &format!("{at}[{i}]")));
            Ok(texts.collect::<Result<Vec<_>, _>>()?.join("\n\n"))
        }
        _ => Err(Fault::field(at, format!("{at} must be a string or a list of text blocks"))),
    }
}

fn string<'a>(block: &'a Json, name: &str, at: &str) -> Result<&'a str, Fault> {
    block[name].as_str().ok_or_else(|| {
        let at = format!("{at}.{name}");
        Fault::field(at.as_str(), format!("{at} must be a string"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(messages: &Json) -> Vec<Box<RawValue>> {
        serde_json::from_str(&messages.to_string()).unwrap()
    }

    #[test]
    fn blocks_become_messages_in_order() {
        let messages = json!([
            {"role": "user", "content": "What is it like in Oslo?"},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "I look.", "signature": ""},
                {"type": "text", "text": "A moment."},
                {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Oslo"}},
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "is_error": true,
                 "content": [{"type": "text", "text": "closed"}]},
                {"type": "text", "text": "And now?"},
            ]},
            {"role": "user", "content": "Well?"},
        ]);
        let system = json!([{"type": "text", "text": "Be"}, {"type": "text", "text": "brief."}]);
        let read = read(Some(system), texts(&messages), &Media::default()).unwrap();
        let read = read.messages;
        let said: Vec<_> =
            read.iter().map(|m| (m.role.as_str(), m.content.as_str().unwrap())).collect();
        assert_eq!(
            said,
            [
                ("system", "Be\n\nbrief."),
                ("user", "What is it like in Oslo?"),
                ("assistant", "A moment."),
                ("tool", "Error: closed"),
                ("user", "And now?\n\nWell?"),
            ]
        );
        assert_eq!(read[2].reasoning_content.as_deref(), Some("I look."));
        assert_eq!(read[2].tool_calls.as_ref().unwrap()[0]["function"]["name"], "weather");
        assert_eq!(read[3].name.as_deref(), Some("weather"));
        assert_eq!(read[3].tool_call_id.as_deref(), Some("toolu_1"));
    }

    #[test]
    fn results_may_have_images_and_refer_to_tools() {
        let image = json!({"type": "image", "source": {"type": "base64", "data": "AA=="}});
        let call =
            |id: &str| json!({"type": "tool_use", "id": id, "name": "look", "input": "{\"a\": "});
        let result = |id: &str, content: Json| json!({"type": "tool_result", "tool_use_id": id, "content": content});
        let messages = json!([
            {"role": "assistant", "content": [call("1"), call("2")]},
            {"role": "user", "content": [
                result("1", json!([{"type": "text", "text": "Here:"}, image])),
                result("2", json!([{"type": "tool_reference", "tool_name": "later"}])),
                {"type": "text", "text": "And?"},
            ]},
            {"role": "assistant", "content": [
                {"type": "server_tool_use", "id": "3", "name": "web_search", "input": {"query": "a"}},
                {"type": "web_search_tool_result", "tool_use_id": "3", "content": []},
                {"type": "text", "text": "Found."},
            ]},
        ]);
        let read = read(None, texts(&messages), &Media::default()).unwrap();
        let roles: Vec<&str> = read.messages.iter().map(|m| &*m.role).collect();
        let want = ["assistant", "tool", "tool", "user", "assistant", "tool", "assistant"];
        assert_eq!(roles, want);
        // What was cut off stands as it was sent.
        let calls = read.messages[0].tool_calls.as_ref().unwrap();
        assert_eq!(calls[0]["function"]["arguments"], "{\"a\": ");
        assert_eq!(read.messages[1].content, "Here:");
        let shown = read.messages[3].content.as_array().unwrap();
        let kinds: Vec<&Json> = shown.iter().map(|part| &part["type"]).collect();
        assert_eq!(kinds, ["text", "image", "text"]);
        assert_eq!(read.images.len(), 1);
        assert!(read.referred.contains("later") && read.referred.contains("look"));
    }

    #[test]
    fn faults_name_the_block() {
        let at = |content: Json| {
            let messages = json!([{"role": "user", "content": content}]);
            read(None, texts(&messages), &Media::default()).unwrap_err().param.unwrap()
        };
        assert_eq!(at(json!(7)), "messages[0].content");
        assert_eq!(at(json!([{"type": "image"}])), "messages[0].content[0].source.type");
        let url = json!([{"type": "image", "source": {"type": "url", "url": "http://a"}}]);
        assert_eq!(at(url), "messages[0].content[0].source.url");
        assert_eq!(at(json!([{"type": "text"}])), "messages[0].content[0].text");
        let result = json!([{"type": "tool_result", "tool_use_id": "a", "content": [{"type": 1}]}]);
        assert_eq!(at(result), "messages[0].content[0].content[0].type");
    }
}
