//! Whatever is wrong: one line that names it, the right exit code, no panic.

use crate::support::{FILES, arclight, complains, fails, file, run_with, text, tiny};
use gguf::{TensorType, Writer};
use std::process::Stdio;

#[test]
fn files_that_are_no_models() {
    let missing = text(&FILES.path().join("missing.gguf"));
    let line = fails(1, &["run", &missing, "-p", "a"]);
    assert!(line.contains("missing.gguf"), "{line}");

    let directory = text(FILES.path());
    let line = fails(1, &["run", &directory, "-p", "a"]);
    assert!(line.contains("directory"), "{line}");

    let other = file("other.gguf", b"This is a text and no model.");
    for command in [&["run", &other, "-p", "a"][..], &["inspect", &other], &["graph", &other]] {
        let line = fails(1, command);
        assert!(line.contains("other.gguf") && line.contains("GGUF"), "{line}");
    }

    let whole = std::fs::read(tiny()).unwrap();
    let half = file("half.gguf", &whole[..whole.len() / 2]);
    let line = fails(1, &["run", &half, "-p", "a"]);
    assert!(line.contains("half.gguf"), "{line}");

    let empty = file("empty.gguf", b"");
    let line = fails(1, &["bench", &empty]);
    assert!(line.contains("empty"), "{line}");
}

#[test]
fn an_architecture_that_is_not_known() {
    let mut bytes = Vec::new();
    Writer::new()
        .kv("general.architecture", "mamba")
        .tensor("token_embd.weight", &[32], TensorType::F32, vec![0u8; 128])
        .write_to(&mut bytes)
        .unwrap();
    let path = file("mamba.gguf", &bytes);
    let line = fails(1, &["run", &path, "-p", "a"]);
    assert!(line.contains("\"mamba\"") && line.contains("qwen3"), "{line}");
}

#[test]
fn a_model_without_a_vocabulary() {
    let mut bytes = Vec::new();
    let whole = std::fs::read(tiny()).unwrap();
    let gguf = gguf::Gguf::parse(&whole).unwrap();
    let mut writer = Writer::new();
    for (key, value) in gguf.metadata().iter().filter(|(k, _)| !k.starts_with("tokenizer.")) {
        writer.kv(key, value);
    }
    for t in gguf.tensors() {
        writer.tensor(t.name(), t.shape.dims(), t.ty, t.data);
    }
    writer.write_to(&mut bytes).unwrap();
    let path = file("mute.gguf", &bytes);
    let line = fails(1, &["run", &path, "-p", "a"]);
    assert!(line.contains("mute.gguf") && line.contains("tokenizer.ggml.model"), "{line}");
}

#[test]
fn contexts_that_are_too_long_or_too_short() {
    let line = fails(2, &["run", tiny(), "-p", "a", "--ctx", "513"]);
    assert!(line.contains("513") && line.contains("--ctx 512"), "{line}");

    let prompt = "word ".repeat(40);
    let line = fails(1, &["run", tiny(), "-p", &prompt, "--ctx", "32", "-q"]);
    assert!(line.contains("32") && line.contains("--ctx"), "{line}");

    let line = fails(2, &["bench", tiny(), "-d", "500", "-p", "13"]);
    assert!(line.contains("pp13 @ d500") && line.contains("513"), "{line}");

    let short = file("short.txt", b"a few words");
    let line = fails(1, &["perplexity", tiny(), "-f", &short, "-o", "json"]);
    assert!(line.contains("short.txt") && line.contains("--ctx"), "{line}");
}

#[test]
fn threads_and_nodes_that_cannot_be() {
    let line = fails(2, &["run", tiny(), "-p", "a", "--threads", "0"]);
    assert!(line.contains("--threads") && line.contains("at least 1"), "{line}");
    let line = fails(2, &["run", tiny(), "-p", "a", "--nodes", "none"]);
    assert!(line.contains("--nodes") && line.contains("whole number"), "{line}");
    let line = fails(2, &["run", tiny(), "-p", "a", "--nodes", "2", "--threads", "1"]);
    assert!(line.contains("2"), "{line}");
    for nodes in ["2", "0-1"] {
        let line = fails(2, &["run", tiny(), "-p", "a", "--numa", "isolate", "--nodes", nodes]);
        assert!(line.contains("one memory node, and not 2"), "{line}");
    }
    let line = fails(2, &["run", tiny(), "-p", "a", "--numa", "nearest"]);
    assert!(line.contains("isolate") && line.contains("distribute"), "{line}");
    for size in ["255K", "1025M", "9999999T"] {
        let line = fails(2, &["run", tiny(), "-p", "a", "--stack-size", size]);
        assert!(line.contains("256 KiB to 1 GiB"), "{line}");
    }
    let line = fails(2, &["bench", tiny(), "-t", "1,0"]);
    assert!(line.contains("'1,0'"), "{line}");
    let line = fails(2, &["graph", tiny(), "--layer", "2"]);
    assert!(line.contains("--layer 1"), "{line}");
}

#[test]
fn sampler_values_out_of_range() {
    for (option, value, name) in [
        ("--temp", "-1", "temperature"),
        ("--temp", "nan", "temperature"),
        ("--top-p", "0", "top_p"),
        ("--top-p", "1.5", "top_p"),
        ("--min-p", "2", "min_p"),
        ("--repeat-penalty", "0", "repetition_penalty"),
        ("--presence-penalty", "inf", "presence_penalty"),
        ("--temp", "hot", "--temp"),
        ("--top-k", "-1", "--top-k"),
        ("--seed", "1.5", "--seed"),
        ("-n", "0", "--tokens"),
    ] {
        let line = fails(2, &["run", "-p", "a", option, value]);
        assert!(line.contains(name), "{option} {value}: {line}");
    }
}

#[test]
fn names_of_synthetic_models() {
    let out = text(&FILES.path().join("never.gguf"));
    let line = fails(2, &["synth", "gpt5:q4_0", "-o", &out]);
    assert!(line.contains("\"gpt5\"") && line.contains("qwen3-0.6b"), "{line}");
    let line = fails(2, &["bench", "--synth", "tiny:q3"]);
    assert!(line.contains("\"q3\"") && line.contains("q4_k_m"), "{line}");
    let line = fails(1, &["synth", "tiny:q4_0", "-o", &text(&FILES.path().join("no/dir.gguf"))]);
    assert!(line.contains("no/dir.gguf"), "{line}");
    assert!(!FILES.path().join("never.gguf").exists());
}

#[test]
fn prompts_that_are_not_there() {
    let line = fails(2, &["run", tiny()]);
    assert!(line.contains("-p"), "{line}");
    let line = fails(1, &["run", tiny(), "-f", &text(&FILES.path().join("nowhere.txt"))]);
    assert!(line.contains("nowhere.txt"), "{line}");
    let line = complains(1, &run_with(&["run", tiny(), "--chat", "-q"], "Hello"));
    assert!(line.contains("no chat template"), "{line}");
    let line = fails(1, &["chat", tiny()]);
    assert!(line.contains("no chat template") && line.contains("run"), "{line}");
}

#[test]
fn words_that_are_no_commands() {
    let line = fails(2, &["chatt"]);
    assert!(line.contains("'chatt'") && line.contains("'chat'"), "{line}");
    let line = fails(2, &["run", "--prompts", "a"]);
    assert!(line.contains("--prompts"), "{line}");
    let line = fails(1, &["inspect", tiny(), "--key", "no.such"]);
    assert!(line.contains("no.such"), "{line}");
}

#[test]
fn environment_variables_that_make_no_sense() {
    for (name, value) in [("ARCLIGHT_LOG", "arclight=loud"), ("ARCLIGHT_ISA", "mmx")] {
        let mut command = arclight(&["run", tiny(), "-p", "a"]);
        let output = command.env(name, value).stdout(Stdio::null()).output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{err}");
        assert!(err.starts_with("error: ") && err.contains(name) && err.contains(value), "{err}");
        assert_eq!(err.lines().count(), 1, "{err}");
    }
}
