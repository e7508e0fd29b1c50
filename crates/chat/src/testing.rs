//! Reading whole answers in tests: events in short form, and the same for every way of cutting.

use serde_json::{Value, json};

use crate::{Event, Family, Format, Parser, ParserOptions, Tool};

/// The tools of every test.
pub(crate) fn tools() -> Vec<Tool> {
    let tool = |name: &str, parameters: Value| Tool { name: name.into(), parameters };
    vec![
        tool(
            "weather",
            json!({
                "type": "object",
                "properties": {
                    "city": {"type": "string"},
                    "days": {"type": "integer"},
                    "hourly": {"type": "boolean"},
                    "spots": {"type": "array", "items": {"type": "string"}}
                },
                "required": ["city"]
            }),
        ),
        tool("clock", Value::Null),
    ]
}

/// A format without control tokens.
pub(crate) fn format(family: Family) -> Format {
    Format::without_control(family)
}

pub(crate) fn options() -> ParserOptions {
    ParserOptions { tools: tools(), reasoning: true, prompt_opens_reasoning: false }
}

/// The events of an answer that comes in these pieces, neighbours joined.
pub(crate) fn events<'a>(
    format: &Format,
    options: ParserOptions,
    pieces: impl IntoIterator<Item = &'a str>,
) -> Vec<Event> {
    let mut parser = Parser::new(format, options);
    let mut found: Vec<Event> = pieces.into_iter().flat_map(|p| parser.push(p)).collect();
    found.extend(parser.finish());
    Event::join(found)
}

/// The events in one line: `(…)` reasoning, `"…"` text, `name{…}` a call, `!` behind one without end.
pub(crate) fn brief(events: &[Event]) -> String {
    let mut text = String::new();
    let mut open = false;
    for event in events {
        let continues = matches!(event, Event::Arguments { .. } | Event::ToolCallEnd { .. });
        if open && !continues {
            text.push('!');
        }
        if !text.is_empty() && !continues {
            text.push(' ');
        }
        match event {
            Event::Reasoning(piece) => text.push_str(&format!("({piece})")),
            Event::Text(piece) => text.push_str(&format!("{piece:?}")),
            Event::ToolCall { name, .. } => text.push_str(name),
            Event::Arguments { delta, .. } => text.push_str(delta),
            Event::ToolCallEnd { .. } => {}
        }
        open = match event {
            Event::ToolCall { .. } | Event::Arguments { .. } => true,
            Event::ToolCallEnd { .. } => false,
            _ => false,
        };
    }
    if open {
        text.push('!');
    }
    text
}

/// Reads an answer whole and letter by letter, and gives it in one line.
pub(crate) fn read_with(family: Family, options: ParserOptions, answer: &str) -> String {
    let format = format(family);
    let whole = events(&format, options.clone(), [answer]);
    let letters: Vec<String> = answer.chars().map(String::from).collect();
    assert_eq!(whole, events(&format, options, letters.iter().map(|s| &**s)), "by letters");
    // Calls that end are one JSON object each.
    for event in &whole {
        if let Event::ToolCallEnd { index } = event {
            let arguments = whole.iter().find_map(|e| match e {
                Event::Arguments { index: i, delta } if i == index => Some(delta),
                _ => None,
            });
            let value: Value = serde_json::from_str(arguments.unwrap()).unwrap();
            assert!(value.is_object());
        }
    }
    brief(&whole)
}

pub(crate) fn read(family: Family, answer: &str) -> String {
    read_with(family, options(), answer)
}
