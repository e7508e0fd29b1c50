//! Logits of small random models against HF transformers (float32, eager attention).
//!
//! Fixtures and their making: `tests/golden/README.md`.

use arclight_engine::{
    BatchEntry, Engine, Helpers, KvType, KvTypes, LoadOptions, ModelFile, Outputs, Request,
    SamplerParams,
};
use gguf::Gguf;
use serde_json::Value;
use testkit::repository;

const DENSE: &[&str] = &[
    "qwen3_tied",
    "qwen3_untied",
    "llama3_tied",
    "llama2_untied",
    "llama_small_heads",
    "llama_linear",
    "mistral",
    "qwen2",
    "qwen2_yarn",
    "granite",
    "minicpm",
    "smollm3",
    "phi3_short",
    "phi3_long",
    "granite4",
    "ministral3",
    "olmo2",
    "olmo2_small_heads",
    "olmo3",
    "gemma2",
    "gemma3",
    "starcoder2",
    "glm4",
    "gemma",
    "exaone",
    "exaone4",
    "exaone4_global",
    "seed_oss",
    "arcee",
    "ernie4_5",
    "hunyuan_dense",
    "internlm2",
    "qwen2vl",
    "qwen3vl",
    "qwen3vlmoe",
    "baichuan",
    "baichuan_alibi",
    "nemotron",
    "apertus",
    "gptneox",
    "gptneox_serial",
    "phi2",
    "falcon_7b",
    "falcon_40b",
    "mpt",
    "bloom",
    "olmo",
    "stablelm",
    "stablelm_12b",
    "command_r",
    "command_r_plus",
    "cohere2",
    "gpt2",
    "starcoder",
    "chatglm",
    "plamo",
    "minicpm3",
    "bitnet",
    "bitnet_b158",
    "bitnet_silu",
];

/// Models with states of fixed size, or whose layers share keys and values.
const HYBRID: &[&str] =
    &["lfm2", "nemotron_h", "falcon_h1", "qwen35", "qwen35_mtp", "gemma3n", "gemma4"];

/// Models with experts, the last of them with states too.
const EXPERTS: &[&str] = &[
    "qwen3moe",
    "qwen2moe",
    "olmoe",
    "mixtral",
    "granitemoe",
    "dots1",
    "glm4moe",
    "glm4moe_mtp",
    "minimax_m2",
    "ernie4_5_moe",
    "phimoe",
    "hunyuan_moe",
    "bailingmoe2",
    "llama4",
    "gpt_oss",
    "deepseek_v2",
    "deepseek_v2_old",
    "deepseek_v3",
    "lfm2moe",
    "granitehybrid",
    "nemotron_h_moe",
    "qwen3next",
    "qwen35moe",
    "gemma4_experts",
    "mistral4",
    "smallthinker",
    "smallthinker_global",
];

/// All of them, or those that `ARCLIGHT_GOLDEN` names, with commas between.
fn models() -> Vec<&'static str> {
    let all = DENSE.iter().chain(HYBRID).chain(EXPERTS).copied();
    match std::env::var("ARCLIGHT_GOLDEN") {
        Err(_) => all.collect(),
        Ok(wanted) => {
            let wanted: Vec<&str> = wanted.split(',').collect();
            all.filter(|model| wanted.contains(model)).collect()
        }
    }
}

/// Largest difference relative to the largest logit, with keys and values in f32. Transformers
/// itself is within 2e-5 of float64 here; both sides sum in orders of their own.
const TOLERANCE: f32 = 1e-4;

/// The same with keys and values in f16, whose half-ulp is 2^-12 of each element; scores multiply
/// that by their magnitude, up to 20 in these random models.
const TOLERANCE_F16: f32 = 5e-3;

/// The same with bfloat16, whose half-ulp is 2^-9.
const TOLERANCE_BF16: f32 = 8.0 * TOLERANCE_F16;

/// The one whose heads are of whole blocks of 32.
const QUANTISED: &str = "qwen3_tied";

/// The same with keys and values in blocks: half a step is 2^-8 and 2^-4 of the greatest of 32 elements,
/// sixteen times f16's half-ulp and sixteen times that, and for both queries are of 8 bits. Measured:
/// 0.022 and 0.24, where the logits of tokens beside each other are 0.35 to 1.05 apart. Allowed: a
/// quarter more, as the bits are the same on every CPU.
const TOLERANCE_Q8_0: f32 = 0.03;
const TOLERANCE_Q4_0: f32 = 0.3;

fn load(model: &str, options: LoadOptions) -> Engine {
    let file = ModelFile::from_bytes(model, testkit::golden(model));
    let options = LoadOptions { no_pin: true, step_outputs: Some(16), ..options };
    Engine::load(&file, &options, &mut |_| {}).unwrap()
}

fn expected(model: &str) -> Value {
    let path = repository(&format!("tests/golden/{model}/expected.json"));
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn tokens(v: &Value) -> Vec<u32> {
    v.as_array().unwrap().iter().map(|t| t.as_u64().unwrap() as u32).collect()
}

fn floats(v: &Value) -> Vec<f32> {
    v.as_array().unwrap().iter().map(|t| t.as_f64().unwrap() as f32).collect()
}

/// Largest `|a - b|` over the largest `|b|`.
fn distance(got: &[f32], want: &[f32]) -> f32 {
    let scale = want.iter().fold(0f32, |m, w| m.max(w.abs()));
    got.iter().zip(want).map(|(g, w)| (g - w).abs()).fold(0f32, f32::max) / scale
}

#[test]
fn logits_agree_with_transformers() {
    for model in models() {
        let expected = expected(model);
        let both = |kv: KvType, tolerance| (KvTypes::from(kv), tolerance);
        let mut kinds = vec![both(KvType::F32, TOLERANCE)];
        // What fewer bits take off keys and values may choose another expert.
        if !EXPERTS.contains(&model) {
            kinds.extend([both(KvType::F16, TOLERANCE_F16), both(KvType::Bf16, TOLERANCE_BF16)]);
        }
        if model == QUANTISED {
            let apart = |keys, values| KvTypes { keys, values };
            kinds.extend([
                both(KvType::Q8_0, TOLERANCE_Q8_0),
                both(KvType::Q4_0, TOLERANCE_Q4_0),
                (apart(KvType::Q8_0, KvType::F16), TOLERANCE_Q8_0),
                (apart(KvType::F16, KvType::Q8_0), TOLERANCE_Q8_0),
                (apart(KvType::Q8_0, KvType::Q4_0), TOLERANCE_Q4_0),
                (apart(KvType::F16, KvType::F32), TOLERANCE_F16),
            ]);
        }
        for (nodes, &(kv, tolerance)) in
            [1, 2].into_iter().flat_map(|n| kinds.iter().map(move |k| (n, k)))
        {
            let nodes = Some(nodes);
            let mut engine = load(model, LoadOptions { nodes, kv, ..Default::default() });
            for prompt in expected["prompts"].as_array().unwrap() {
                let ids = tokens(&prompt["tokens"]);
                let want: Vec<Vec<f32>> =
                    prompt["logits"].as_array().unwrap().iter().map(floats).collect();
                let sequence = engine.new_sequence().unwrap();
                let (first, last) = ids.split_at(ids.len() - want.len());
                if !first.is_empty() {
                    let entry = BatchEntry { sequence, tokens: first, outputs: Outputs::None };
                    engine.step(&[entry]).unwrap();
                }
                let entry = BatchEntry { sequence, tokens: last, outputs: Outputs::All };
                let logits = engine.step(&[entry]).unwrap();
                for (i, want) in want.iter().enumerate() {
                    let off = distance(logits.row(i), want);
                    let len = ids.len();
                    assert!(
                        off < tolerance,
                        "{model} on {nodes:?} nodes, {kv}, {len} tokens: off by {off:e}"
                    );
                }
                engine.free(sequence).unwrap();
            }
        }
    }
}

#[test]
fn greedy_continuations_agree_for_64_tokens() {
    for model in models() {
        let expected = expected(model);
        let greedy = &expected["greedy"];
        // As above: all would be another text.
        let kv = if EXPERTS.contains(&model) { KvType::F32 } else { KvType::F16 };
        let mut engine = load(model, LoadOptions { kv: kv.into(), ..LoadOptions::default() });
        let request = Request {
            sampler: SamplerParams::greedy(),
            limit: Some(64),
            ..Request::new(tokens(&greedy["prompt"]))
        };
        let (got, _) = engine.generate(request, Helpers::default()).unwrap().wait().unwrap();
        assert_eq!(got, tokens(&greedy["continuation"]), "{model}");
    }
}

/// Hidden states are what the head makes logits from, so with the head of the file they give those of
/// transformers; of models whose logits are the product and nothing else.
#[test]
fn hidden_states_times_the_head_are_the_logits_of_transformers() {
    for model in ["qwen3_tied", "llama2_untied", "olmo2", "starcoder2", "glm4", "gemma3"] {
        let head = Head::read(model);
        let expected = expected(model);
        let prompts: Vec<(Vec<u32>, Vec<Vec<f32>>)> = expected["prompts"]
            .as_array()
            .unwrap()
            .iter()
            .map(|p| {
                let logits = p["logits"].as_array().unwrap();
                (tokens(&p["tokens"]), logits.iter().map(floats).collect())
            })
            .collect();
        // One with logits of every position, and two others.
        let all = prompts.iter().position(|(ids, want)| ids.len() == want.len() && ids.len() > 1);
        let all = all.unwrap();
        for nodes in [1, 2] {
            let options = LoadOptions {
                nodes: Some(nodes),
                kv: KvType::F32.into(),
                sequences: Some(8),
                ..Default::default()
            };
            let mut engine = load(model, options);
            // In one step: rows of logits stand apart from hidden states.
            let outputs = |at: usize| match at {
                _ if at == all => Outputs::AllHidden,
                0 => Outputs::Last,
                _ => Outputs::LastHidden,
            };
            let batch: Vec<BatchEntry<'_>> = prompts
                .iter()
                .enumerate()
                .map(|(at, (ids, _))| BatchEntry {
                    sequence: engine.new_sequence().unwrap(),
                    tokens: ids,
                    outputs: outputs(at),
                })
                .collect();
            let given = engine.step(&batch).unwrap();
            let (mut row, mut hidden) = (0, 0);
            for (at, (ids, want)) in prompts.iter().enumerate() {
                let got: Vec<Vec<f32>> = match outputs(at) {
                    Outputs::Last => {
                        row += 1;
                        vec![given.row(row - 1).to_vec()]
                    }
                    outputs => {
                        let n = if outputs == Outputs::AllHidden { ids.len() } else { 1 };
                        hidden += n;
                        (hidden - n..hidden).map(|i| head.logits(given.hidden(i))).collect()
                    }
                };
                let want = &want[want.len() - got.len()..];
                for (got, want) in got.iter().zip(want) {
                    let off = distance(got, want);
                    let len = ids.len();
                    assert!(off < TOLERANCE, "{model} on {nodes} nodes, {len} tokens: {off:e}");
                }
            }
            assert_eq!(given.len(), row);
        }
    }
}

/// The last matrix of a model: `[vocab, hidden]`.
struct Head {
    values: Vec<f32>,
    hidden: usize,
}

impl Head {
    fn read(model: &str) -> Head {
        let bytes = testkit::golden(model);
        let gguf = Gguf::parse(&bytes).unwrap();
        let named = |name| gguf.tensors().iter().find(|t| t.name() == name).cloned();
        let head = named("output.weight").or_else(|| named("token_embd.weight")).unwrap();
        let mut values = vec![0.0; head.elements()];
        head.ty.dequantize(head.data, &mut values).unwrap();
        Head { values, hidden: head.shape.dims()[0] }
    }

    fn logits(&self, state: &[f32]) -> Vec<f32> {
        assert_eq!(state.len(), self.hidden);
        let product = |(w, x): (&f32, &f32)| f64::from(*w) * f64::from(*x);
        let dot = |row: &[f32]| row.iter().zip(state).map(product).sum::<f64>() as f32;
        self.values.chunks(self.hidden).map(dot).collect()
    }
}
