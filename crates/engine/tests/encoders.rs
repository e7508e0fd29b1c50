//! Hidden states of small random encoders against HF transformers (float32, eager attention), and what whole texts in
//! a step must not change.
//!
//! Fixtures and their making: `tests/golden/README.md`.

use arclight_engine::{
    BatchEntry, Engine, KvType, LoadOptions, ModelFile, Numa, Outputs, Pooling, ReplicaOptions,
    Replicas, Request,
};
use serde_json::Value;
use std::sync::Arc;
use testkit::repository;
use topology::CpuId;

const MODELS: &[&str] = &[
    "bert",
    "nomic_bert",
    "nomic_bert_moe",
    "jina_bert_v2",
    "jina_bert_v3",
    "modern_bert",
    "gemma_embedding",
    "t5_encoder",
    "umt5_encoder",
];

/// Largest difference relative to the largest element, with keys and values in f32. Transformers itself is within
/// 6e-6 of float64 here; both sides sum in orders of their own.
const TOLERANCE: f32 = 5e-5;

fn options() -> LoadOptions {
    LoadOptions { no_pin: true, kv: KvType::F32.into(), ..LoadOptions::default() }
}

fn engine(model: &str, options: &LoadOptions) -> Engine {
    let file = ModelFile::from_bytes(model, testkit::golden(model));
    Engine::load(&file, options, &mut |_| {}).unwrap()
}

/// A text, of which some positions are known with their hidden states.
type Text = (Vec<u32>, Vec<(usize, Vec<f32>)>);

fn texts(model: &str) -> Vec<Text> {
    let path = repository(&format!("tests/golden/{model}/expected.json"));
    let all: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let number = |v: &Value| v.as_u64().unwrap();
    let texts = all["texts"].as_array().unwrap().iter();
    texts
        .map(|text| {
            let tokens = text["tokens"].as_array().unwrap().iter().map(|v| number(v) as u32);
            let positions = text["positions"].as_array().unwrap().iter().map(number);
            let row = |v: &Value| -> Vec<f32> {
                v.as_array().unwrap().iter().map(|x| x.as_f64().unwrap() as f32).collect()
            };
            let rows = text["hidden"].as_array().unwrap().iter().map(row);
            (tokens.collect(), positions.map(|at| at as usize).zip(rows).collect())
        })
        .collect()
}

/// Hidden states of all tokens of texts that are one step.
fn hidden(engine: &mut Engine, texts: &[&[u32]]) -> Vec<Vec<Vec<f32>>> {
    let sequences: Vec<_> = texts.iter().map(|_| engine.new_sequence().unwrap()).collect();
    let entry = |(&tokens, &sequence)| BatchEntry { sequence, tokens, outputs: Outputs::AllHidden };
    let batch: Vec<_> = texts.iter().zip(&sequences).map(entry).collect();
    let states = engine.step(&batch).unwrap();
    let mut row = 0;
    let mut of = |tokens: &&[u32]| {
        let rows = row..row + tokens.len();
        row = rows.end;
        rows.map(|row| states.hidden(row).to_vec()).collect::<Vec<_>>()
    };
    let all = texts.iter().map(&mut of).collect();
    sequences.into_iter().for_each(|sequence| engine.free(sequence).unwrap());
    all
}

#[test]
fn hidden_states_agree_with_transformers() {
    for model in MODELS {
        let mut engine = engine(model, &options());
        for (tokens, known) in texts(model) {
            let got = &hidden(&mut engine, &[&tokens])[0];
            for (at, want) in known {
                let largest = want.iter().fold(0.0f32, |most, x| most.max(x.abs()));
                let error = want.iter().zip(&got[at]).map(|(w, g)| (w - g).abs());
                let error = error.fold(0.0, f32::max) / largest;
                let len = tokens.len();
                assert!(error < TOLERANCE, "{model}: {error:.1e} at token {at} of {len}");
            }
        }
    }
}

/// The same bits alone and beside others, on several nodes, with any number of threads.
#[test]
fn a_text_has_the_same_bits_whoever_is_beside_it() {
    for model in MODELS {
        let all = texts(model);
        let texts: Vec<&[u32]> = all.iter().map(|(tokens, _)| &**tokens).collect();
        let several = LoadOptions { sequences: Some(8), ..options() };
        let mut one = engine(model, &several);
        let alone: Vec<_> = texts.iter().flat_map(|text| hidden(&mut one, &[text])).collect();
        assert_eq!(hidden(&mut one, &texts), alone, "{model}, in a batch");
        for (nodes, threads) in [(2, 2), (3, 4)] {
            let options = LoadOptions {
                numa: Numa::TensorParallel,
                nodes: Some(nodes),
                threads: Some(threads),
                ..several.clone()
            };
            let mut other = engine(model, &options);
            assert_eq!(hidden(&mut other, &texts), alone, "{model}, {nodes} nodes");
        }
    }
}

/// Programs are compiled anew without the threads of a core. Encoders have no operator that makes logits.
#[test]
fn texts_go_on_without_a_core() {
    for model in MODELS {
        let all = texts(model);
        let texts: Vec<&[u32]> = all.iter().map(|(tokens, _)| &**tokens).collect();
        let options = LoadOptions { sequences: Some(8), threads: Some(3), ..options() };
        let mut engine = engine(model, &options);
        let expected = hidden(&mut engine, &texts);
        let mut groups = engine.plan().groups.clone();
        for (at, cpu) in groups.iter_mut().flat_map(|group| &mut group.cpus).enumerate() {
            *cpu = CpuId(100 + at as u32);
        }
        let machine = topology::Machine::read().unwrap();
        engine.rearrange(groups, Vec::new(), &machine).unwrap();
        for left in [&[CpuId(101)][..], &[]] {
            engine.leave_out(left).unwrap();
            assert_eq!(hidden(&mut engine, &texts), expected, "{model} without {left:?}");
        }
    }
}

/// A later token of a text changes what an earlier one becomes, which must not be in a cache.
#[test]
fn texts_go_through_replicas_whole() {
    for model in MODELS {
        let all = texts(model);
        let mut engine = engine(model, &options());
        let file = Arc::new(ModelFile::from_bytes(model, testkit::golden(model)));
        let options = LoadOptions { sequences: Some(3), ..options() };
        let replicas =
            Replicas::load(&file, &options, &ReplicaOptions::default(), &mut |_| {}).unwrap();
        assert!(!replicas.writes());
        for pooling in [Pooling::First, Pooling::Last, Pooling::Mean] {
            let request = |tokens: &Vec<u32>| Request {
                pooling: Some(pooling),
                ..Request::new(tokens.clone())
            };
            // Twice, so that something of the first time could be found.
            let requests = || all.iter().chain(&all).map(|(tokens, _)| request(tokens)).collect();
            let tickets = replicas.submit_all(requests()).unwrap();
            for (ticket, (tokens, _)) in tickets.into_iter().zip(all.iter().chain(&all)) {
                let mut ticket = ticket;
                assert!(ticket.next().is_none());
                let states = &hidden(&mut engine, &[tokens])[0];
                let want: Vec<f32> = match pooling {
                    Pooling::First => states[0].clone(),
                    Pooling::Last => states[states.len() - 1].clone(),
                    Pooling::Mean => (0..states[0].len())
                        .map(|at| {
                            let sum: f64 = states.iter().map(|state| f64::from(state[at])).sum();
                            (sum / states.len() as f64) as f32
                        })
                        .collect(),
                };
                assert_eq!(ticket.pooled(), want, "{model}, {pooling:?}, {} tokens", tokens.len());
            }
        }
        let error = replicas.submit(Request::new(vec![1])).err().unwrap().to_string();
        assert!(error.contains("reads texts and writes none"), "{error}");
    }
}

#[test]
fn a_text_cannot_be_gone_on_with_nor_give_logits() {
    let mut engine = engine("bert", &options());
    let sequence = engine.new_sequence().unwrap();
    let tokens: &[u32] = &[1, 2, 3];
    let mut step = |outputs| {
        let entry = BatchEntry { sequence, tokens, outputs };
        engine.step(&[entry]).map(|_| ()).map_err(|error| error.to_string())
    };
    let error = step(Outputs::Last).unwrap_err();
    assert!(error.contains("hidden states (`arclight embed`), no logits"), "{error}");
    step(Outputs::AllHidden).unwrap();
    let error = step(Outputs::AllHidden).unwrap_err();
    assert!(error.contains("goes on after 3 tokens"), "{error}");
}
