//! Reads any answer of any family: however it is cut, the same segments; calls stand together and end
//! behind whole objects.
//!
//! The first three bytes choose family, options and cuts. Of the rest, bytes from 0x80 on are marks of
//! the families, the others characters.
#![no_main]

mod common;

use arclight_chat::{Format, Parser, ParserOptions, Segment, Tool};
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};

const PIECES: [&str; 80] = [
    "<tool_call>",
    "</tool_call>",
    "<think>",
    "</think>",
    "<function=",
    "</function>",
    "<parameter=",
    "</parameter>",
    "<arg_key>",
    "</arg_key>",
    "<arg_value>",
    "</arg_value>",
    "[TOOL_CALLS]",
    "[ARGS]",
    "[CALL_ID]",
    "[THINK]",
    "[/THINK]",
    "functools",
    "<|tool_call|>",
    "<|/tool_call|>",
    "<|python_tag|>",
    "<|tool_calls|>",
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁calls▁end｜>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁call▁end｜>",
    "<｜tool▁sep｜>",
    "function",
    "```json\n",
    "\n```",
    "<|channel|>",
    "<|message|>",
    "<|constrain|>",
    "<|start|>",
    "assistant",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "analysis",
    "commentary",
    "final",
    " to=",
    "functions.",
    "<|tool_calls_section_begin|>",
    "<|tool_calls_section_end|>",
    "<|tool_call_begin|>",
    "<|tool_call_argument_begin|>",
    "<|tool_call_end|>",
    "<seed:tool_call>",
    "</seed:tool_call>",
    "<seed:think>",
    "</seed:think>",
    "<minimax:tool_call>",
    "</minimax:tool_call>",
    "<invoke name=\"",
    "</invoke>",
    "<parameter name=\"",
    "\">",
    "<response>",
    "</response>",
    "{\"name\": \"",
    "\", \"arguments\": {",
    "\", \"parameters\": {",
    "\"arguments\": ",
    "}}",
    "{}",
    "\": \"",
    "\", \"",
    "\\u00",
    "\\\"",
    "weather",
    "clock",
    "city",
    "days",
    "None",
    "true",
    "1e9",
    "; ",
    "日",
    "🙂",
];

/// An answer of this text.
fn answer(bytes: &[u8]) -> String {
    let piece = |&byte: &u8| match byte.checked_sub(0x80) {
        Some(at) => PIECES[usize::from(at) % PIECES.len()].to_owned(),
        None => char::from(byte).to_string(),
    };
    bytes.iter().map(piece).collect()
}

/// The segments of an answer in pieces, neighbours joined.
fn segments<'a>(
    format: &Format,
    options: &ParserOptions,
    pieces: impl Iterator<Item = &'a str>,
) -> Vec<Segment> {
    let mut parser = Parser::new(format, options.clone());
    let mut found: Vec<Segment> = pieces.flat_map(|piece| parser.push(piece)).collect();
    found.extend(parser.finish());
    Segment::join(found)
}

/// Cuts a text behind so many characters each time, in turn.
fn cut(text: &str, cuts: [usize; 2]) -> impl Iterator<Item = &str> {
    let mut rest = text;
    let mut cuts = cuts.into_iter().cycle();
    std::iter::from_fn(move || {
        let count = cuts.next().filter(|_| !rest.is_empty())?;
        let at = rest.char_indices().nth(count).map_or(rest.len(), |(at, _)| at);
        let (piece, next) = rest.split_at(at);
        rest = next;
        Some(piece)
    })
}

fuzz_target!(|bytes: &[u8]| {
    let [family, flags, cuts, rest @ ..] = bytes else { return };
    let format = Format::new(common::family(*family), &common::TOKENIZER);
    let tool = |name: &str, parameters: Value| Tool { name: name.into(), parameters };
    let properties = json!({"city": {"type": "string"}, "days": {"type": "integer"}, "x": {}});
    let parameters = json!({"type": "object", "properties": properties, "required": ["city"]});
    let options = ParserOptions {
        tools: match flags & 4 {
            0 => vec![tool("weather", parameters), tool("clock", Value::Null)],
            _ => Vec::new(),
        },
        reasoning: flags & 1 == 0,
        prompt_opens_reasoning: flags & 2 != 0,
    };
    let answer = answer(rest);
    let whole = segments(&format, &options, std::iter::once(&*answer));
    let cuts = [usize::from(cuts & 15) + 1, usize::from(cuts >> 4) + 1];
    assert_eq!(whole, segments(&format, &options, cut(&answer, cuts)), "{answer:?}");
    let mut open = None;
    for segment in &whole {
        match segment {
            Segment::ToolCall { index, .. } => open = Some((*index, "")),
            Segment::Arguments { index, delta } => {
                assert_eq!(open.map(|call| call.0), Some(*index), "{answer:?}");
                open = Some((*index, delta));
            }
            Segment::ToolCallEnd { index } => {
                let (of, arguments) = open.take().unwrap();
                assert_eq!(of, *index, "{answer:?}");
                let value: Value = serde_json::from_str(arguments).unwrap();
                assert!(value.is_object(), "{answer:?}");
            }
            Segment::Text(_) | Segment::Reasoning(_) => open = None,
        }
    }
});
