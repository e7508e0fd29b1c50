//! Reads any bytes as what hosts of a model say to each other.
#![no_main]

use arclight_engine::fuzz_stage_messages;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| fuzz_stage_messages(bytes));
