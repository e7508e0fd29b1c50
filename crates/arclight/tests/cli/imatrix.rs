//! Importance matrices measured on text.

use crate::support::{fails, file, output, run, succeeds};
use gguf::{ImportanceSums, Importances};
use testkit::repository;

fn demo() -> String {
    repository("demo/arclight-demo.gguf").display().to_string()
}

fn measured(to: &str, more: &[&str]) -> String {
    let ran = run(&[&["imatrix", &demo(), "-o", to], more].concat());
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    ran.err
}

#[test]
fn a_matrix_is_measured_added_to_and_used() {
    let (one, both) = (output("imatrix-one.gguf"), output("imatrix-both.gguf"));
    let text = repository("demo/heldout.txt").display().to_string();
    let said = measured(&one, &["-f", &text, "--ctx", "64", "--chunks", "3"]);
    assert!(said.contains("28 matrices on 192 tokens in 3 chunks of 64"), "{said}");
    let sums = |path: &str| ImportanceSums::parse(&std::fs::read(path).unwrap()).unwrap();
    let once = sums(&one);
    assert_eq!((once.chunks, once.chunk_size, &once.datasets), (3, 64, &vec![text.clone()]));
    assert!(once.entries.values().all(|entry| entry.counts == [192.0]));
    assert!(once.entries.keys().all(|name| name.starts_with("blk.")));

    measured(&both, &["-f", &text, "--ctx", "64", "--chunks", "3", "--add", &one]);
    let twice = sums(&both);
    assert_eq!((twice.chunks, twice.datasets.len()), (6, 2));
    assert!(twice.entries.values().all(|entry| entry.counts == [384.0]));
    // Twice the same text has the same means.
    let means = |path: &str| Importances::parse(&std::fs::read(path).unwrap()).unwrap();
    let (one, twice) = (means(&one), means(&both));
    for name in once.entries.keys() {
        for (x, y) in one.get(name).unwrap().iter().zip(twice.get(name).unwrap()) {
            // Sums are in single precision.
            assert!((x - y).abs() <= 1e-6 * x, "{name}: {x} {y}");
        }
    }
    let small = output("imatrix-small.gguf");
    let with = ["--type", "iq2_xs", "--allow-requantize", "--imatrix", &both];
    succeeds(&[&["quantize", &demo(), &small], &with[..]].concat());
}

#[test]
fn what_cannot_be_measured_is_told() {
    let (text, to) = (file("imatrix-short.txt", b"Once upon a time."), "imatrix-none.gguf");
    let demo = demo();
    let all = ["imatrix", &demo, "-o", to];
    let nothing = fails(2, &all);
    assert!(nothing.contains("name a text with -f"), "{nothing}");
    let other = fails(1, &[&all[..], &["-f", &text, "--add", &text]].concat());
    assert!(other.contains("imatrix-short.txt"), "{other}");
    // The model is loaded before.
    let short = run(&[&all[..], &["-f", &text]].concat());
    assert_eq!(short.code, Some(1));
    assert!(short.err.contains("fewer than one chunk of"), "{}", short.err);
}
