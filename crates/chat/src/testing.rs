//! Reading whole answers in tests: segments in short form, and the same for every way of cutting.

use serde_json::{Value, json};

use crate::{Family, Format, Parser, ParserOptions, Segment, Tool};

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

/// The segments of an answer that comes in these pieces, neighbours joined.
pub(crate) fn segments<'a>(
    format: &Format,
    options: ParserOptions,
    pieces: impl IntoIterator<Item = &'a str>,
) -> Vec<Segment> {
    let mut parser = Parser::new(format, options);
    let mut found: Vec<Segment> = pieces.into_iter().flat_map(|p| parser.push(p)).collect();
    found.extend(parser.finish());
    Segment::join(found)
}

/// The segments in one line: `(…)` reasoning, `"…"` text, `name{…}` a call, `!` behind one without end.
pub(crate) fn brief(segments: &[Segment]) -> String {
    let mut text = String::new();
    let mut open = false;
    for segment in segments {
        let continues = matches!(segment, Segment::Arguments { .. } | Segment::ToolCallEnd { .. });
        if open && !continues {
            text.push('!');
        }
        if !text.is_empty() && !continues {
            text.push(' ');
        }
        match segment {
            Segment::Reasoning(piece) => text.push_str(&format!("({piece})")),
            Segment::Text(piece) => text.push_str(&format!("{piece:?}")),
            Segment::ToolCall { name, .. } => text.push_str(name),
            Segment::Arguments { delta, .. } => text.push_str(delta),
            Segment::ToolCallEnd { .. } => {}
        }
        open = match segment {
            Segment::ToolCall { .. } | Segment::Arguments { .. } => true,
            Segment::ToolCallEnd { .. } => false,
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
    let whole = segments(&format, options.clone(), [answer]);
    let letters: Vec<String> = answer.chars().map(String::from).collect();
    assert_eq!(whole, segments(&format, options, letters.iter().map(|s| &**s)), "by letters");
    // Calls that end are one JSON object each.
    for segment in &whole {
        if let Segment::ToolCallEnd { index } = segment {
            let arguments = whole.iter().find_map(|e| match e {
                Segment::Arguments { index: i, delta } if i == index => Some(delta),
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
