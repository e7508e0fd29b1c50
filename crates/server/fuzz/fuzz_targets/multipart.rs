//! Any bytes as a form with a file for batches (`POST /v1/files`), in pieces as a connection brings them.
//!
//! The first byte is the size of a piece; the boundary is `edge`.
#![no_main]

mod common;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let [piece, form @ ..] = bytes else { return };
    common::upload(form, 1 + usize::from(*piece));
});
