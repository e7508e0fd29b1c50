//! Bodies of fields that the endpoints know, with values of all kinds: behind the reading of JSON.
//!
//! The bytes are choices: the endpoint, then names, values, and how deep they go.
#![no_main]

mod choices;
mod common;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let [path, rest @ ..] = bytes else { return };
    let path = common::PATHS[usize::from(*path) % common::PATHS.len()];
    common::post(path, choices::body(path, rest).as_bytes());
});
