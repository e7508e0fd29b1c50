//! Conversations and tools as clients send them, brought into the shape that a template can render.
//!
//! Clients send a call's arguments as the text of an object, content as a list of parts, a `developer`
//! role. Templates want this or that and mostly do not say so: [`Needs::probe`] finds out by rendering
//! small conversations and looking for what went in.

use crate::complete_object;
use serde_json::{Value, json};
use tokenizer::{ChatTemplate, Message, RenderOptions};

/// Why a conversation cannot be brought into shape.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MessageError {
    /// A part of a message that is not text.
    #[error(
        "messages[{message}].content[{part}]: content of type `{kind}` is not supported; only text is"
    )]
    Part {
        /// Index of the message.
        message: usize,
        /// Index of the part.
        part: usize,
        /// Its type.
        kind: String,
    },
}

/// What a template can render.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Needs {
    /// A call's arguments are given as an object; otherwise as its text.
    pub object_arguments: bool,
    /// Content is given as a list of parts; otherwise as text.
    pub content_parts: bool,
    /// It renders messages of the system.
    pub system: bool,
    /// It renders the role `developer`.
    pub developer: bool,
    /// An assistant's message that only calls has null for content; otherwise the empty text.
    pub null_content: bool,
    /// Ids of calls have nine letters or digits.
    pub short_ids: bool,
    /// Tools have a description, be it empty.
    pub described: bool,
    /// Among parts there may be images, for which it leaves a mark.
    pub image_parts: bool,
    /// It tells the model of tools, and shows calls and results.
    pub tools: bool,
    /// A call's arguments may be text that is no JSON, which it shows as it is.
    pub raw_arguments: bool,
    /// There may be several messages of the system, anywhere.
    pub late_system: bool,
    /// There may be several messages of the user's behind one another.
    pub repeats: bool,
}

/// What is looked for in the renderings; no template says it by itself.
const NEEDLE: &str = "n33dle";

impl Needs {
    /// Finds out by rendering.
    pub fn probe(template: &ChatTemplate) -> Self {
        let tools = json!([{"type": "function", "function": {
            "name": "look_up", "description": "d", "parameters": {
                "type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]
            }
        }}]);
        let render = |messages: &[Message], tools: Option<&Value>| {
            let options = RenderOptions { tools: tools.cloned(), ..RenderOptions::default() };
            template.render(messages, &options).ok()
        };
        let shows = |message: Message, before: &[Message]| {
            let messages: Vec<_> = before.iter().cloned().chain([message]).collect();
            render(&messages, None).is_some_and(|text| text.contains(NEEDLE))
        };
        let text = shows(Message::new("user", NEEDLE), &[]);
        let listed = |role: &str| Message {
            role: role.into(),
            content: json!([{"type": "text", "text": NEEDLE}]),
            ..Message::default()
        };
        let content_parts = !text && shows(listed("user"), &[]);
        let content = |text: &str| {
            if content_parts { json!([{"type": "text", "text": text}]) } else { json!(text) }
        };
        let says = |role: &str, text: &str| Message {
            role: role.into(),
            content: content(text),
            ..Message::default()
        };
        // Templates that refuse a role raise; some leave it out without a word.
        let known = |role: &str| {
            let messages = [says(role, NEEDLE), says("user", "Hi")];
            render(&messages, None).is_some_and(|text| text.contains(NEEDLE))
        };
        let system = known("system");
        let calls = |arguments: Value, content: Value, id: &str| {
            let call = json!([{"id": id, "type": "function", "function": {
                "name": "look_up", "arguments": arguments
            }}]);
            let message = Message {
                role: "assistant".into(),
                content,
                tool_calls: Some(call),
                ..Message::default()
            };
            let answer = Message {
                role: "tool".into(),
                content: json!("found"),
                name: Some("look_up".into()),
                tool_call_id: Some(id.into()),
                ..Message::default()
            };
            // An answer between, because some insist that users and assistants take turns.
            let turns =
                [says("user", "Hi"), message, answer, says("assistant", "So."), says("user", "?")];
            render(&turns, Some(&tools))
        };
        let object = json!({ "key": NEEDLE });
        // As JSON, or by itself between tags; but not as Python prints it, nor escaped twice.
        let good = |text: &Option<String>| {
            text.as_ref().is_some_and(|text| {
                text.contains(NEEDLE) && !text.contains("'key'") && !text.contains("\\\"key")
            })
        };
        let short = "abcdef012";
        let mut needs = Self {
            object_arguments: true,
            content_parts,
            system,
            developer: template.source().contains("developer") && known("developer"),
            null_content: false,
            short_ids: false,
            described: false,
            image_parts: false,
            tools: false,
            raw_arguments: false,
            late_system: false,
            repeats: false,
        };
        let told = |before: &[Message], tools: &Value| {
            let turns: Vec<_> = before.iter().cloned().chain([says("user", "Hi")]).collect();
            render(&turns, Some(tools)).is_some_and(|text| text.contains("look_up"))
        };
        needs.tools = told(&[], &tools) || told(&[says("system", "S")], &tools);
        let all = |turns: &[Message], needles: usize| {
            render(turns, None).is_some_and(|text| text.matches(NEEDLE).count() >= needles)
        };
        let system_turns = [
            says("system", NEEDLE),
            says("system", NEEDLE),
            says("user", "Hi"),
            says("assistant", "Yes?"),
            says("user", "Hi"),
            says("system", NEEDLE),
            says("assistant", "So."),
            says("user", "?"),
        ];
        needs.late_system = system && all(&system_turns, 3);
        needs.repeats = all(&[says("user", NEEDLE), says("user", NEEDLE)], 2);
        let seen = |images: usize| {
            let mut parts = vec![json!({"type": "image"}); images];
            parts.push(json!({"type": "text", "text": NEEDLE}));
            let message = Message { content: parts.into(), ..Message::new("user", "") };
            // Not as Python prints a list.
            render(&[message], None)
                .filter(|text| text.contains(NEEDLE) && !text.contains("'type'"))
        };
        needs.image_parts = seen(1).is_some_and(|text| seen(0).is_some_and(|bare| bare != text));
        let mut bare = tools.clone();
        let renders = |tools: &Value| render(&[says("user", "Hi")], Some(tools)).is_some();
        if let Some(function) = bare[0]["function"].as_object_mut() {
            function.shift_remove("description");
            needs.described = renders(&tools) && !renders(&bare);
        }
        // The first way that works, the usual ones first.
        let ways = [false, true].into_iter().flat_map(|short_ids| {
            [false, true].into_iter().flat_map(move |null| {
                [true, false].into_iter().map(move |object| (short_ids, null, object))
            })
        });
        for (short_ids, null, as_object) in ways {
            let arguments = if as_object { object.clone() } else { json!(object.to_string()) };
            let content = if null { Value::Null } else { json!("") };
            if good(&calls(arguments, content, if short_ids { short } else { "call_0123456789" })) {
                needs.object_arguments = as_object;
                needs.null_content = null;
                needs.short_ids = short_ids;
                break;
            }
        }
        let content = if needs.null_content { Value::Null } else { json!("") };
        let id = if needs.short_ids { short } else { "call_0123456789" };
        // Cut off, as a limit does.
        let cut = format!("{{\"key\": \"{NEEDLE}");
        needs.raw_arguments =
            calls(json!(cut), content, id).is_some_and(|text| text.contains(&cut));
        needs
    }
}

/// Brings the arguments of calls alone into that shape: what they say is plain then, without escapes of JSON where the
/// template wants an object.
pub fn normalize_arguments(messages: &mut [Message], needs: &Needs) {
    let calls = messages.iter_mut().filter_map(|message| message.tool_calls.as_mut());
    calls.filter_map(Value::as_array_mut).flatten().for_each(|call| arguments(call, needs));
}

/// Brings a conversation into the shape that a template needs.
pub fn normalize_messages(messages: &mut Vec<Message>, needs: &Needs) -> Result<(), MessageError> {
    normalize(messages, needs, None)
}

/// The same of a conversation with parts of type `image`, in the place of which the prompt is to have `mark`: by the
/// template, or in the text if it renders no such parts.
pub fn normalize_with_images(
    messages: &mut Vec<Message>,
    needs: &Needs,
    mark: &str,
) -> Result<(), MessageError> {
    normalize(messages, needs, Some(mark))
}

fn normalize(
    messages: &mut Vec<Message>,
    needs: &Needs,
    mark: Option<&str>,
) -> Result<(), MessageError> {
    for (at, message) in messages.iter_mut().enumerate() {
        if message.role == "developer" && !needs.developer {
            message.role = "system".into();
        }
        content(message, at, (needs, mark))?;
        if let Some(Value::Array(calls)) = &mut message.tool_calls {
            for call in calls {
                arguments(call, needs);
                if let Some(Value::String(id)) = call.get_mut("id").filter(|_| needs.short_ids) {
                    *id = short_id(id);
                }
            }
        }
        if let Some(id) = message.tool_call_id.as_mut().filter(|_| needs.short_ids) {
            *id = short_id(id);
        }
    }
    if !needs.system {
        without_system(messages);
    } else if !needs.late_system {
        one_system(messages);
    }
    if !needs.repeats {
        join(messages, |before, message| before.role == "user" && message.role == "user");
    }
    Ok(())
}

/// What the system says at the beginning is one message; what it says later, the user says.
fn one_system(messages: &mut Vec<Message>) {
    let of_system = |message: &Message| matches!(&*message.role, "system" | "developer");
    let first = messages.iter().position(|m| !of_system(m)).unwrap_or(messages.len());
    for late in messages.iter_mut().skip(first).filter(|m| of_system(m)) {
        late.role = "user".into();
    }
    join(messages, |before, message| of_system(before) && of_system(message));
}

/// Makes one message of neighbours.
fn join(messages: &mut Vec<Message>, same: impl Fn(&Message, &Message) -> bool) {
    let mut joined: Vec<Message> = Vec::with_capacity(messages.len());
    for message in messages.drain(..) {
        match joined.last_mut() {
            Some(before) if same(before, &message) => {
                before.content = match (std::mem::take(&mut before.content), message.content) {
                    (Value::String(before), Value::String(text)) => {
                        format!("{before}\n\n{text}").into()
                    }
                    (before, after) => {
                        let parts = |content: Value| match content {
                            Value::Array(parts) => parts,
                            Value::String(text) => vec![json!({"type": "text", "text": text})],
                            _ => Vec::new(),
                        };
                        let mut all = parts(before);
                        all.push(json!({"type": "text", "text": "\n\n"}));
                        all.extend(parts(after));
                        all.into()
                    }
                };
            }
            _ => joined.push(message),
        }
    }
    *messages = joined;
}

/// Brings tools, in OpenAI's form, into the shape that a template needs.
pub fn normalize_tools(tools: &mut [Value], needs: &Needs) {
    if needs.described {
        for function in
            tools.iter_mut().filter_map(|tool| tool.get_mut("function")?.as_object_mut())
        {
            let description = function.entry("description").or_insert(Value::Null);
            if description.is_null() {
                *description = "".into();
            }
        }
    }
}

/// The content as text, or as parts.
fn content(
    message: &mut Message,
    at: usize,
    (needs, mark): (&Needs, Option<&str>),
) -> Result<(), MessageError> {
    let mut images = 0;
    let text = match &message.content {
        Value::Array(parts) => {
            let mut texts: Vec<&str> = Vec::new();
            for (i, part) in parts.iter().enumerate() {
                let kind = part.get("type").and_then(Value::as_str).unwrap_or("text");
                let text = part.as_str().or_else(|| part.get("text")?.as_str());
                if let ("image", Some(mark)) = (kind, mark) {
                    images += 1;
                    texts.push(mark);
                    continue;
                }
                let known = matches!(kind, "text" | "input_text" | "output_text" | "refusal");
                match text.or_else(|| part.get("refusal")?.as_str()).filter(|_| known) {
                    Some(text) => texts.push(text),
                    None => {
                        return Err(MessageError::Part { message: at, part: i, kind: kind.into() });
                    }
                }
            }
            Some(texts.join("\n"))
        }
        Value::String(text) => Some(text.clone()),
        _ => None,
    };
    if let (true, Value::Array(parts)) = (images > 0 && needs.image_parts, &message.content) {
        let part = |part: &Value| match part.get("type").and_then(Value::as_str) {
            Some("image") => json!({"type": "image"}),
            _ => {
                let text = part.as_str().or_else(|| part.get("text")?.as_str());
                let text = text.or_else(|| part.get("refusal")?.as_str()).unwrap_or_default();
                json!({"type": "text", "text": text})
            }
        };
        message.content = parts.iter().map(part).collect();
        return Ok(());
    }
    let only_calls = message.tool_calls.is_some() && text.as_deref().unwrap_or("").is_empty();
    message.content = match text {
        _ if only_calls && needs.null_content => Value::Null,
        _ if only_calls => "".into(),
        Some(text) if needs.content_parts => json!([{"type": "text", "text": text}]),
        text => text.unwrap_or_default().into(),
    };
    Ok(())
}

/// The arguments of a call as an object, or as text. Those that are no object, because a limit has cut them off or
/// the model wrote so, stay as they are where the template can show that; otherwise they are completed.
fn arguments(call: &mut Value, needs: &Needs) {
    let function = match call {
        Value::Object(map) if map.contains_key("function") => &mut call["function"],
        call => call,
    };
    let Some(arguments) = function.get_mut("arguments") else { return };
    if needs.object_arguments && arguments.is_object() {
        return;
    }
    let text = match std::mem::take(arguments) {
        // A call of a tool without any.
        Value::Null => "{}".to_owned(),
        Value::String(text) if text.trim().is_empty() => "{}".to_owned(),
        Value::String(text) => text,
        value => value.to_string(),
    };
    *arguments = match serde_json::from_str::<Value>(&text) {
        _ if !needs.object_arguments => text.into(),
        Ok(object @ Value::Object(_)) => object,
        _ if needs.raw_arguments => text.into(),
        other => match complete_object(&text) {
            Some(object) => object.into(),
            None => json!({"input": other.unwrap_or_else(|_| text.into())}),
        },
    };
}

/// An id of nine letters and digits, the same for the same id.
fn short_id(id: &str) -> String {
    if id.len() == 9 && id.bytes().all(|b| b.is_ascii_alphanumeric()) {
        return id.into();
    }
    // FNV-1a: ids have to differ within one conversation, no more.
    let hash = id.bytes().fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3)
    });
    const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
    let digit = |i: u32| char::from(DIGITS[(hash / 36_u64.pow(i) % 36) as usize]);
    (0..9).map(digit).collect()
}

/// What the system says goes before what the user says first.
fn without_system(messages: &mut Vec<Message>) {
    let text = |message: &Message| match &message.content {
        Value::Array(parts) => parts.iter().filter_map(|p| p["text"].as_str()).collect(),
        content => content.as_str().unwrap_or_default().to_owned(),
    };
    let said: Vec<String> = messages
        .iter()
        .filter(|m| m.role == "system")
        .map(text)
        .filter(|t| !t.is_empty())
        .collect();
    messages.retain(|m| m.role != "system");
    if said.is_empty() {
        return;
    }
    let said = said.join("\n\n");
    match messages.iter_mut().find(|m| m.role == "user") {
        Some(user) => {
            let image = |part: &Value| part["type"] == "image";
            if let Value::Array(parts) = &mut user.content
                && parts.iter().any(image)
            {
                parts.insert(0, json!({"type": "text", "text": format!("{said}\n\n")}));
                return;
            }
            let whole = format!("{said}\n\n{}", text(user));
            user.content = match &user.content {
                Value::Array(_) => json!([{"type": "text", "text": whole}]),
                _ => whole.into(),
            };
        }
        None => messages.insert(0, Message::new("user", said)),
    }
}
