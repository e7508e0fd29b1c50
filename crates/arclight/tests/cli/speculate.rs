//! `--speculate` of `run` and `bench`; `serve` has it from the engine, whose tests say more.

use crate::support::{fails, json, run, succeeds};

const DEMO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../demo/arclight-demo.gguf");
const AGAIN: &str = "The cat said: I am a cat. The dog said: I am a dog. The cat said: I am a";

#[test]
fn guesses_change_no_text_and_their_acceptance_is_printed() {
    let plain = succeeds(&["run", "-q", "-n", "60", "--greedy", "-p", AGAIN]);
    let draft: &[&str] = &["--draft-model", DEMO];
    for how in [&["--speculate", "lookup"][..], &["--speculate", "lookup:3"], draft] {
        let ran = run(&[&["run", "-n", "60", "--greedy", "-p", AGAIN], how].concat());
        assert_eq!(ran.out, plain, "{how:?}: {}", ran.err);
        let line = ran.err.lines().find(|line| line.starts_with("guessed"));
        let line = line.unwrap_or_else(|| panic!("{how:?}: {}", ran.err));
        assert!(line.contains("tokens came true"), "{line}");
        // A model guesses right for itself.
        assert!(how != draft || line.contains("(100 %)"), "{line}");
    }
}

#[test]
fn bench_measures_what_guesses_gain() {
    let text = crate::support::file("again.txt", AGAIN.as_bytes());
    let asked = ["bench", "--speculate", "lookup", "--text", &text, "-n", "24,48", "-r", "2"];
    let seen = json(&[&asked[..], &["-o", "json"]].concat());
    let rows = seen["results"].as_array().unwrap();
    assert_eq!(rows.len(), 2);
    for (row, tokens) in rows.iter().zip([24, 48]) {
        assert_eq!(row["tokens"], tokens);
        assert!(row["guessed"].as_u64().unwrap() >= row["right"].as_u64().unwrap());
        for rates in ["with", "without"] {
            let rates = row[rates].as_array().unwrap();
            assert!(rates.len() == 2 && rates.iter().all(|rate| rate.as_f64().unwrap() > 0.0));
        }
    }
    let table = succeeds(&asked);
    assert!(table.contains("came true") && table.contains(" tg48 @ d"), "{table}");
    let csv = succeeds(&[&asked[..], &["-o", "csv"]].concat());
    assert_eq!(csv.lines().count(), 3, "{csv}");
    assert!(csv.lines().next().unwrap().contains(",model.name,"), "{csv}");
}

#[test]
fn a_layer_that_predicts_is_used_where_there_is_one() {
    let model = "tiny-hybrid+mtp:q8_0";
    let asked = ["bench", "--synth", model, "--speculate", "mtp:2", "-n", "12", "-r", "1"];
    let seen = json(&[&asked[..], &["-o", "json"]].concat());
    assert!(seen["results"][0]["guessed"].as_u64().unwrap() > 0, "{seen}");
    let none = fails(1, &["run", DEMO, "-q", "--speculate", "mtp", "-p", "The"]);
    assert!(none.contains("no layers that predict further tokens"), "{none}");
}

#[test]
fn contradictions_are_refused() {
    for (args, what) in [
        (&["bench", DEMO, "--text", "x"][..], "--speculate"),
        (&["bench", DEMO, "--speculate", "lookup", "-b", "2"], "leave -p"),
        (&["bench", DEMO, "--speculate", "lookup", "-d", "9"], "leave -p"),
        (&["run", "--speculate", "draft", "-p", "a"], "--draft-model"),
        (&["run", "--speculate", "mtp", "--draft-model", DEMO, "-p", "a"], "leave --speculate out"),
        (&["run", "--speculate", "sometimes", "-p", "a"], "lookup, mtp or draft"),
    ] {
        let line = fails(2, args);
        assert!(line.contains(what), "{args:?}: {line}");
    }
}
