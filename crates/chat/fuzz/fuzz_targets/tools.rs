//! Any JSON as a tool's schema, in the grammar of every family: it compiles or is an error.
//!
//! The first byte chooses the family, the second what is asked for; the rest is a list of a tool's name
//! and its schema.
#![no_main]

mod common;

use std::sync::LazyLock;

use arclight_chat::{Format, Tool, ToolChoice, answer_grammar, tool_grammar};
use grammar::{Spec, Vocabulary};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

static VOCABULARY: LazyLock<Vocabulary> =
    LazyLock::new(|| Vocabulary::new(common::TOKENIZER.clone()));

fuzz_target!(|bytes: &[u8]| {
    let [family, flags, rest @ ..] = bytes else { return };
    let Ok((name, parameters)) = serde_json::from_slice::<(String, Value)>(rest) else { return };
    let format = Format::new(common::family(*family), &common::TOKENIZER);
    let choice = if flags & 1 == 0 { ToolChoice::Required } else { ToolChoice::Named(&name) };
    let tools = [Tool { name: name.clone(), parameters }];
    let (parallel, more) = (flags & 2 == 0, flags & 4 == 0);
    let message = if flags & 8 == 0 {
        let Some(text) = tool_grammar(&format, &tools, choice, parallel, more) else { return };
        VOCABULARY.compile(&Spec::Lark(text)).map_err(|e| e.to_string()).err()
    } else {
        let Some(text) = answer_grammar(&format, &tools, parallel, more) else { return };
        let within = VOCABULARY.compile_within(&text, &Spec::JsonObject);
        within.map_err(|e| e.to_string()).err()
    };
    assert_ne!(message.as_deref(), Some(""));
});
