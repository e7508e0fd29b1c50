//! Compiles any JSON as a schema and samples from it: an error or a walk that never gets stuck where a
//! token was allowed.
#![no_main]

mod common;

use arclight_grammar::Spec;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let (text, choices) = common::split(bytes);
    if let Ok(schema) = serde_json::from_slice(text) {
        common::walk(&Spec::JsonSchema(schema), choices);
    }
});
