//! What the program says on the outside when it cannot check: a status and the fault's name, which
//! the scripts of `tests/numa-vm` rely on.

use std::process::{Command, Output};

fn check(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_arclight-numa-check")).args(args).output().unwrap()
}

#[test]
fn a_model_that_is_not_there_is_named() {
    let out = check(&["logits", "--model", "/nowhere/model.gguf", "--out", "/nowhere/logits"]);
    let text = String::from_utf8(out.stderr).unwrap();
    assert_eq!(out.status.code(), Some(1), "{text}");
    assert!(text.starts_with("FAILED: ") && text.contains("/nowhere/model.gguf"), "{text}");
}

#[test]
fn unknown_commands_and_marks_are_refused() {
    for args in [&["frobnicate"][..], &["mark", "frobnicate"], &["mark"]] {
        let out = check(args);
        assert_eq!((out.status.code(), out.stdout.len()), (Some(2), 0), "{args:?}");
    }
}
