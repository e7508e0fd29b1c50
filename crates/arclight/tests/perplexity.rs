//! Perplexity of the demo model on held-out text, by block type and by type of KV cache.
//!
//! The file in the repository is Q8_0; its exact values as F32 are the yardstick. The table of the
//! float master is in `docs/perplexity.md`.

use gguf::TensorType;
use std::process::Command;
use testkit::{repository, requantize};

/// Perplexity of the demo model with all matrices in `ty` and keys and values in `kv`.
fn perplexity(ty: TensorType, kv: &str) -> f64 {
    let demo = std::fs::read(repository("demo/arclight-demo.gguf")).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.gguf");
    std::fs::write(&path, requantize(&demo, ty).unwrap().bytes).unwrap();
    let out = Command::new(env!("CARGO_BIN_EXE_arclight"))
        .arg("perplexity")
        .arg(&path)
        .arg("-f")
        .arg(repository("demo/heldout.txt"))
        .args(["-o", "json", "--kv-type", kv])
        .output()
        .unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let result: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    result["perplexity"].as_f64().unwrap()
}

#[test]
fn fewer_bits_predict_a_little_worse() {
    use TensorType::{BF16, F32, IQ4_XS, Q3_K, Q4_0, Q4_K, Q5_K, Q6_K, Q8_0};
    let exact = perplexity(F32, "f16");
    assert!((1.2..3.0).contains(&exact), "the demo model knows its text: {exact}");
    let loss = |ty| (perplexity(ty, "f16") / exact).ln();
    let [bf16, q8_0, q6_k, q4_k, q4_0] = [BF16, Q8_0, Q6_K, Q4_K, Q4_0].map(loss);
    let [q5_k, iq4_xs, q3_k] = [Q5_K, IQ4_XS, Q3_K].map(loss);
    // Measured: below 0.0001, 0.0001, 0.001, 0.004 and 0.011. Below one per mille the order is
    // chance, so the near-lossless types are held to a size only.
    assert!(bf16.abs() < 5e-4, "BF16 {bf16}");
    assert!(q8_0.abs() < 1e-3, "Q8_0 {q8_0}");
    assert!(q6_k.abs() < 3e-3, "Q6_K {q6_k}");
    assert!(q4_k > q6_k && q4_k < 0.015, "Q4_K {q4_k} against Q6_K {q6_k}");
    assert!(q4_0 > q4_k && q4_0 < 0.03, "Q4_0 {q4_0} against Q4_K {q4_k}");
    // Measured: 0.001, 0.009 and 0.014.
    assert!(q5_k.abs() < 4e-3, "Q5_K {q5_k}");
    assert!(iq4_xs > q5_k && iq4_xs < 0.02, "IQ4_XS {iq4_xs} against Q5_K {q5_k}");
    assert!(q3_k > q4_k && q3_k < 0.04, "Q3_K {q3_k} against Q4_K {q4_k}");
}

#[test]
fn a_quantised_cache_predicts_as_well() {
    let exact = perplexity(TensorType::Q8_0, "f32");
    // Measured: 0.00005, 0.00006 and 0.00005, half of what quantising the weights to 8 bits does; q4_0
    // 0.00018.
    for (kv, allowed) in [("f16", 5e-4), ("bf16", 5e-4), ("q8_0", 5e-4), ("q4_0", 1e-3)] {
        let loss = (perplexity(TensorType::Q8_0, kv) / exact).ln();
        assert!(loss.abs() < allowed, "{kv} {loss}");
    }
}
