//! Bodies of Ollama's endpoints: any bytes, and fields that they know with values of all kinds.
//!
//! The first byte chooses the endpoint, and by its lowest bit which of the two.
#![no_main]

mod choices;
mod common;

use libfuzzer_sys::fuzz_target;

const PATHS: [&str; 5] =
    ["/api/chat", "/api/generate", "/api/show", "/api/embed", "/api/embeddings"];

fuzz_target!(|bytes: &[u8]| {
    let [first, rest @ ..] = bytes else { return };
    let path = PATHS[usize::from(first / 2) % PATHS.len()];
    match first % 2 {
        0 => common::post(path, rest),
        _ => common::post(path, choices::body(path, rest).as_bytes()),
    }
});
