//! Reads a synthetic string: no panic, a short message, and a machine that everything else takes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use topology::{Machine, layout, topotree::TopoTree};

fuzz_target!(|text: &str| match Machine::from_synthetic(text) {
    Ok(machine) => {
        assert!(layout(&machine, None, None).is_ok());
        assert_eq!(TopoTree::of(&machine).cpus().len(), machine.cpus().len());
    }
    Err(error) => assert!(error.to_string().len() < 1024),
});
