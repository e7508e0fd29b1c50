//! Tests of the crate as its users see it: published templates, grammars, random answers.

mod detection;
mod forced;
mod framed;
mod messages;
mod random;

use std::path::Path;
use std::sync::Arc;

use arclight_chat::{Format, Parser, ParserOptions, Segment, Tool};
use serde_json::{Value, json};
use tokenizer::{ChatTemplate, Tokenizer, VocabSpec};

/// A published template, from the fixtures of `tokenizer`.
fn source(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../tokenizer/tests/data/templates")
        .join(format!("{name}.jinja"));
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn template(name: &str) -> ChatTemplate {
    ChatTemplate::new(&source(name), Some("<s>"), Some("</s>")).unwrap()
}

/// Every byte and an end; and `control` as control tokens.
fn tokenizer(control: &[&str]) -> Arc<Tokenizer> {
    let spec = VocabSpec::of_bytes(control.iter().map(|mark| (*mark, 3)));
    Arc::new(Tokenizer::from_spec(spec).unwrap())
}

fn tools() -> Vec<Tool> {
    let tool = |name: &str, parameters: Value| Tool { name: name.into(), parameters };
    vec![
        tool(
            "weather",
            json!({
                "type": "object",
                "properties": {
                    "city": {"type": "string", "maxLength": 6},
                    "days": {"type": "integer", "minimum": 1, "maximum": 7},
                    "unit": {"enum": ["C", "F"]},
                    "spots": {"type": "array", "items": {"type": "boolean"}, "maxItems": 2}
                },
                "required": ["city", "days"]
            }),
        ),
        tool("clock", Value::Null),
    ]
}

fn options() -> ParserOptions {
    ParserOptions { tools: tools(), reasoning: true, prompt_opens_reasoning: false }
}

/// The segments of an answer in pieces, neighbours joined.
fn segments<'a>(
    format: &Format,
    options: ParserOptions,
    pieces: impl IntoIterator<Item = &'a str>,
) -> Vec<Segment> {
    let mut parser = Parser::new(format, options);
    let mut found: Vec<Segment> = pieces.into_iter().flat_map(|p| parser.push(p)).collect();
    found.extend(parser.finish());
    Segment::join(found)
}
