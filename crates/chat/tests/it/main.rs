//! Tests of the crate as its users see it: published templates, grammars, random answers.

mod detection;
mod forced;
mod framed;
mod messages;
mod random;

use std::path::Path;
use std::sync::Arc;

use arclight_chat::{Event, Format, Parser, ParserOptions, Tool};
use serde_json::{Value, json};
use tokenizer::{ChatTemplate, Tokenizer, VocabModel, VocabSpec};

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
    let mut tokens: Vec<Vec<u8>> = ["<unk>", "<s>", "</s>"].map(Into::into).to_vec();
    let mut types = vec![2, 3, 3];
    for byte in 0..=255_u8 {
        tokens.push(format!("<0x{byte:02X}>").into_bytes());
        types.push(6);
    }
    for mark in control {
        tokens.push(mark.as_bytes().to_vec());
        types.push(3);
    }
    let mut spec = VocabSpec::new(VocabModel::SentencePiece, tokens);
    spec.scores = Some((0..spec.tokens.len()).map(|i| -(i as f32)).collect());
    spec.types = Some(types);
    spec.bos = Some(1);
    spec.eos = Some(2);
    spec.unk = Some(0);
    spec.add_space_prefix = Some(false);
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

/// The events of an answer in pieces, neighbours joined.
fn events<'a>(
    format: &Format,
    options: ParserOptions,
    pieces: impl IntoIterator<Item = &'a str>,
) -> Vec<Event> {
    let mut parser = Parser::new(format, options);
    let mut found: Vec<Event> = pieces.into_iter().flat_map(|p| parser.push(p)).collect();
    found.extend(parser.finish());
    let mut all: Vec<Event> = Vec::new();
    for event in found {
        match (all.last_mut(), event) {
            (Some(Event::Text(text)), Event::Text(more))
            | (Some(Event::Reasoning(text)), Event::Reasoning(more)) => text.push_str(&more),
            (Some(Event::Arguments { delta, .. }), Event::Arguments { delta: more, .. }) => {
                delta.push_str(&more);
            }
            (_, event) => all.push(event),
        }
    }
    all
}
