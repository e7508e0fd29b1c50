//! Reads an hwloc document: no panic, a short message, and a machine that everything else takes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use topology::{Machine, layout, topotree::TopoTree};

fuzz_target!(|text: &str| match Machine::from_hwloc_xml(text) {
    Ok(machine) => {
        assert!(layout(&machine, None, None).is_ok());
        assert_eq!(TopoTree::of(&machine).cpus().len(), machine.cpus().len());
        assert!(!machine.to_string().is_empty());
    }
    Err(error) => assert!(error.to_string().len() < 1024),
});
