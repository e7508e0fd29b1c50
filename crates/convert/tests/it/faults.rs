//! What is wrong with a folder is told by its name.

use crate::folder::Folder;
use arclight_convert::{Conversion, Options};
use serde_json::json;
use std::fs;
use testkit::safetensors;

#[test]
fn files_that_are_missing_are_named() {
    let folder = Folder::llama();
    folder.finish();
    let open = |path: &std::path::Path| {
        Conversion::open(path, &Options::default()).unwrap_err().to_string()
    };
    assert!(open(&folder.path().join("nowhere")).contains("there is no such file or folder"));
    fs::remove_file(folder.path().join("model.safetensors")).unwrap();
    assert!(open(folder.path()).contains("no .safetensors files"));
    folder.file("pytorch_model.bin", b"");
    assert!(open(folder.path()).contains("may run code"));
    fs::remove_file(folder.path().join("config.json")).unwrap();
    assert!(open(folder.path()).contains("without config.json"));
}

#[test]
fn shards_are_read_by_the_index_and_missing_ones_named() {
    let mut folder = Folder::llama();
    let half = folder.tensors.split_off(10);
    let first = std::mem::replace(&mut folder.tensors, half);
    folder.file("config.json", folder.config.to_string());
    folder.file("tokenizer.json", folder.tokenizer.to_string());
    let names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"];
    let mut map = serde_json::Map::new();
    for (file, tensors) in names.iter().zip([&first, &folder.tensors]) {
        map.extend(tensors.iter().map(|(name, ..)| (name.clone(), json!(file))));
        folder.file(file, safetensors(tensors));
    }
    let index =
        |map: &serde_json::Map<_, _>| json!({"metadata": {}, "weight_map": map}).to_string();
    folder.file("model.safetensors.index.json", index(&map));
    let open = |path: &std::path::Path| Conversion::open(path, &Options::default());
    let whole = open(folder.path()).unwrap().tensors().len();
    assert_eq!(whole, 21);
    // A shard stands for all of them.
    assert_eq!(open(&folder.path().join(names[1])).unwrap().tensors().len(), whole);
    map.insert("model.extra".into(), json!(names[0]));
    folder.file("model.safetensors.index.json", index(&map));
    let fault = open(folder.path()).unwrap_err().to_string();
    assert!(fault.contains("no tensor `model.extra`"), "{fault}");
    fs::remove_file(folder.path().join(names[1])).unwrap();
    let fault = open(folder.path()).unwrap_err().to_string();
    assert!(fault.contains(names[1]) && fault.contains("1 of 2 files are missing"), "{fault}");
    map.insert("model.extra".into(), json!("../../etc/passwd"));
    folder.file("model.safetensors.index.json", index(&map));
    assert!(open(folder.path()).unwrap_err().to_string().contains("no file's name"));
}

#[test]
fn tensors_left_over_are_named() {
    let mut folder = Folder::llama();
    folder.add("model.layers.0.self_attn.novel.weight", &[4]);
    let fault = folder.fault();
    assert!(
        fault.contains("`model.layers.0.self_attn.novel.weight`") && fault.contains("\"llama\""),
        "{fault}"
    );
    // What another sense of the model needs is left out.
    let mut folder = Folder::llama();
    folder.add("vision_tower.encoder.weight", &[4]);
    folder.add("model.layers.0.self_attn.rotary_emb.inv_freq", &[2]);
    assert_eq!(folder.open().unwrap().tensors().len(), 21);
}

#[test]
fn shapes_that_cannot_be_are_told() {
    let mut folder = Folder::llama();
    folder.without("model.layers.0.self_attn.q_proj.weight");
    folder.add("model.layers.0.self_attn.q_proj.weight", &[9, 16]);
    let fault = folder.fault();
    assert!(fault.contains("q_proj.weight` is [9, 16]") && fault.contains("4 heads"), "{fault}");
}

#[test]
fn what_the_configuration_lacks_or_gets_wrong_is_told_by_key() {
    let with = |key: &str, value: serde_json::Value| {
        let mut folder = Folder::llama();
        folder.set(key, value);
        folder.fault()
    };
    assert!(with("num_hidden_layers", json!(null)).contains("num_hidden_layers"));
    assert!(with("num_attention_heads", json!("four")).contains("num_attention_heads is \"four\""));
    assert!(with("num_attention_heads", json!(-4)).contains("should be a count"));
    assert!(with("num_attention_heads", json!(0)).contains("num_attention_heads is 0"));
    assert!(with("rope_scaling", json!({"rope_type": "novel"})).contains("\"novel\""));
    assert!(with("architectures", json!([])).contains("architectures"));
    let unknown = with("architectures", json!(["LamaForCausalLM"]));
    assert!(unknown.contains("did you mean LlamaForCausalLM"), "{unknown}");
    let quantised = with("quantization_config", json!({"quant_method": "bitsandbytes"}));
    assert!(quantised.contains("bitsandbytes"), "{quantised}");
}

#[test]
fn damaged_files_are_told() {
    let folder = Folder::llama();
    folder.finish();
    let whole = fs::read(folder.path().join("model.safetensors")).unwrap();
    let open = || {
        Conversion::open(folder.path(), &Options::default()).map(|_| ()).map_err(|e| e.to_string())
    };
    for end in [0, 4, 100, whole.len() - 1] {
        folder.file("model.safetensors", &whole[..end]);
        let fault = open().unwrap_err();
        assert!(fault.contains("model.safetensors"), "{end}: {fault}");
    }
    folder.file("model.safetensors", &whole);
    folder.file("config.json", "{");
    assert!(open().unwrap_err().contains("not the JSON"));
    folder.file("config.json", "[]");
    assert!(open().unwrap_err().contains("no JSON object"));
}
