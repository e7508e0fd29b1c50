//! Tools of a conversation told in its text, for templates that know none: descriptions in the system's message,
//! calls in the assistant's and results in the user's, all in the writing of the model's family.

use serde_json::{Value, json};
use tokenizer::Message;

use crate::Format;
use crate::write::{Call, calls, spaced};

/// Writes tools, calls and results into the text of a conversation. The tools are in OpenAI's form, calls and
/// results as OpenAI's clients send them.
pub fn tell_tools(messages: &mut Vec<Message>, tools: &[Value], format: &Format) {
    let mut told: Vec<Message> = Vec::with_capacity(messages.len() + 1);
    // Whether the last message is of results, which further ones join.
    let mut results = false;
    for mut message in messages.drain(..) {
        let result = message.role == "tool" || message.role == "function";
        if result {
            let text = format!("<tool_response>\n{}\n</tool_response>", text(&message.content));
            match told.last_mut().filter(|_| results) {
                Some(last) => {
                    last.content = format!("{}\n{text}", self::text(&last.content)).into();
                }
                None => told.push(Message::new("user", text)),
            }
        } else {
            if let Some(made) = message.tool_calls.take() {
                let written = written(&made, format);
                let said = text(&message.content);
                let gap = if said.is_empty() || written.is_empty() { "" } else { "\n" };
                message.content = format!("{said}{gap}{written}").into();
            }
            told.push(message);
        }
        results = result;
    }
    *messages = told;
    if tools.is_empty() {
        return;
    }
    let prompt = prompt(tools, format);
    match messages.first_mut().filter(|first| matches!(&*first.role, "system" | "developer")) {
        Some(system) => match &mut system.content {
            Value::Array(parts) => {
                parts.push(json!({"type": "text", "text": format!("\n\n{prompt}")}));
            }
            content => *content = format!("{}\n\n{prompt}", text(content)).into(),
        },
        None => messages.insert(0, Message::new("system", prompt)),
    }
}

/// What the model is told of its tools.
fn prompt(tools: &[Value], format: &Format) -> String {
    let described: Vec<String> = tools.iter().map(spaced).collect();
    let example = calls(&format.syntax, &[("NAME", "{\"ARGUMENT\": \"VALUE\"}")]);
    format!(
        "# Tools\n\nYou can call the functions that are described within <tools></tools>, one on a \
         line:\n<tools>\n{}\n</tools>\n\nTo call a function, write this and end your answer behind the \
         last call:\n{example}\nIts result comes in the next message within \
         <tool_response></tool_response>. Call a function only where you need it.",
        described.join("\n")
    )
}

/// The calls of a message.
fn written(made: &Value, format: &Format) -> String {
    let function = |call: &Value| {
        let function = call.get("function").unwrap_or(call);
        let arguments = match function.get("arguments") {
            None | Some(Value::Null) => "{}".to_owned(),
            Some(Value::String(text)) if text.trim().is_empty() => "{}".to_owned(),
            Some(Value::String(text)) => text.clone(),
            Some(value) => spaced(value),
        };
        Some((function.get("name")?.as_str()?.to_owned(), arguments))
    };
    let made: Vec<(String, String)> =
        made.as_array().into_iter().flatten().filter_map(function).collect();
    let made: Vec<Call<'_>> = made.iter().map(|(name, args)| (&**name, &**args)).collect();
    if made.is_empty() { String::new() } else { calls(&format.syntax, &made) }
}

fn text(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            let texts: Vec<&str> = parts.iter().filter_map(|p| p["text"].as_str()).collect();
            texts.join("\n")
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Family;
    use crate::testing::format;

    #[test]
    fn everything_of_tools_becomes_text() {
        let call = |name: &str, arguments: &str| json!({"id": "1", "function": {"name": name, "arguments": arguments}});
        let mut messages = vec![
            Message::new("system", "Be brief."),
            Message::new("user", "Oslo?"),
            Message {
                tool_calls: Some(json!([
                    call("weather", "{\"city\": \"Oslo\"}"),
                    call("clock", "{")
                ])),
                ..Message::new("assistant", "I look.")
            },
            Message::new("tool", "rain"),
            Message::new("tool", "noon"),
            Message::new("user", "And?"),
        ];
        let tools = [json!({"type": "function", "function": {"name": "weather"}})];
        tell_tools(&mut messages, &tools, &format(Family::Hermes));
        let said: Vec<(&str, &str)> =
            messages.iter().map(|m| (&*m.role, m.content.as_str().unwrap())).collect();
        assert!(said[0].1.starts_with("Be brief.\n\n# Tools"), "{}", said[0].1);
        assert!(
            said[0].1.contains("{\"type\": \"function\", \"function\": {\"name\": \"weather\"}}")
        );
        assert!(said[0].1.contains("<tool_call>\n{\"name\": \"NAME\", \"arguments\": "));
        // A call that was cut off stands as it was written.
        let calls = "I look.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\"}}\n\
                     </tool_call>\n<tool_call>\n{\"name\": \"clock\", \"arguments\": {}\n</tool_call>";
        assert_eq!(said[2], ("assistant", calls));
        let results =
            "<tool_response>\nrain\n</tool_response>\n<tool_response>\nnoon\n</tool_response>";
        assert_eq!(said[3..], [("user", results), ("user", "And?")]);
        assert!(messages.iter().all(|m| m.tool_calls.is_none()));
    }

    #[test]
    fn every_family_shows_how_it_calls() {
        let tools = [json!({"type": "function", "function": {"name": "look"}})];
        for family in Family::all().filter(|f| *f != Family::Plain) {
            let prompt = prompt(&tools, &format(family));
            assert!(prompt.contains("NAME") && prompt.contains("ARGUMENT"), "{family}: {prompt}");
        }
    }
}
