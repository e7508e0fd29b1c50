//! How much memory a model takes while it runs.

use crate::support::{run, synth};

/// Weights are packed piece by piece and the file's pages given back, so nothing is held twice.
#[test]
fn a_running_model_takes_its_file_its_cache_and_a_tenth() {
    // The tenth has to hold the vocabulary (some 35 MB) and the activations, so the file must not
    // be too small for that.
    let path = synth("llama3.2-1b:q4_0");
    let file = std::fs::metadata(&path).unwrap().len() as f64;
    // A first start's search would have more sequences, and the peak is of the process.
    let args = ["run", &path, "--untuned", "--ctx", "512", "-p", "the", "-n", "4", "--greedy"];
    let ran = run(&args);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let line = ran.err.lines().find_map(|l| l.strip_prefix("memory     ")).expect("a peak");
    let mut words = line.split_whitespace();
    let number: f64 = words.next().unwrap().parse().unwrap();
    let unit = match words.next() {
        Some("MiB") => f64::from(1 << 20),
        Some("GiB") => f64::from(1 << 30),
        other => panic!("a peak in {other:?}"),
    };
    // 16 layers of 8 heads of 64 elements, keys and values, two bytes each.
    let cache = f64::from(512 * 16 * 8 * 64 * 2 * 2);
    let peak = number * unit;
    assert!(peak > file, "{line}: less than the weights");
    assert!(peak < 1.1 * (file + cache), "{line}: file {file}, cache {cache}");
}
