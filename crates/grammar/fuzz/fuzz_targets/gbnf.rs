//! Compiles any text as a GBNF grammar, and samples from it.
#![no_main]

mod common;

use arclight_grammar::Spec;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let (text, choices) = common::split(bytes);
    let Ok(text) = str::from_utf8(text) else { return };
    common::walk(&Spec::Gbnf(text.to_owned()), choices);
});
