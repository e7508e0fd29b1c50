//! `synth`, `inspect`, `graph`, `topo`, `bench`, `perplexity`, `completions`.

use crate::support::{fails, file, json, output, run, succeeds, synth, tiny};
use serde_json::{Value, json as value};

#[test]
fn a_synthetic_model_can_be_looked_at_and_run() {
    for ty in ["f32", "bf16", "q8_0", "q4_k_m"] {
        let path = synth(&format!("tiny:{ty}"));
        let seen = json(&["inspect", &path, "-o", "json", "--tensors"]);
        assert_eq!(seen["runs"], true, "{seen}");
        assert_eq!(seen["model"]["type"], ty.to_uppercase());
        assert_eq!(seen["metadata"]["qwen3.block_count"], 2);
        // Embedding, output norm, and 11 tensors in each of two layers.
        assert_eq!(seen["tensors"].as_array().unwrap().len(), 24);
        let text = succeeds(&["run", &path, "-q", "-p", "the", "-n", "8", "--ignore-eos"]);
        assert!(!text.trim().is_empty());
    }
}

#[test]
fn the_seed_of_a_synthetic_model_decides_it() {
    let bytes = |seed: &str| {
        let path = output(&format!("seed-{seed}.gguf"));
        succeeds(&["synth", "tiny:q6_k", "-o", &path, "--seed", seed]);
        std::fs::read(path).unwrap()
    };
    assert_eq!(bytes("3"), bytes("3"));
    assert_ne!(bytes("3"), bytes("4"));
}

#[test]
fn inspect_shows_metadata_types_and_single_keys() {
    let text = succeeds(&["inspect", tiny()]);
    for part in ["Tiny Qwen3", "Q4_0", "can be run", "qwen3.block_count", "… 512 in all"] {
        assert!(text.contains(part), "no {part:?} in: {text}");
    }
    assert!(text.lines().all(|l| l.chars().count() <= 100), "lines are bearable");
    let tensors = succeeds(&["inspect", tiny(), "--tensors"]);
    assert!(tensors.contains("blk.1.ffn_down.weight") && tensors.contains("512 x 256"));
    assert_eq!(succeeds(&["inspect", tiny(), "--key", "tokenizer.ggml.pre"]), "qwen2\n");
    let tokens = succeeds(&["inspect", tiny(), "--key", "tokenizer.ggml.tokens"]);
    assert_eq!(tokens.lines().count(), 512);
}

/// A file with another number after a text that it has once, `skip` bytes on.
fn patched(file: &mut [u8], text: &str, skip: usize, bytes: &[u8]) {
    let at = file.windows(text.len()).position(|some| some == text.as_bytes()).expect(text);
    file[at + text.len() + skip..][..bytes.len()].copy_from_slice(bytes);
}

#[test]
fn inspect_shows_types_that_cannot_be_loaded() {
    let mut bytes = std::fs::read(tiny()).unwrap();
    // The type stands after the number of dimensions and two of them.
    patched(&mut bytes, "blk.0.ffn_down.weight", 20, &31_u32.to_le_bytes());
    patched(&mut bytes, "blk.1.ffn_down.weight", 20, &999_u32.to_le_bytes());
    let path = file("other-types.gguf", &bytes);
    let text = succeeds(&["inspect", &path, "--tensors"]);
    for part in [
        "Q4_0_4_4",
        "unknown type 999",
        "cannot be run",
        "2 tensors of types that are not supported",
    ] {
        assert!(text.contains(part), "no {part:?} in: {text}");
    }
    let line = text.lines().find(|line| line.contains("blk.1.ffn_down.weight")).unwrap();
    assert!(line.contains("512 x 256") && line.contains("unknown type 999"), "{line}");
    let (seen, known) = (
        json(&["inspect", &path, "-o", "json", "--tensors"]),
        json(&["inspect", tiny(), "-o", "json", "--tensors"]),
    );
    assert!(seen["runs"].as_str().unwrap().contains("blk.0.ffn_down.weight"), "{}", seen["runs"]);
    assert_eq!(seen["types"]["Q4_0_4_4"]["tensors"], 1);
    assert_eq!(seen["model"]["parameters"], known["model"]["parameters"]);
    let names = |seen: &Value| -> Vec<Value> {
        seen["tensors"].as_array().unwrap().iter().map(|tensor| tensor["name"].clone()).collect()
    };
    assert_eq!(names(&seen), names(&known));
    for (of, was) in
        seen["tensors"].as_array().unwrap().iter().zip(known["tensors"].as_array().unwrap())
    {
        assert_eq!((&of["bytes"], &of["offset"]), (&was["bytes"], &was["offset"]), "{of}");
    }
    // To load it is an error with the first one's name.
    let line = fails(1, &["run", &path, "-p", "a"]);
    assert!(line.contains("blk.0.ffn_down.weight") && line.contains("Q4_0_4_4"), "{line}");
}

#[test]
fn a_boolean_of_another_byte_is_true_and_told() {
    let mut bytes = Vec::new();
    let mut writer = gguf::Writer::new();
    writer.kv("general.architecture", "none").kv("odd.flag", true).write_to(&mut bytes).unwrap();
    patched(&mut bytes, "odd.flag", 4, &[2]);
    let path = file("odd-bool.gguf", &bytes);
    let ran = run(&["inspect", &path, "--key", "odd.flag"]);
    assert_eq!((ran.code, &*ran.out), (Some(0), "true\n"), "{}", ran.err);
    assert!(ran.err.contains("\"odd.flag\" is a boolean with byte 2"), "{}", ran.err);
    assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
}

#[test]
fn inspect_says_what_keys_and_values_take() {
    let text = succeeds(&["inspect", tiny()]);
    assert!(text.contains("KV cache in f16: 2 layers, "), "{text}");
    assert!(!text.contains("are kept"), "{text}");
    let windowed = file("windowed.gguf", &testkit::golden("mistral"));
    let text = succeeds(&["inspect", &windowed]);
    // Two layers, two heads of 16 half floats, keys and values.
    let line = "KV cache in f16: 2 layers, 256 B a token, of which the last 24 are kept";
    assert!(text.contains(line), "{text}");
    let seen = json(&["inspect", &windowed, "-o", "json"]);
    assert_eq!(seen["kv_cache"], value!([{"layers": 2, "window": 24, "bytes_per_token": 256}]));
}

#[test]
fn a_layer_needs_five_waits_of_which_two_are_global() {
    let two = succeeds(&["graph", "--nodes", "2"]);
    assert!(two.contains("5 waits, 2 of them global"), "{two}");
    assert!(two.contains("decode") && two.contains("partial"), "{two}");
    let one = succeeds(&["graph", tiny(), "--nodes", "1", "--layer", "0"]);
    assert!(one.contains("5 waits, 0 of them global"), "{one}");
    let prefill = succeeds(&["graph", "--nodes", "2", "--prefill"]);
    assert!(prefill.contains("prefill") && prefill != two, "{prefill}");
}

#[test]
fn the_machine_is_described_for_people_and_programs() {
    let text = succeeds(&["topo"]);
    assert!(text.contains("usable") && text.contains("group 0"), "{text}");
    let machine = json(&["topo", "-o", "json"]);
    assert!(!machine["machine"]["nodes"].as_array().unwrap().is_empty());
    assert!(!machine["layout"]["groups"][0]["cpus"].as_array().unwrap().is_empty());
}

#[test]
fn bench_gives_every_figure_beside_its_limit() {
    let seen = json(&["bench", "-r", "2", "-p", "16", "-n", "4", "-b", "1,2", "-o", "json"]);
    let results = seen["results"].as_array().unwrap();
    let names: Vec<&str> = results.iter().map(|r| r["test"].as_str().unwrap()).collect();
    assert_eq!(names, ["pp16", "tg4", "tg4 b2", "pp16+tg4", "pp16+tg4 b2"]);
    assert_eq!(
        (&results[3]["kind"], &results[3]["tokens"]),
        (&Value::from("combined"), &Value::from(20))
    );
    for result in results {
        let number = |key: &str| result[key].as_f64().unwrap();
        let samples: Vec<f64> =
            result["samples"].as_array().unwrap().iter().map(|s| s.as_f64().unwrap()).collect();
        assert_eq!(samples.len(), 2);
        let mean = samples.iter().sum::<f64>() / 2.0;
        assert!((number("mean") / mean - 1.0).abs() < 1e-9, "{result}");
        // What beats its limit has no share, and says why.
        let best = samples.iter().copied().fold(0.0, f64::max);
        match best <= number("limit") {
            true => {
                assert!((number("of_limit") - mean / number("limit")).abs() < 1e-9, "{result}");
                assert_eq!(result["no_share"], Value::Null, "{result}");
            }
            false => {
                assert_eq!(result["of_limit"], Value::Null, "{result}");
                let why = result["no_share"].as_str().unwrap();
                assert!(why.starts_with("faster than "), "{result}");
            }
        }
        assert!(number("read_bytes_per_second") > 1e6, "{result}");
        for product in ["int8", "bf16", "f16", "f32"] {
            let rate = result["macs_per_second"][product].as_f64().unwrap();
            assert!(rate > 1e6, "{product} of {result}");
        }
    }
    assert!(seen["model"]["parameters"].as_u64().unwrap() > 1_000_000);
}

#[test]
fn bench_has_a_page_for_every_sequence() {
    let seen = json(&["bench", "-r", "1", "-p", "0", "-n", "2", "-b", "5", "-o", "json"]);
    assert_eq!(seen["results"][0]["test"], "tg2 b5");
}

#[test]
fn bench_prints_tables_and_takes_synthetic_models() {
    let args = ["bench", "--synth", "tiny:q4_k_m", "-r", "1", "-p", "8", "-n", "2", "-d", "0,300"];
    let table = succeeds(&args);
    for part in ["Q4_K_M", " pp8 ", " tg2 @ d300 ", " pp8+tg2 ", "of limit", "GMAC/s"] {
        assert!(table.contains(part), "no {part:?} in: {table}");
    }
    let csv = succeeds(&[&args[..], &["-o", "csv", "-t", "1,2"]].concat());
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines.len(), 1 + 2 * 6, "{csv}");
    let fields = lines[0].split(',').count();
    // The CPU's name is quoted and may have commas.
    assert!(lines[1..].iter().all(|l| l.split(',').count() >= fields), "{csv}");
}

#[test]
fn limits_of_the_machine_need_no_model() {
    let args = ["bench", "--limits", "-r", "1", "-t", "2", "-o"];
    let seen = json(&[&args[..], &["json"]].concat());
    let number = |of: &Value, key: &str| of[key].as_f64().unwrap();
    let [row] = seen["threads"].as_array().unwrap().as_slice() else { panic!("{seen}") };
    assert_eq!((row["threads"].as_u64(), row["nodes"].as_u64()), (Some(2), Some(1)), "{seen}");
    assert!(number(row, "read_bytes_per_second") > 1e6, "{seen}");
    assert!(number(row, "local_wait_microseconds") > 0.0, "{seen}");
    let peaks = seen["peaks"].as_array().unwrap();
    let isas: Vec<&str> = peaks.iter().map(|row| row["isa"].as_str().unwrap()).collect();
    assert!(isas.contains(&seen["kernels"].as_str().unwrap()), "{seen}");
    assert_eq!(isas.last(), Some(&"scalar"), "{seen}");
    for row in peaks {
        for product in ["int8", "bf16", "f16", "f32"] {
            assert!(number(&row["macs_per_second"], product) > 1e6, "{product} of {row}");
        }
    }
    let table = succeeds(&[&args[..], &["md"]].concat());
    for part in ["| threads | nodes | read GB/s |", "| instructions |", "| scalar "] {
        assert!(table.contains(part), "no {part:?} in: {table}");
    }
    let csv = succeeds(&[&args[..], &["csv"]].concat());
    let tables: Vec<usize> = csv.split("\n\n").map(|table| table.lines().count()).collect();
    assert_eq!(tables, [1 + 1, 1 + peaks.len()], "{csv}");
    let beside = |more: &[&str]| fails(2, &[&["bench", "--limits"], more].concat());
    assert!(beside(&[tiny()]).contains("cannot be used with"));
    assert!(beside(&["-p", "8"]).contains("cannot be used with"));
}

#[test]
fn replicas_are_measured_side_by_side() {
    // One core is enough: it is a part of the machine, too.
    let args = ["bench", "--synth", "tiny:q4_0", "-r", "2", "-p", "8", "-n", "2", "-d", "0,9"];
    let seen = json(&[&args[..], &["--replicas", "1", "-o", "json"]].concat());
    let results = seen["results"].as_array().unwrap();
    let of = |key: &'static str| results.iter().map(move |r| r[key].as_str().unwrap());
    let tests = ["pp8", "tg2", "pp8+tg2", "pp8 @ d9", "tg2 @ d9", "pp8+tg2 @ d9"];
    assert!(of("test").eq(tests.iter().flat_map(|&t| [t, t])), "{seen}");
    assert!(of("replica").eq(["0", "all"].into_iter().cycle().take(12)), "{seen}");
    for pair in results.chunks(2) {
        let [one, all] = [0, 1].map(|i| pair[i]["limit"].as_f64().unwrap());
        assert!((one / all - 1.0).abs() < 1e-9, "{seen}");
    }
    let table = succeeds(&[&args[..], &["--replicas", "1", "-o", "md"]].concat());
    assert!(table.contains("| replica | nodes |") && table.contains("|     all |"), "{table}");
    assert_eq!(table.matches("limits in this run").count(), 1, "{table}");
    let e = fails(2, &[&args[..], &["--replicas", "9000"]].concat());
    assert!(e.contains("9000 replicas") && e.contains("usable core"), "{e}");
    assert!(fails(2, &["bench", "--replicas", "2", "--report"]).contains("--report"));
}

#[test]
fn perplexity_of_noise_is_the_vocabulary_and_of_its_own_language_little() {
    // Text of the demo model's own kind that it was not trained on.
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../demo/heldout.txt");
    let measured = |model: &[&str], nodes: &str| {
        let args = ["perplexity", "-f", path, "--ctx", "128", "--chunks", "8", "-o", "json"];
        json(&[&args[..], &["--nodes", nodes], model].concat())
    };
    let demo = measured(&[], "1");
    let perplexity = |of: &Value| of["perplexity"].as_f64().unwrap();
    assert!(perplexity(&demo) < 10.0, "{demo}");
    assert_eq!((demo["chunks"].as_u64(), demo["scored"].as_u64()), (Some(8), Some(8 * 63)));
    // Random weights: about as likely as any token, which are 512.
    let noise = measured(&[tiny()], "1");
    assert!(perplexity(&noise) > 100.0, "{noise}");
    // Over nodes the order of sums differs, which is worth far less than a thousandth.
    let two = measured(&[], "2");
    assert!((perplexity(&two) / perplexity(&demo) - 1.0).abs() < 1e-3, "{two} {demo}");
}

#[test]
fn completions_and_help_are_there_for_every_shell_and_command() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(succeeds(&["completions", shell]).contains("perplexity"), "{shell}");
    }
    let help = succeeds(&["--help"]);
    for command in
        ["run", "chat", "bench", "perplexity", "inspect", "topo", "graph", "synth", "completions"]
    {
        assert!(help.contains(command), "{command}");
        let own = succeeds(&[command, "--help"]);
        assert!(own.contains("Usage: arclight") && own.contains("Examples:"), "{own}");
    }
    assert!(succeeds(&["--version"]).starts_with("arclight "));
    assert!(succeeds(&["man"]).contains("arclight\\-run(1)"), "{}", succeeds(&["man"]));
    assert!(succeeds(&["man", "run"]).contains(".SH EXTRA"), "{}", succeeds(&["man", "run"]));
    assert!(fails(2, &["man", "runn"]).contains("runn is no command"));
    let bare = run(&[]);
    assert_eq!(bare.code, Some(2));
    assert!(bare.err.contains("Start here:"), "{}", bare.err);
}
