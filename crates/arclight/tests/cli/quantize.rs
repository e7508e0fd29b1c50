//! `quantize`.

use crate::support::{fails, file, run, succeeds, tiny};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// A model in BF16.
fn floats() -> &'static str {
    static FLOATS: LazyLock<String> = LazyLock::new(|| {
        let path = file("floats.gguf", b"");
        succeeds(&["synth", "tiny:bf16", "-o", &path]);
        path
    });
    &FLOATS
}

/// The types of a file's matrices, by name.
fn types(path: &str) -> BTreeMap<String, String> {
    let seen = succeeds(&["inspect", path, "--json", "--tensors"]);
    let seen: Value = serde_json::from_str(&seen).expect("JSON");
    let tensors = seen["tensors"].as_array().unwrap().iter();
    let text = |v: &Value| v.as_str().unwrap().to_owned();
    tensors.map(|t| (text(&t["name"]), text(&t["type"]))).collect()
}

#[test]
fn a_quantised_file_has_the_types_of_its_mix_and_runs() {
    let to = file("quantised.gguf", b"");
    let matrices =
        ["token_embd", "blk.0.attn_v", "blk.0.ffn_down", "blk.1.ffn_down", "blk.1.ffn_up"];
    for (mix, expected) in [
        ("q4_k_m", ["Q6_K", "Q4_K", "Q4_K", "Q6_K", "Q4_K"]),
        // Four queries share a key and value.
        ("iq4_nl", ["Q6_K", "Q5_K", "IQ4_NL", "IQ4_NL", "IQ4_NL"]),
        ("q8_0", ["Q8_0"; 5]),
        ("f32", ["F32"; 5]),
    ] {
        succeeds(&["quantize", floats(), &to, "--type", mix]);
        let types = types(&to);
        assert_eq!(matrices.map(|name| &types[&format!("{name}.weight")]), expected, "{mix}");
        assert_eq!(types["blk.0.attn_norm.weight"], "F32");
        let seen = succeeds(&["inspect", &to, "--json"]);
        let seen: Value = serde_json::from_str(&seen).expect("JSON");
        assert_eq!(seen["model"]["type"], mix.to_uppercase());
        succeeds(&["run", &to, "-q", "-p", "the", "-n", "4", "--ignore-eos"]);
    }
}

#[test]
fn threads_and_detours_do_not_change_a_byte() {
    let made = |name: &str, from: &str, ty: &str, threads: &str| {
        let to = file(name, b"");
        succeeds(&["quantize", from, &to, "--type", ty, "-t", threads]);
        (std::fs::read(&to).unwrap(), to)
    };
    let (one, _) = made("one.gguf", floats(), "q5_k_s", "1");
    assert!(one == made("three.gguf", floats(), "q5_k_s", "3").0, "threads changed bytes");
    // bfloat16 is held by single precision exactly.
    let (_, wide) = made("wide.gguf", floats(), "f32", "2");
    assert!(one == made("over.gguf", &wide, "q5_k_s", "2").0, "F32 between changed bytes");
}

#[test]
fn rules_go_before_the_mix() {
    let to = file("ruled.gguf", b"");
    let rules = ["--tensor-type", r"blk\.0\.attn_[qk]\.=q8_0", "--tensor-type", "attn=Q5_1"];
    succeeds(&[&["quantize", floats(), &to, "--type", "q4_0", "--pure"], &rules[..]].concat());
    let types = types(&to);
    let of = |name: &str| types[&format!("blk.{name}.weight")].as_str();
    assert_eq!([of("0.attn_q"), of("1.attn_q"), of("0.attn_v")], ["Q8_0", "Q5_1", "Q5_1"]);
    assert_eq!([of("0.ffn_up"), types["token_embd.weight"].as_str()], ["Q4_0", "Q4_0"]);
}

#[test]
fn a_dry_run_tells_and_writes_nothing() {
    let told =
        succeeds(&["quantize", floats(), "/nowhere/x.gguf", "--type", "q3_k_m", "--dry-run"]);
    assert!(told.contains("blk.0.attn_output.weight"), "{told}");
    assert!(
        told.lines().any(|l| l.contains("attn_output") && l.ends_with("BF16 -> Q4_K")),
        "{told}"
    );
}

#[test]
fn faults_are_named_and_leave_no_file() {
    let to = file("fault.gguf", b"as it was");
    let error = |from: &str, rest: &[&str]| fails(1, &[&["quantize", from, &to], rest].concat());
    let again = error(tiny(), &["--type", "q8_0"]);
    assert!(again.contains("quantised already") && again.contains("--allow-requantize"), "{again}");
    let unused = error(floats(), &["--type", "q8_0", "--tensor-type", "attn_z=q4_0"]);
    assert!(unused.contains("attn_z"), "{unused}");
    let missing = error("/nowhere.gguf", &["--type", "q8_0"]);
    assert!(missing.contains("nowhere"), "{missing}");
    assert_eq!(std::fs::read(&to).unwrap(), b"as it was");
    for (rest, part) in [
        (&["--type", "q9_9"][..], "Q4_K_M"),
        (&["--type", "q8_0", "--tensor-type", "attn=iq1_s"], "can be made"),
        (&["--type", "q8_0", "--tensor-type", "attn"], "PATTERN=TYPE"),
        (&["--type", "q8_0", "--tensor-type", "(=q8_0"], "unclosed"),
    ] {
        let told = run(&[&["quantize", floats(), &to], rest].concat());
        assert_eq!(told.code, Some(2));
        assert!(told.err.contains(part), "{}", told.err);
    }
    succeeds(&["quantize", tiny(), &to, "--type", "q8_0", "--allow-requantize"]);
    assert_eq!(types(&to)["blk.0.attn_q.weight"], "Q8_0");
}
