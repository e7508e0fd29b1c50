//! `convert`, and folders in the place of files.

use crate::support::{Ran, arclight, complains, fails, file, folder, output, ran, run, succeeds};
use serde_json::{Value, json};
use std::path::Path;
use testkit::Checkpoint;

/// A folder with a small Llama.
fn llama(name: &str, change: impl FnOnce(&mut Checkpoint)) -> String {
    let path = folder(name);
    let mut checkpoint = Checkpoint::llama();
    change(&mut checkpoint);
    checkpoint.write(Path::new(&path));
    path
}

fn inspected(path: &str) -> Value {
    serde_json::from_str(&succeeds(&["inspect", path, "-o", "json", "--tensors"])).expect("JSON")
}

#[test]
fn a_folder_runs_as_its_file_does() {
    let from = llama("llama-runs", |_| {});
    let to = output("llama-runs.gguf");
    succeeds(&["convert", &from, "-o", &to]);
    let seen = inspected(&to);
    assert_eq!(seen["model"]["architecture"], "llama");
    assert_eq!(seen["model"]["type"], "F16");
    let answer = |model: &str| {
        succeeds(&["run", model, "-q", "-p", "the", "-n", "12", "--ignore-eos", "--temp", "0"])
    };
    let answered = answer(&to);
    assert_eq!(answer(&from), answered);
    // A file of tensors stands for its folder.
    assert_eq!(answer(&format!("{from}/model.safetensors")), answered);
    assert_eq!(inspected(&from)["tensors"], seen["tensors"]);
    assert!(!Path::new(&from).join("model.gguf").exists(), "nothing is written");
}

#[test]
fn one_step_to_a_type_is_convert_and_quantize() {
    let from = llama("llama-types", |checkpoint| {
        // Rows of whole blocks.
        checkpoint.config["intermediate_size"] = 64.into();
        checkpoint.config["hidden_size"] = 32.into();
        let sizes = [("embed_tokens", 264, 32), ("lm_head", 264, 32)];
        let layer = [
            ("self_attn.q_proj", 32, 32),
            ("self_attn.k_proj", 16, 32),
            ("self_attn.v_proj", 16, 32),
            ("self_attn.o_proj", 32, 32),
            ("mlp.gate_proj", 64, 32),
            ("mlp.up_proj", 64, 32),
            ("mlp.down_proj", 32, 64),
        ];
        checkpoint.tensors.clear();
        checkpoint.add("model.embed_tokens.weight", &[sizes[0].1, sizes[0].2]);
        checkpoint.add("lm_head.weight", &[sizes[1].1, sizes[1].2]);
        checkpoint.add("model.norm.weight", &[32]);
        for l in 0..2 {
            for (name, rows, cols) in layer {
                checkpoint.add(&format!("model.layers.{l}.{name}.weight"), &[rows, cols]);
            }
            for norm in ["input_layernorm", "post_attention_layernorm"] {
                checkpoint.add(&format!("model.layers.{l}.{norm}.weight"), &[32]);
            }
        }
    });
    let whole = output("types-f32.gguf");
    succeeds(&["convert", &from, "-o", &whole, "--type", "f32"]);
    let mut seen = Vec::new();
    for threads in ["1", "3"] {
        let to = output("types-q8.gguf");
        succeeds(&["convert", &from, "-o", &to, "--type", "q8_0", "-t", threads]);
        let steps = output("types-steps.gguf");
        succeeds(&["quantize", &whole, &steps, "--type", "q8_0"]);
        // Keys may be in another order.
        assert_eq!(inspected(&to)["tensors"], inspected(&steps)["tensors"]);
        seen.push(std::fs::read(&to).unwrap());
        let data = |bytes: &[u8]| bytes[bytes.len() - 4096..].to_vec();
        assert!(
            data(&seen[0]) == data(&std::fs::read(&steps).unwrap()),
            "data of the last tensors"
        );
    }
    assert!(seen[0] == seen[1], "threads changed bytes");
}

#[test]
fn a_dry_run_writes_nothing_and_types_may_be_chosen() {
    let from = llama("llama-dry", |_| {});
    let told = succeeds(&["convert", &from, "--dry-run", "--type", "bf16"]);
    let line = told.lines().find(|line| line.starts_with("blk.0.attn_q.weight")).unwrap();
    assert!(line.ends_with("BF16"), "{line}");
    let told = succeeds(&["convert", &from, "--dry-run", "--tensor-type", "attn_v=f32"]);
    assert!(told.contains("F16 -> F32"), "{told}");
    let classes = succeeds(&["convert", "--families"]);
    assert!(classes.lines().any(|line| line.split_whitespace().eq(["Qwen3ForCausalLM", "qwen3"])));
}

#[test]
fn what_is_wrong_with_a_folder_is_one_line() {
    let to = output("never.gguf");
    let convert = |from: &str| fails(1, &["convert", from, "-o", &to]);
    assert!(convert("nowhere/at/all").contains("no such file or folder"));
    assert!(convert(&folder("empty-folder")).contains("without config.json"));
    let missing = llama("llama-missing", |c| c.without("model.layers.1.mlp.up_proj.weight"));
    let line = convert(&missing);
    assert!(line.contains("blk.1.ffn_up.weight is missing"), "{line}");
    let odd = llama("llama-odd", |c| c.config["architectures"] = serde_json::json!(["Lama"]));
    assert!(convert(&odd).contains("no converter for \"Lama\""));
    // Running says the same.
    assert!(fails(1, &["run", &odd, "-p", "x"]).contains("no converter for \"Lama\""));
    let gguf = file("is.gguf", b"GGUF");
    assert!(fails(1, &["convert", &gguf, "-o", &to]).contains("arclight quantize"));
    assert!(!Path::new(&to).exists());
}

/// The file is in the cache, is found without being asked for, and made again when the folder has changed.
#[test]
fn what_a_folder_is_converted_to_is_kept_on_request() {
    let from = llama("llama-kept", |_| {});
    // Of its own: others list what is kept.
    let home = folder("llama-kept-cache");
    let cache = Path::new(&home).join("arclight/converted");
    let arclight =
        |args: &[&str]| ran(arclight(args).env("XDG_CACHE_HOME", &home).output().unwrap());
    let kept = || -> Vec<String> {
        let entries = std::fs::read_dir(&cache).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().into_string().unwrap());
        names.filter(|n| n.starts_with("llama-kept-") && n.ends_with(".gguf")).collect()
    };
    let run = |more: &[&str]| {
        let args = ["run", &from, "-p", "the", "-n", "12", "--ignore-eos", "--temp", "0"];
        let ran = arclight(&[&args[..], more].concat());
        assert_eq!(ran.code, Some(0), "{}", ran.err);
        ran
    };
    let plain = run(&[]);
    assert!(kept().is_empty(), "nothing is kept unless it is asked for");
    let first = run(&["--keep-converted"]);
    assert!(first.err.contains("wrote "), "{}", first.err);
    assert_eq!(first.out, plain.out);
    let names = kept();
    assert_eq!(names.len(), 1, "{names:?}");
    // The file is what is read: without its folder's tensors nothing could be converted.
    let tensors = Path::new(&from).join("model.safetensors");
    let (whole, time) =
        (std::fs::read(&tensors).unwrap(), tensors.metadata().unwrap().modified().unwrap());
    let set_time = |time| {
        let file = std::fs::File::options().write(true).open(&tensors).unwrap();
        file.set_modified(time).unwrap();
    };
    std::fs::write(&tensors, vec![0; whole.len()]).unwrap();
    set_time(time);
    for more in [&[][..], &["--keep-converted"]] {
        let again = run(more);
        assert_eq!(again.out, plain.out);
        assert!(!again.err.contains("wrote "), "{}", again.err);
    }
    // A folder that has changed is another one.
    std::fs::write(&tensors, &whole).unwrap();
    set_time(time + std::time::Duration::from_secs(1));
    let changed = run(&["--keep-converted"]);
    assert!(changed.err.contains("wrote ") && changed.err.contains("removed "), "{}", changed.err);
    assert_eq!(changed.out, plain.out);
    let again = kept();
    assert!(again.len() == 1 && again != names, "{again:?}");
    // So is one whose file was damaged.
    let whole = std::fs::read(cache.join(&again[0])).unwrap();
    std::fs::write(cache.join(&again[0]), b"GGUF").unwrap();
    assert_eq!(run(&[]).out, plain.out);

    // The list has it, also when its folder is gone, and it can be taken away.
    let listed = || {
        let list: Value = serde_json::from_str(&arclight(&["list", "-o", "json"]).out).unwrap();
        let all = list["converted"].as_array().unwrap().clone();
        all.into_iter().find(|one| one["folder"].as_str() == Some(&from))
    };
    assert_eq!(listed().unwrap()["quant"], Value::Null, "it is damaged");
    std::fs::write(cache.join(&again[0]), &whole).unwrap();
    let one = listed().unwrap();
    assert_eq!([&one["gone"], &one["bytes"]], [&Value::from(false), &Value::from(whole.len())]);
    assert!(matches!(one["quant"].as_str(), Some("F16" | "BF16" | "F32")), "{one}");
    assert!(one["made"].as_u64() > Some(1_700_000_000), "{one}");
    std::fs::remove_dir_all(&from).unwrap();
    assert_eq!(listed().unwrap()["gone"], true);
    let list = arclight(&["list"]).out;
    assert!(list.contains("converted from") && list.contains(&format!("{from} (gone)")), "{list}");
    let asks = arclight(&["rm", &from]);
    assert_eq!(asks.code, Some(2));
    assert!(asks.err.contains(&again[0]) && asks.err.contains("add --yes"), "{}", asks.err);
    let line = complains(2, &arclight(&["rm", &from, "--yes", "--all"]));
    assert!(line.contains("--all wants a repository"), "{line}");
    assert_eq!(kept().len(), 1);
    let removed = arclight(&["rm", &from, "--yes"]).out;
    assert!(removed.contains("are free now"), "{removed}");
    assert!(kept().is_empty() && listed().is_none());
    let line = complains(1, &arclight(&["rm", &from, "--yes"]));
    assert!(line.contains(&format!("no conversion of {from} is kept")), "{line}");
}

/// A folder with a small Llama that reads images, as SmolVLM does.
fn seeing(name: &str) -> String {
    let path = llama(name, |checkpoint| {
        let config = &mut checkpoint.config;
        config["architectures"] = json!(["SmolVLMForConditionalGeneration"]);
        config["max_position_embeddings"] = 512.into();
        config["scale_factor"] = 2.into();
        config["vision_config"] = json!({
            "model_type": "smolvlm_vision", "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1,
            "num_attention_heads": 4, "image_size": 32, "patch_size": 8,
        });
        let hidden = Checkpoint::HIDDEN;
        checkpoint.add("model.connector.modality_projection.proj.weight", &[hidden, 16 * 4]);
        let vision = "model.vision_model";
        checkpoint.add(&format!("{vision}.embeddings.position_embedding.weight"), &[16, 16]);
        for (tensor, shape) in [
            ("embeddings.patch_embedding", &[16, 3, 8, 8][..]),
            ("post_layernorm", &[16]),
            ("encoder.layers.0.layer_norm1", &[16]),
            ("encoder.layers.0.layer_norm2", &[16]),
            ("encoder.layers.0.self_attn.q_proj", &[16, 16]),
            ("encoder.layers.0.self_attn.k_proj", &[16, 16]),
            ("encoder.layers.0.self_attn.v_proj", &[16, 16]),
            ("encoder.layers.0.self_attn.out_proj", &[16, 16]),
            ("encoder.layers.0.mlp.fc1", &[32, 16]),
            ("encoder.layers.0.mlp.fc2", &[16, 32]),
        ] {
            checkpoint.add(&format!("{vision}.{tensor}.weight"), shape);
            checkpoint.add(&format!("{vision}.{tensor}.bias"), &shape[..1]);
        }
    });
    let processor = json!({"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]});
    std::fs::write(format!("{path}/preprocessor_config.json"), processor.to_string()).unwrap();
    path
}

#[test]
fn an_image_encoder_is_a_file_of_its_own() {
    let from = seeing("seeing");
    let folder = folder("seeing-files");
    let (to, encoder) = (format!("{folder}/model.gguf"), format!("{folder}/mmproj-model.gguf"));
    let Ran { err, .. } = run(&["convert", &from, "-o", &to]);
    assert!(err.contains("wrote ") && err.contains("mmproj-model.gguf"), "{err}");
    let seen = inspected(&encoder);
    assert_eq!(seen["model"]["architecture"], "clip", "{seen}");
    let image = file("seeing.gif", crate::images::PIXEL);
    let answer = |model: &str, more: &[&str]| {
        let ask = ["run", model, "--image", &image, "-p", "What?", "-n", "6", "--greedy", "-q"];
        let args = [&ask[..], &["--chat-template", "chatml", "--ignore-eos"], more].concat();
        succeeds(&args)
    };
    let answered = answer(&to, &[]);
    assert_eq!(answer(&from, &[]), answered, "the folder itself");
    assert_eq!(answer(&to, &["--mmproj", &from]), answered, "the encoder of the folder");

    std::fs::remove_file(&encoder).unwrap();
    succeeds(&["convert", &from, "-o", &to, "--no-mmproj"]);
    assert!(!Path::new(&encoder).exists());
    let other = format!("{folder}/eyes.gguf");
    succeeds(&["convert", &from, "-o", &to, "--mmproj", &other, "--type", "q8_0"]);
    assert_eq!(inspected(&other)["model"]["type"], "F16", "it stays as it is");
}

#[test]
fn a_folder_whose_encoder_is_unknown_makes_a_model_without() {
    let change = |change: fn(&mut Value)| {
        let from = seeing("unknown-encoder");
        let path = format!("{from}/config.json");
        let mut config: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        change(&mut config);
        std::fs::write(path, config.to_string()).unwrap();
        from
    };
    // The models of other tests must not find an encoder beside them.
    let folder = folder("unknown-encoders");
    let to = format!("{folder}/model.gguf");
    let from = change(|config| config["audio_config"] = json!({}));
    let Ran { code, err, .. } = run(&["convert", &from, "-o", &to]);
    assert_eq!(code, Some(0), "{err}");
    assert!(err.contains("its encoder of sound is left out"), "{err}");
    let from = change(|config| config["architectures"] = json!(["LlamaForCausalLM"]));
    let Ran { code, err, .. } = run(&["convert", &from, "-o", &to]);
    assert_eq!(code, Some(0), "{err}");
    assert!(err.contains("the image encoder (smolvlm_vision) of LlamaForCausalLM"), "{err}");
    let eyes = format!("{folder}/eyes.gguf");
    let asked = |from: &str| fails(1, &["convert", from, "-o", &to, "--mmproj", &eyes]);
    assert!(asked(&from).contains("is not converted"));
    let from = change(|config| config["vision_config"]["hidden_size"] = 32.into());
    assert!(asked(&from).contains("v."), "of another width");
    let blind = llama("blind", |_| {});
    assert!(asked(&blind).contains("it has no image encoder"));
    assert!(!Path::new(&eyes).exists());
}
