//! Compiles any text as a Lark grammar, alone and within another, and samples from it.
#![no_main]

mod common;

use arclight_grammar::Spec;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let (text, choices) = common::split(bytes);
    let Ok(text) = str::from_utf8(text) else { return };
    let spec = Spec::Lark(text.to_owned());
    common::walk(&spec, choices);
    let _ = common::VOCABULARY.compile_within("start: \"<\" @answer \">\" | \"none\"", &spec);
});
