//! Reads an importance matrix: no panic, no memory beyond a multiple of the input.
#![no_main]

use gguf::Importances;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| match Importances::parse(bytes) {
    Ok(read) => assert!(!read.is_empty() && 4 * read.len() <= bytes.len()),
    Err(error) => assert!(error.to_string().len() < 4096),
});
