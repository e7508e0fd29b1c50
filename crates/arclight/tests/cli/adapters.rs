//! Adapters: logits beside PEFT's, and the option that names them.

use crate::support::{FILES, fails, file as file_of, run, succeeds, text};
use arclight_engine::{
    Adapter, AdapterUse, BatchEntry, Engine, KvType, LoadOptions, ModelFile, Outputs,
};
use gguf::Gguf;
use graph::{Extent, Keep};
use serde_json::Value;
use std::sync::Arc;
use testkit::repository;

/// Models with an adapter in `tests/golden/adapters`.
const MODELS: [&str; 7] =
    ["qwen3_untied", "llama3_tied", "phi3_short", "gptneox", "gpt2", "olmo2", "qwen35"];

/// Largest difference relative to the largest logit: as for models without adapters.
const TOLERANCE: f32 = 1e-4;

fn floats(v: &Value) -> Vec<f32> {
    v.as_array().unwrap().iter().map(|t| t.as_f64().unwrap() as f32).collect()
}

fn distance(got: &[f32], want: &[f32]) -> f32 {
    let scale = want.iter().fold(0f32, |m, w| m.max(w.abs()));
    got.iter().zip(want).map(|(g, w)| (g - w).abs()).fold(0f32, f32::max) / scale
}

/// The adapter of a golden model, read from the folder that PEFT has written, and what llama.cpp's converter has made
/// of that, if it is there.
fn adapters(model: &str, bytes: &[u8]) -> Vec<Vec<u8>> {
    let folder = repository(&format!("tests/golden/adapters/{model}"));
    let own = convert::adapter(&folder, &Gguf::parse(bytes).unwrap()).unwrap();
    std::iter::once(own).chain(std::fs::read(folder.join("llama_cpp.gguf"))).collect()
}

#[test]
fn logits_agree_with_peft() {
    for model in MODELS {
        let bytes = testkit::golden(model);
        let read = |bytes: Vec<u8>| {
            Arc::new(Adapter::read(&ModelFile::from_bytes("adapter", bytes)).unwrap())
        };
        let all: Vec<Arc<Adapter>> = adapters(model, &bytes).into_iter().map(read).collect();
        let expected = repository(&format!("tests/golden/adapters/{model}/expected.json"));
        let expected: Value = serde_json::from_slice(&std::fs::read(expected).unwrap()).unwrap();
        for (nodes, adapter) in [1, 2].into_iter().flat_map(|n| all.iter().map(move |a| (n, a))) {
            let adapters =
                vec![AdapterUse { name: "a".into(), adapter: adapter.clone(), scale: 1.0 }];
            let options = LoadOptions {
                nodes: Some(nodes),
                kv: KvType::F32.into(),
                no_pin: true,
                step_outputs: Some(64),
                adapters,
                ..LoadOptions::default()
            };
            let file = ModelFile::from_bytes(model, bytes.clone());
            let mut engine = Engine::load(&file, &options, &mut |_| {}).unwrap();
            for prompt in expected["prompts"].as_array().unwrap() {
                let tokens: Vec<u32> =
                    floats(&prompt["tokens"]).iter().map(|t| *t as u32).collect();
                let want: Vec<Vec<f32>> =
                    prompt["logits"].as_array().unwrap().iter().map(floats).collect();
                let sequence = engine.new_sequence().unwrap();
                let entry = BatchEntry { sequence, tokens: &tokens, outputs: Outputs::All };
                let logits = engine.step(&[entry]).unwrap();
                let first = tokens.len() - want.len();
                for (i, want) in want.iter().enumerate() {
                    let off = distance(logits.row(first + i), want);
                    assert!(off < TOLERANCE, "{model} on {nodes} nodes: off by {off:e}");
                }
                engine.free(sequence).unwrap();
            }
        }
    }
}

/// The demo model is no golden one: one that writes text with an adapter.
fn llama() -> (String, Vec<u8>) {
    let model = repository("demo/arclight-demo.gguf");
    let bytes = std::fs::read(&model).unwrap();
    (text(&model), bytes)
}

#[test]
fn answers_come_with_adapters() {
    let (model, bytes) = llama();
    let lora = |seed| testkit::lora(&bytes, gguf::TensorType::F32, 4, 40.0, seed);
    let (a, b) = (file_of("lora-a.gguf", &lora(1)), file_of("lora-b.gguf", &lora(2)));
    let answer = |adapters: &[&str]| {
        let args = ["run", &model, "-q", "-p", "Once", "-n", "16", "--ignore-eos", "--temp", "0"];
        let adapters = adapters.iter().flat_map(|adapter| ["--lora", adapter]);
        succeeds(&args.into_iter().chain(adapters).collect::<Vec<_>>())
    };
    let plain = answer(&[]);
    let with_a = answer(&[&a]);
    assert_ne!(with_a, plain);
    assert_eq!(answer(&[&format!("{a}:0")]), plain, "a factor of zero");
    let both = answer(&[&format!("{a}:0.5"), &format!("b={b}")]);
    assert!(both != with_a && both != plain);
    assert_eq!(answer(&[&format!("{a}:0.5,{b}")]), both);
    // It says which.
    let args = ["run", &model, "-p", "Once", "-n", "1", "--lora", &format!("sql={a}:0.5")];
    let said = run(&args).err;
    assert!(said.contains("adapter sql: ") && said.contains(", scale 0.5"), "{said}");
    let seen = succeeds(&["inspect", &a]);
    assert!(seen.contains("an adapter (LoRA) for") && seen.contains("of rank 4"), "{seen}");
    let seen: Value = serde_json::from_str(&succeeds(&["inspect", &a, "-o", "json"])).unwrap();
    assert_eq!(seen["adapter"]["ranks"], serde_json::json!([4]));
}

#[test]
fn a_bench_counts_adapters() {
    let (model, bytes) = llama();
    let lora = testkit::lora(&bytes, gguf::TensorType::F32, 4, 4.0, 1);
    let adapter = Arc::new(Adapter::read(&ModelFile::from_bytes("a", lora.clone())).unwrap());
    let options = LoadOptions {
        threads: Some(1),
        no_pin: true,
        adapters: vec![AdapterUse { name: "a".into(), adapter, scale: 1.0 }],
        ..LoadOptions::default()
    };
    let file = ModelFile::from_bytes("demo", bytes);
    let engine = Engine::load(&file, &options, &mut |_| {}).unwrap();
    let needs = engine.needs();
    // What adapters add to a step: weights once, products for every token.
    let added = |tokens| {
        let of = |adapted| {
            let step = Extent::batch(&[Keep::All], 1, (tokens, 0), 0);
            needs.of(&Extent { adapted, ..step })
        };
        (of(true).bytes - of(false).bytes, of(true).all_macs() - of(false).all_macs())
    };
    let (bytes, products) = added(1);
    assert!(bytes > 0 && products > 0);
    assert_eq!(added(5), (bytes, 5 * products));

    let lora = file_of("lora-bench.gguf", &lora);
    let bench = ["bench", &model, "-p", "8", "-n", "4", "-r", "1", "--no-pin", "--untuned"];
    let seen = succeeds(&[&bench[..], &["--lora", &lora]].concat());
    assert!(seen.contains("pp8") && seen.contains("tg4"), "{seen}");
    let got = fails(1, &[&bench[..], &["--lora", &model]].concat());
    assert!(got.contains("this is no adapter"), "{got}");
}

#[test]
fn what_is_no_adapter_is_told() {
    let (model, bytes) = llama();
    let lora = file_of("lora-c.gguf", &testkit::lora(&bytes, gguf::TensorType::F32, 4, 4.0, 1));
    let refused = |adapter: &str| fails(1, &["run", &model, "-q", "-p", "a", "--lora", adapter]);
    let got = refused(&model);
    assert!(got.contains("arclight-demo.gguf: this is no adapter"), "{got}");
    let got = refused("nowhere.gguf");
    assert!(got.contains("nowhere.gguf"), "{got}");
    let got = refused(&text(FILES.path()));
    assert!(got.contains("it has no adapter_config.json"), "{got}");
    let got = fails(2, &["run", &model, "-p", "a", "--lora", &format!("{lora}:much")]);
    assert!(got.contains("\"much\" behind the colon is no scale"), "{got}");
    let got = fails(2, &["run", &model, "-q", "-p", "a", "--lora", &lora, "--lora", &lora]);
    assert!(got.contains("two adapters are called lora-c"), "{got}");
    let got = fails(1, &["run", &lora, "-p", "a"]);
    assert!(got.contains("lora-c.gguf is an adapter: name its model"), "{got}");
    let folder = text(&repository("tests/golden/adapters/gpt2"));
    let got = fails(1, &["run", &folder, "-p", "a"]);
    assert!(got.contains("gpt2 is an adapter: name its model"), "{got}");
    let got = refused(&folder);
    assert!(got.contains("has no place in models of architecture"), "{got}");
}
