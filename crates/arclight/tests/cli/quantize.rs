//! `quantize`.

use crate::support::{fails, file, output, run, succeeds, tiny};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// A model in BF16.
fn floats() -> &'static str {
    static FLOATS: LazyLock<String> = LazyLock::new(|| {
        let path = output("floats.gguf");
        succeeds(&["synth", "tiny:bf16", "-o", &path]);
        path
    });
    &FLOATS
}

/// The types of a file's matrices, by name.
fn types(path: &str) -> BTreeMap<String, String> {
    let seen = succeeds(&["inspect", path, "-o", "json", "--tensors"]);
    let seen: Value = serde_json::from_str(&seen).expect("JSON");
    let tensors = seen["tensors"].as_array().unwrap().iter();
    let text = |v: &Value| v.as_str().unwrap().to_owned();
    tensors.map(|t| (text(&t["name"]), text(&t["type"]))).collect()
}

#[test]
fn a_quantised_file_has_the_types_of_its_mix_and_runs() {
    let to = output("quantised.gguf");
    let matrices =
        ["token_embd", "blk.0.attn_v", "blk.0.ffn_down", "blk.1.ffn_down", "blk.1.ffn_up"];
    for (mix, expected) in [
        ("q4_k_m", ["Q6_K", "Q4_K", "Q4_K", "Q6_K", "Q4_K"]),
        // Four queries share a key and value.
        ("iq4_nl", ["Q6_K", "Q5_K", "IQ4_NL", "IQ4_NL", "IQ4_NL"]),
        ("iq3_s", ["Q6_K", "Q4_K", "IQ3_S", "IQ3_S", "IQ3_S"]),
        ("q8_0", ["Q8_0"; 5]),
        ("f32", ["F32"; 5]),
    ] {
        succeeds(&["quantize", floats(), &to, "--type", mix]);
        let types = types(&to);
        assert_eq!(matrices.map(|name| &types[&format!("{name}.weight")]), expected, "{mix}");
        assert_eq!(types["blk.0.attn_norm.weight"], "F32");
        let seen = succeeds(&["inspect", &to, "-o", "json"]);
        let seen: Value = serde_json::from_str(&seen).expect("JSON");
        assert_eq!(seen["model"]["type"], mix.to_uppercase());
        succeeds(&["run", &to, "-q", "-p", "the", "-n", "4", "--ignore-eos"]);
    }
}

#[test]
fn threads_and_detours_do_not_change_a_byte() {
    let made = |name: &str, from: &str, ty: &str, threads: &str| {
        let to = output(name);
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
    let to = output("ruled.gguf");
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
    let nvfp4 = testkit::TinyModel::llama(gguf::TensorType::NVFP4).gguf();
    let scaled = file("scaled.gguf", &testkit::with_scales(&nvfp4).unwrap().beside);
    let scaled = error(&scaled, &["--type", "q8_0", "--allow-requantize"]);
    assert!(
        scaled.contains("is NVFP4 and multiplied by `") && scaled.contains(".scale`"),
        "{scaled}"
    );
    assert_eq!(std::fs::read(&to).unwrap(), b"as it was");
    for (rest, part) in [
        (&["--type", "q9_9"][..], "Q4_K_M"),
        (&["--type", "q8_0", "--tensor-type", "attn=iq9_s"], "IQ4_XS"),
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

/// An importance matrix in the old format: column `i` of each of these counts `of(i)`.
fn imatrix(name: &str, tensors: &[(&str, usize)], of: fn(usize) -> f32) -> String {
    let mut bytes = (tensors.len() as i32).to_le_bytes().to_vec();
    for (tensor, cols) in tensors {
        bytes.extend((tensor.len() as i32).to_le_bytes());
        bytes.extend(tensor.bytes());
        bytes.extend(4i32.to_le_bytes());
        bytes.extend((*cols as i32).to_le_bytes());
        bytes.extend((0..*cols).flat_map(|i| (4.0 * of(i)).to_le_bytes()));
    }
    bytes.extend(7i32.to_le_bytes());
    bytes.extend(8i32.to_le_bytes());
    bytes.extend(b"wiki.txt");
    file(name, &bytes)
}

/// The matrices of [`floats`], but for the vocabulary, and their columns.
fn columns() -> &'static [(&'static str, usize)] {
    static COLUMNS: LazyLock<Vec<(&str, usize)>> = LazyLock::new(|| {
        let seen = succeeds(&["inspect", floats(), "-o", "json", "--tensors"]);
        let seen: Value = serde_json::from_str(&seen).expect("JSON");
        let tensors = seen["tensors"].as_array().unwrap().iter();
        let matrices = tensors.filter(|t| t["type"] == "BF16" && t["name"] != "token_embd.weight");
        let name = |t: &Value| t["name"].as_str().unwrap().to_owned().leak() as &str;
        matrices.map(|t| (name(t), t["shape"][0].as_u64().unwrap() as usize)).collect()
    });
    &COLUMNS
}

#[test]
fn few_bits_want_importances() {
    let to = file("few.gguf", b"as it was");
    for (mix, ty) in [("iq2_xs", "IQ2_XS"), ("iq1_s", "IQ1_S"), ("q2_k_s", "Q2_K")] {
        let told = fails(1, &["quantize", floats(), &to, "--type", mix]);
        assert!(
            told.contains("--imatrix") && told.contains("blk.0.") && told.contains(ty),
            "{told}"
        );
        succeeds(&["quantize", floats(), &to, "--type", mix, "--dry-run"]);
        assert_eq!(std::fs::read(&to).unwrap(), b"as it was");
    }
    let known = imatrix("known.dat", columns(), |i| 1.0 + (i % 5) as f32);
    for (mix, ty) in [("iq2_xs", "IQ2_XS"), ("iq3_xxs", "IQ3_XXS"), ("iq1_m", "IQ1_M")] {
        succeeds(&["quantize", floats(), &to, "--type", mix, "--imatrix", &known]);
        assert_eq!(types(&to)["blk.1.ffn_up.weight"], ty);
        succeeds(&["run", &to, "-q", "-p", "the", "-n", "4", "--ignore-eos"]);
    }
    // The vocabulary has no importances, and gets what it is told.
    succeeds(&["quantize", floats(), &to, "--type", "iq2_xxs", "--pure", "--imatrix", &known]);
    assert_eq!(types(&to)["token_embd.weight"], "IQ2_XXS");
}

#[test]
fn importances_matter_and_are_told() {
    let made = |name: &str, ty: &str, rest: &[&str]| {
        let to = output(name);
        succeeds(&[&["quantize", floats(), &to, "--type", ty], rest].concat());
        to
    };
    let steep = imatrix("steep.dat", columns(), |i| 1.0 + (i % 17) as f32);
    let (with, without) =
        (made("with.gguf", "q4_k_s", &["--imatrix", &steep]), made("not.gguf", "q4_k_s", &[]));
    let told = succeeds(&["inspect", &with, "-o", "json"]);
    let told: Value = serde_json::from_str(&told).expect("JSON");
    for (key, value) in [
        ("file", Value::from(steep)),
        ("dataset", "wiki.txt".into()),
        ("entries_count", columns().len().into()),
        ("chunks_count", 7.into()),
    ] {
        assert_eq!(told["metadata"][format!("quantize.imatrix.{key}")], value, "{key}");
    }
    let bytes = |path: &str| std::fs::read(path).unwrap();
    // The last tensors: headers differ in length.
    let data = |path: &str| bytes(path).split_off(bytes(path).len() - (1 << 16));
    assert!(data(&with) != data(&without), "importances change no byte");
    // Types that only round are the same; the second file's provenance replaces the first's.
    let flat = imatrix("flat.dat", columns(), |_| 1.0);
    let [a, b] = ["a.gguf", "b.gguf"].map(|to| made(to, "q8_0", &["--imatrix", &flat]));
    assert!(bytes(&a) == bytes(&b));
    assert!(data(&a) == data(&made("c.gguf", "q8_0", &[])), "q8_0 weighs nothing");
}

#[test]
fn importances_that_do_not_fit_are_refused() {
    let to = file("unfit.gguf", b"as it was");
    let quantize =
        |ty: &str, known: &str| run(&["quantize", floats(), &to, "--type", ty, "--imatrix", known]);
    let (first, rest) = columns().split_first().unwrap();
    // One matrix is missing: bad only where it is needed.
    let some = imatrix("some.dat", rest, |_| 1.0);
    let told = quantize("iq2_xs", &some);
    assert_eq!(told.code, Some(1));
    assert!(told.err.contains(first.0) && told.err.contains("some.dat"), "{}", told.err);
    let told = quantize("q4_0", &some);
    assert_eq!(told.code, Some(0));
    assert!(told.err.contains("warning") && told.err.contains(first.0), "{}", told.err);
    std::fs::write(&to, b"as it was").unwrap();
    let long = imatrix("long.dat", &[(first.0, first.1 + 256)], |_| 1.0);
    let nan = imatrix("nan.dat", columns(), |i| if i == 9 { f32::NAN } else { 1.0 });
    let short = file("short.dat", b"\x01\0\0\0\x04\0\0\0abcdefghijkl");
    for (known, parts) in [
        (long.as_str(), [first.0, "another model"]),
        (&nan, ["number 9", "nan.dat"]),
        (&short, ["short.dat", "early"]),
        (floats(), ["floats.gguf", "imatrix.datasets"]),
        ("/nowhere.dat", ["nowhere", "cannot read"]),
    ] {
        let told = quantize("q4_0", known);
        assert_eq!(told.code, Some(1));
        assert!(parts.iter().all(|part| told.err.contains(part)), "{}", told.err);
        assert_eq!(std::fs::read(&to).unwrap(), b"as it was");
    }
}
