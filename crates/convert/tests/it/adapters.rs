//! Folders of PEFT: what is refused, and why. That the others are right is for logits to tell
//! (`arclight/tests/cli/adapters.rs`).

use gguf::Gguf;
use serde_json::{Value, json};
use std::path::Path;
use testkit::{TinyModel, repository};

const MODEL: &str = "qwen3_untied";

/// A folder like that of the golden model, changed.
fn folder(to: &Path, change: impl Fn(&mut Value)) {
    let from = repository(&format!("tests/golden/adapters/{MODEL}"));
    let read = |name: &str| std::fs::read(from.join(name)).unwrap();
    let mut config: Value = serde_json::from_slice(&read("adapter_config.json")).unwrap();
    change(&mut config);
    std::fs::write(to.join("adapter_config.json"), config.to_string()).unwrap();
    std::fs::write(to.join("adapter_model.safetensors"), read("adapter_model.safetensors"))
        .unwrap();
}

fn converted(folder: &Path, model: &[u8]) -> Result<Vec<u8>, String> {
    arclight_convert::adapter(folder, &Gguf::parse(model).unwrap()).map_err(|e| e.to_string())
}

#[test]
fn what_is_more_than_products_of_low_rank_is_refused() {
    let model = testkit::golden(MODEL);
    let scratch = tempfile::tempdir().unwrap();
    folder(scratch.path(), |_| {});
    converted(scratch.path(), &model).unwrap();
    let cases = [
        ("peft_type", json!("IA3"), "peft_type is IA3, and only LORA is supported"),
        ("use_dora", json!(true), "use_dora is set: adapters with magnitudes (DoRA)"),
        (
            "modules_to_save",
            json!(["lm_head"]),
            "modules_to_save is set: modules that were trained whole",
        ),
        ("bias", json!("lora_only"), "bias is \"lora_only\": trained biases"),
        ("layer_replication", json!([[0, 2]]), "layer_replication is set"),
        ("lora_alpha", json!(null), "it does not say lora_alpha"),
        ("alpha_pattern", json!({"layers\\.(0|1)": 3}), "regular expressions are not read"),
    ];
    for (key, value, want) in cases {
        folder(scratch.path(), |config| config[key] = value.clone());
        let got = converted(scratch.path(), &model).unwrap_err();
        assert!(got.starts_with("adapter_config.json: ") && got.contains(want), "{key}: {got}");
    }
    // Another model, whose layers have other modules.
    folder(scratch.path(), |_| {});
    let other = TinyModel::gemma3n(gguf::TensorType::F32).gguf();
    converted(scratch.path(), &other).unwrap();
    let other = testkit::golden("gpt2");
    let got = converted(scratch.path(), &other).unwrap_err();
    assert!(got.contains("it has no place in models of architecture \"gpt2\""), "{got}");
}

#[test]
fn damaged_folders_are_named() {
    let model = testkit::golden(MODEL);
    let scratch = tempfile::tempdir().unwrap();
    let at = scratch.path().join("adapter_model.safetensors");
    let config = |config: &mut Value| config["r"] = json!(4);
    folder(scratch.path(), config);
    let whole = std::fs::read(&at).unwrap();
    std::fs::write(&at, &whole[..whole.len() - 1]).unwrap();
    let got = converted(scratch.path(), &model).unwrap_err();
    assert!(got.starts_with("adapter_model.safetensors: ") && got.contains("cut off"), "{got}");
    // A tensor by another name, of as many letters.
    let renamed = |from: &str, to: &str| {
        let text = from.as_bytes();
        let mut bytes = whole.clone();
        let found = bytes.windows(text.len()).position(|window| window == text).unwrap();
        bytes[found..found + text.len()].copy_from_slice(to.as_bytes());
        std::fs::write(&at, bytes).unwrap();
        converted(scratch.path(), &model).unwrap_err()
    };
    let got = renamed("0.mlp.down_proj.lora_A.weight", "0.mlp.down_proj.lora_X.weight");
    assert!(got.contains("it is neither lora_A nor lora_B"), "{got}");
    let got = renamed("0.mlp.down_proj.lora_A.weight", "0.mlp.down_prok.lora_A.weight");
    assert!(got.contains("has no lora_"), "{got}");
    std::fs::remove_file(&at).unwrap();
    assert!(converted(scratch.path(), &model).unwrap_err().contains("adapter_model.safetensors"));
}
