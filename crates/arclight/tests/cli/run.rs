//! `run`: text in, text out.

use crate::support::{arclight, run, run_with, succeeds, tiny};
use std::process::Stdio;

#[test]
fn the_demo_model_writes_text_and_is_named() {
    let ran = run(&["run", "-n", "60", "--seed", "1"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(ran.out.split_whitespace().count() > 10, "{}", ran.out);
    assert!(ran.out.is_ascii(), "a demo of plain words: {}", ran.out);
    for part in ["demo model", "tokens/s", "ms/token", "seed       1", "KV up to"] {
        assert!(ran.err.contains(part), "no {part:?} in: {}", ran.err);
    }
}

#[test]
fn a_seed_decides_the_text_whatever_the_threads() {
    let text =
        |seed, threads| succeeds(&["run", "-q", "-n", "40", "--seed", seed, "--threads", threads]);
    let first = text("7", "1");
    assert_eq!(first, text("7", "1"));
    assert_eq!(first, text("7", "3"));
    assert_ne!(first, text("8", "1"));
}

#[test]
fn the_seed_that_is_printed_repeats_the_text() {
    let first = run(&["run", "-n", "40"]);
    let seed = first.err.lines().find_map(|l| l.strip_prefix("seed")).expect("a seed").trim();
    assert_eq!(succeeds(&["run", "-q", "-n", "40", "--seed", seed]), first.out);
}

#[test]
fn quiet_is_the_text_alone() {
    let ran = run(&["run", "-q", "-n", "5", "--greedy", "-p", "Once upon a time"]);
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
    assert!(ran.out.ends_with('\n') && ran.out.trim().len() > 5, "{:?}", ran.out);
}

#[test]
fn prompts_come_from_arguments_files_and_pipes() {
    let prompt = "One morning";
    let text = succeeds(&["run", "-q", "-n", "20", "--greedy", "-p", prompt]);
    // The line end that an editor leaves is no part of it.
    let path = crate::support::file("prompt.txt", format!("{prompt}\n").as_bytes());
    assert_eq!(succeeds(&["run", "-q", "-n", "20", "--greedy", "-f", &path]), text);
    assert_eq!(run_with(&["run", "-q", "-n", "20", "--greedy"], prompt).out, text);
    let other = succeeds(&["run", "-q", "-n", "20", "--greedy", "-p", "The old"]);
    assert_ne!(other, text);
}

#[test]
fn a_stop_string_ends_the_text_before_it() {
    let whole = succeeds(&["run", "-q", "-n", "40", "--greedy"]);
    // Of its own words, one that the beginning does not have.
    let own = whole.split_whitespace().skip(6);
    let word = own.into_iter().find(|word| word.len() > 4).expect("a long word");
    let cut = run(&["run", "-n", "40", "--greedy", "--stop", word]);
    let before = whole.find(word).expect("it was just there");
    assert_eq!(cut.out.trim_end(), whole[..before].trim_end());
    assert!(cut.err.contains("at a stop string"), "{}", cut.err);
}

#[test]
fn a_question_gets_an_answer_through_the_template() {
    let ask = ["run", "-q", "-n", "60", "--greedy", "-p", "Tell me a story."];
    let answer = succeeds(&[&ask[..], &["--chat"]].concat());
    assert!(answer.split_whitespace().count() > 5, "{answer}");
    assert_ne!(answer, succeeds(&ask));
}

#[test]
fn a_full_context_ends_the_text_and_says_so() {
    let ran = run(&["run", tiny(), "-p", "word", "--ctx", "32", "--ignore-eos", "--greedy"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(ran.err.contains("the context of 32 tokens (--ctx)"), "{}", ran.err);
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let mut command = arclight(&["run", "-n", "2000", "--ignore-eos"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{err}");
    assert!(!err.contains("error") && !err.contains("panicked"), "{err}");
}

#[test]
fn virtual_nodes_write_the_same_story_by_the_same_seed() {
    // Sums over nodes round differently, but not so much that greedy words change soon.
    let text = |nodes| succeeds(&["run", "-q", "-n", "12", "--greedy", "--nodes", nodes]);
    assert_eq!(text("1"), text("2"));
    let ran = run(&["run", "-n", "2", "--nodes", "2"]);
    assert!(ran.err.contains("node 1: weights"), "{}", ran.err);
}

/// By what the cache takes.
#[test]
fn keys_and_values_may_have_types_of_their_own() {
    let kv = |args: &[&str]| {
        let ran = run(&[&["run", "-n", "5", "--greedy"], args].concat());
        assert_eq!(ran.code, Some(0), "{}", ran.err);
        let at = ran.err.find("KV up to ").expect("it is told");
        ran.err[at..].split([',', '\n']).next().unwrap().to_owned()
    };
    let (whole, keys) = (kv(&[]), kv(&["--cache-type-k", "q8_0"]));
    assert_ne!(keys, whole);
    assert_ne!(keys, kv(&["--kv-type", "q8_0"]));
    assert_eq!(keys, kv(&["-ctk", "q8_0"]), "the short name of llama.cpp");
    assert_eq!(keys, kv(&["--kv-type", "q8_0", "-ctv", "f16"]));
    assert_eq!(whole, kv(&["--kv-type", "q4_0", "-ctk", "f16", "-ctv", "f16"]));
}
