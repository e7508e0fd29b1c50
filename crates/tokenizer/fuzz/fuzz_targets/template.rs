//! Parses and renders any template over a conversation with everything in it: an error or a text,
//! in bounded time and memory. Start from the fixtures: `cargo fuzz run template corpus ../tests/data`.
#![no_main]

use arclight_tokenizer::{ChatTemplate, MAX_OUTPUT, Message, RenderOptions};
use libfuzzer_sys::fuzz_target;

const CONVERSATION: &str = r#"[
    {"role": "system", "content": "Be terse."},
    {"role": "user", "content": [{"type": "text", "text": "hi"}]},
    {"role": "assistant", "content": null, "reasoning_content": "Hm.", "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "f", "arguments": {"a": [1, 2.5, null]}}}]},
    {"role": "tool", "content": "42", "tool_call_id": "c1", "name": "f"}
]"#;

fuzz_target!(|source: &str| {
    let Ok(template) = ChatTemplate::new(source, Some("<s>"), Some("</s>")) else { return };
    let messages: Vec<Message> = serde_json::from_str(CONVERSATION).unwrap();
    let opts = RenderOptions {
        add_generation_prompt: true,
        tools: Some(serde_json::json!([{"type": "function", "function": {"name": "f"}}])),
        ..RenderOptions::default()
    };
    if let Ok(text) = template.render(&messages, &opts) {
        assert!(text.len() <= MAX_OUTPUT);
    }
});
