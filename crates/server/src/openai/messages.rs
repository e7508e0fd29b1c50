//! Messages as OpenAI writes them.

use super::custom;
use crate::fault::Fault;
use crate::http::value;
use crate::normal::{Image, Media, shown_behind};
use serde_json::value::RawValue;
use serde_json::{Value as Json, json};
use tokenizer::Message;

/// Reads the messages of a request.
///
/// # Errors
/// 400 that names the message and the field.
pub(crate) fn read(
    messages: Vec<Box<RawValue>>,
    media: &Media,
) -> Result<(Vec<Message>, Vec<Image>), Fault> {
    if messages.is_empty() {
        return Err(Fault::field("messages", "there must be one message at least"));
    }
    let (mut read, mut images, mut shown) = (Vec::with_capacity(messages.len()), Vec::new(), 0);
    for (at, given) in messages.into_iter().enumerate() {
        let at = format!("messages[{at}]");
        // One at a time: values are many times as large as their text.
        let given: Json = value(&given, &at)?;
        let mut message = message(given, &at, (&mut images, media))?;
        if message.role != "tool" && shown > 0 {
            read.push(shown_behind(std::mem::take(&mut shown)));
        }
        // Templates show no images in results of tools: they are shown behind them.
        if let ("tool", Json::Array(parts)) = (&*message.role, &message.content) {
            shown += parts.iter().filter(|part| part["type"] == "image").count();
            let texts = parts.iter().filter_map(|part| part["text"].as_str());
            message.content = texts.collect::<String>().into();
        }
        read.push(message);
    }
    if shown > 0 {
        read.push(shown_behind(shown));
    }
    Ok((read, images))
}

fn message(message: Json, at: &str, images: (&mut Vec<Image>, &Media)) -> Result<Message, Fault> {
    let field = |name: &str| format!("{at}.{name}");
    let Json::Object(mut message) = message else {
        return Err(Fault::field(at, format!("{at} must be an object")));
    };
    let mut text = |name: &str| match message.get_mut(name).map(Json::take) {
        None | Some(Json::Null) => Ok(None),
        Some(Json::String(text)) => Ok(Some(text)),
        Some(_) => Err(Fault::field(field(name), format!("{} must be a string", field(name)))),
    };
    let role = text("role")?
        .ok_or_else(|| Fault::field(field("role"), format!("{} is missing", field("role"))))?;
    if !["system", "developer", "user", "assistant", "tool", "function"].contains(&role.as_str()) {
        let message =
            format!("{role:?} is no role: use system, developer, user, assistant or tool");
        return Err(Fault::field(field("role"), message));
    }
    let reasoning_content = match text("reasoning_content")? {
        Some(text) => Some(text),
        None => text("reasoning")?,
    };
    let (name, tool_call_id) = (text("name")?, text("tool_call_id")?);
    let mut given = |name: &str| message.get_mut(name).map(Json::take).unwrap_or_default();
    // An empty list is what some clients send for none.
    let tool_calls = match given("tool_calls") {
        Json::Null => None,
        calls => Some(read_calls(calls, &field("tool_calls"))?).filter(|calls| !calls.is_empty()),
    };
    let content = content(given("content"), &field("content"), images)?;
    if content.is_null() && role != "assistant" {
        return Err(Fault::field(field("content"), format!("{} is missing", field("content"))));
    }
    // Templates add to the text; only beside calls do they expect that there may be none.
    let content =
        if content.is_null() && tool_calls.is_none() { String::new().into() } else { content };
    Ok(Message {
        role,
        content,
        reasoning_content,
        tool_calls: tool_calls.map(Json::from),
        name,
        tool_call_id,
    })
}

/// Text, or the text of its parts; parts, if images are among them.
fn content(
    content: Json,
    at: &str,
    (images, media): (&mut Vec<Image>, &Media),
) -> Result<Json, Fault> {
    match content {
        Json::Null | Json::String(_) => Ok(content),
        Json::Array(parts) => {
            let (mut all, mut listed, before) = (String::new(), Vec::new(), images.len());
            for (i, part) in parts.iter().enumerate() {
                let at = |name: &str| format!("{at}[{i}]{name}");
                match part.get("type").and_then(Json::as_str) {
                    Some(kind @ ("text" | "input_text" | "output_text" | "refusal")) => {
                        let name = if kind == "refusal" { "refusal" } else { "text" };
                        let text = part.get(name).and_then(Json::as_str).ok_or_else(|| {
                            let at = at(&format!(".{name}"));
                            Fault::field(at.as_str(), format!("{at} must be a string"))
                        })?;
                        all.push_str(text);
                        listed.push(json!({"type": "text", "text": text}));
                    }
                    Some("image_url") => {
                        let url = match &part["image_url"] {
                            Json::String(url) => Some(url.as_str()),
                            object => object["url"].as_str(),
                        };
                        let at = at(".image_url");
                        let url = url.ok_or_else(|| {
                            let message = format!("{at}.url must be a string");
                            Fault::field(format!("{at}.url"), message)
                        })?;
                        images.push(Image::url(url, &at, media)?);
                        listed.push(json!({"type": "image"}));
                    }
                    Some(kind) => {
                        let message =
                            format!("parts are of type text or image_url here, not {kind:?}");
                        return Err(Fault::unsupported(at(".type"), message));
                    }
                    None => {
                        return Err(Fault::field(at(".type"), "a part must have a type: text"));
                    }
                }
            }
            Ok(if images.len() > before { listed.into() } else { Json::String(all) })
        }
        _ => Err(Fault::field(at, format!("{at} must be a string or a list of parts"))),
    }
}

/// Calls of functions; those of custom tools are such to the model.
fn read_calls(calls: Json, at: &str) -> Result<Vec<Json>, Fault> {
    let Json::Array(list) = calls else {
        return Err(Fault::field(at, format!("{at} must be a list of calls")));
    };
    let mut read = Vec::with_capacity(list.len());
    for (i, call) in list.into_iter().enumerate() {
        let call = custom::called(call, &format!("{at}[{i}]"))?;
        let function = call.get("function");
        let name = function.and_then(|f| f.get("name")).and_then(Json::as_str);
        if name.is_none() {
            let at = format!("{at}[{i}].function.name");
            return Err(Fault::field(at.as_str(), format!("{at} must be a string")));
        }
        read.push(call);
    }
    Ok(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_of_results_are_shown_behind_them() {
        let image =
            json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}});
        let result = |id: &str| {
            json!({"role": "tool", "tool_call_id": id,
                "content": [{"type": "text", "text": "Here:"}, image]})
        };
        let user = json!({"role": "user", "content": [image]});
        let messages = [result("a"), result("b"), user, result("c")];
        let messages = serde_json::from_str(&json!(messages).to_string()).unwrap();
        let (read, images) = read(messages, &Media::default()).unwrap();
        let roles: Vec<&str> = read.iter().map(|m| &*m.role).collect();
        assert_eq!(roles, ["tool", "tool", "user", "user", "tool", "user"]);
        assert_eq!(read[0].content, "Here:");
        assert_eq!(read[2].content.as_array().unwrap().len(), 3);
        assert_eq!(images.len(), 4);
    }
}
