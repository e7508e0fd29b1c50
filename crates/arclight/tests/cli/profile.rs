//! `--profile`: a trace in a file, tables of operators.

use crate::support::{FILES, fails, run, succeeds, tiny};
use serde_json::Value;

fn trace(path: &str) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).expect("the trace is JSON")
}

/// Complete events of a name in a trace.
fn count(trace: &Value, name: &str) -> usize {
    let events = trace["traceEvents"].as_array().expect("events").iter();
    events.filter(|e| e["ph"] == "X" && e["name"] == name).count()
}

#[test]
fn a_run_has_a_table_for_the_prompt_and_one_for_the_answer() {
    let path = FILES.path().join("run.json");
    let path = path.to_str().unwrap();
    let args = ["run", "-n", "4", "--greedy", "-t", "2", "-p", "Once upon a time", "--profile"];
    let ran = run(&[&args[..], &[path]].concat());
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let (_, tables) = ran.err.split_once("\nprompt: 1 step of ").expect("a table of the prompt");
    let (prompt, answer) = tables.split_once("\ngeneration: 3 steps of ").expect("and another");
    for table in [prompt, answer] {
        for name in ["operator ", "qkv ", "attn_output ", "gate_up ", "down ", "logits ", "all "] {
            assert!(table.lines().any(|line| line.starts_with(name)), "{name} in {table}");
        }
    }
    assert!(answer.contains("limits: read ") && answer.contains(path), "{answer}");
    let trace = trace(path);
    assert_eq!((count(&trace, "prompt"), count(&trace, "generation")), (1, 3));
    assert_eq!(count(&trace, "logits"), 2 * 4, "two threads, four steps");
    // The text is what it is without.
    assert_eq!(ran.out, succeeds(&args[..args.len() - 1]));
}

#[test]
fn a_bench_has_a_table_for_each_test_and_thread_count() {
    let path = FILES.path().join("bench.json");
    let path = path.to_str().unwrap();
    let args = ["bench", "-p", "8", "-n", "2", "-t", "1,2", "-r", "2", "--profile", path];
    let out = succeeds(&args);
    let titles: Vec<&str> = out.lines().filter(|line| line.contains(" each, on ")).collect();
    assert_eq!(titles.len(), 4, "{out}");
    for (title, (test, end)) in titles.iter().zip([
        ("pp8: 2 steps", "8 tokens each, on 1 thread"),
        ("tg2: 4 steps", "1 token each, on 1 thread"),
        ("pp8: 2 steps", "8 tokens each, on 2 threads"),
        ("tg2: 4 steps", "1 token each, on 2 threads"),
    ]) {
        assert!(title.starts_with(test) && title.ends_with(end), "{title}");
    }
    let trace = trace(path);
    assert_eq!(count(&trace, "pp8"), 4, "the warm-up is not in it");
    let classes = trace["otherData"]["classes"].as_array().expect("classes");
    let of = |at: usize, key: &str| classes[at]["shares"][key].as_f64().expect("a share");
    let named = |at: usize| (classes[at]["engine"].as_u64(), classes[at]["phase"].as_str());
    assert_eq!(
        (classes.len(), named(0), named(3)),
        (4, (Some(1), Some("pp8")), (Some(2), Some("tg2")))
    );
    let keys = ["gemm", "attention", "norm", "residual", "overhead", "sequential"];
    assert!((keys.map(|key| of(0, key)).iter().sum::<f64>() - 1.0).abs() < 1e-9, "{classes:?}");
    assert!(out.matches("in ZigLlama's table").count() == 4 && of(0, "gemm") > 0.0, "{out}");
    assert_eq!(count(&trace, "logits"), 6 + 2 * 6);
    // What is to be parsed stays so.
    let ran = run(&[&args[..], &["-o", "json"]].concat());
    assert!(serde_json::from_str::<Value>(&ran.out).is_ok(), "{}", ran.out);
    assert!(ran.err.contains("operator "), "{}", ran.err);
}

#[test]
fn a_file_that_cannot_be_made_is_told_before_any_work() {
    let line = fails(1, &["bench", tiny(), "--profile", "/no/such/folder/out.json"]);
    assert!(line.contains("cannot write /no/such/folder/out.json"), "{line}");
    let line = fails(1, &["run", tiny(), "-p", "a", "--profile", "/"]);
    assert!(line.contains("cannot write /"), "{line}");
}
