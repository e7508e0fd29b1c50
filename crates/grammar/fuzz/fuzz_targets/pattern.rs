//! Compiles any text as a regular expression and samples from it.
#![no_main]

mod common;

use arclight_grammar::Spec;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let (text, choices) = common::split(bytes);
    if let Ok(text) = str::from_utf8(text) {
        common::walk(&Spec::Regex(text.to_owned()), choices);
    }
});
