//! Any bytes as the body of any endpoint, which the first byte chooses.
#![no_main]

mod common;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let [path, body @ ..] = bytes else { return };
    common::post(common::PATHS[usize::from(*path) % common::PATHS.len()], body);
});
