//! Hosts give the bits of one machine.

use crate::hosts::{Hosts, options};
use arclight_engine::{
    BatchEntry, Engine, Helpers, KvType, KvTypes, LoadOptions, ModelFile, Outputs, Request,
    SamplerParams, SeqId, StageKey, StageOptions,
};
use gguf::TensorType;
use testkit::{Rng, TinyModel, golden};

fn prompt(len: usize, seed: u64) -> Vec<u32> {
    let mut rng = Rng::new(seed);
    (0..len).map(|_| rng.below(150) as u32).collect()
}

fn bits(row: &[f32]) -> Vec<u32> {
    row.iter().map(|v| v.to_bits()).collect()
}

fn feed(engine: &mut Engine, sequence: SeqId, tokens: &[u32], chunk: usize) -> Vec<u32> {
    let mut last = Vec::new();
    for piece in tokens.chunks(chunk) {
        let entry = BatchEntry { sequence, tokens: piece, outputs: Outputs::Last };
        last = bits(engine.step(&[entry]).unwrap().row(0));
    }
    last
}

/// What an engine computes in many ways.
fn answers(engine: &mut Engine) -> Vec<Vec<u32>> {
    let mut all = Vec::new();
    let (long, short) = (prompt(90, 1), prompt(7, 2));
    // In chunks, one by one, and beside another.
    let [a, b, c] = [(); 3].map(|()| engine.new_sequence().unwrap());
    all.push(feed(engine, a, &long, 64));
    all.push(feed(engine, b, &long[..40], 13));
    let batch = [
        BatchEntry { sequence: a, tokens: &short[..1], outputs: Outputs::Last },
        BatchEntry { sequence: c, tokens: &short, outputs: Outputs::All },
        BatchEntry { sequence: b, tokens: &long[40..60], outputs: Outputs::Tail(2) },
    ];
    let logits = engine.step(&batch).unwrap();
    all.extend((0..logits.len()).map(|row| bits(logits.row(row))));
    // A copy, and back.
    let copy = engine.fork(a).unwrap();
    all.push(feed(engine, copy, &[5, 6], 1));
    all.push(feed(engine, a, &[7], 1));
    let kept = engine.truncate(a, 80).unwrap();
    all.push(feed(engine, a, &long[kept..85], 64));
    [a, b, c, copy].into_iter().for_each(|sequence| engine.free(sequence).unwrap());
    // From the prefix cache.
    for rest in [3, 4] {
        let tokens: Vec<u32> = long[..70].iter().copied().chain([rest]).collect();
        let (sequence, len) = engine.begin(&tokens).unwrap();
        all.push(feed(engine, sequence, &tokens[len..], 64));
        engine.free(sequence).unwrap();
    }
    // An answer.
    let request = Request {
        limit: Some(12),
        sampler: SamplerParams::greedy(),
        ..Request::new(prompt(100, 4))
    };
    let (tokens, _) = engine.generate(request, Helpers::default()).unwrap().wait().unwrap();
    all.push(tokens);
    all
}

fn check(name: &str, bytes: Vec<u8>, stages: &[usize], options: &LoadOptions) {
    let file = ModelFile::from_bytes("tiny", bytes.clone());
    let mut one = Engine::load(&file, options, &mut |_| {}).unwrap();
    let want = answers(&mut one);
    drop(one);
    for &of in stages {
        let hosts = Hosts::run(bytes.clone(), of, options);
        let got = answers(&mut hosts.engine(options));
        assert!(got == want, "{name} over {of} hosts");
        assert!(hosts.stages.iter().all(|host| host.status.counts().steps > 5));
    }
}

#[test]
fn two_hosts_give_the_bits_of_one() {
    check("qwen3", golden("qwen3_tied"), &[2], &options());
}

#[test]
fn so_do_several_with_several_nodes_each() {
    let options = LoadOptions { nodes: Some(2), threads: Some(2), ..options() };
    check("qwen3", with_layers("qwen3", 5), &[2, 3], &options);
}

/// A tiny model of this family with so many layers.
fn with_layers(arch: &'static str, layers: usize) -> Vec<u8> {
    TinyModel { arch, layers, ..TinyModel::qwen3(TensorType::Q4_0) }.gguf()
}

#[test]
fn so_do_models_of_all_kinds() {
    let kv = |kv: KvType| LoadOptions { kv: kv.into(), ..options() };
    let window = TinyModel { window: Some(40), head_dim: 64, ..TinyModel::llama(TensorType::Q4_0) };
    let gemma3 = TinyModel { arch: "gemma3", window: Some(40), layers: 6, ..window.clone() };
    let gemma2 = TinyModel { layers: 4, ..TinyModel::gemma2(TensorType::Q8_0) };
    let of = |model: TinyModel| TinyModel { layers: model.layers.max(4), ..model }.gguf();
    let all = [
        ("window", of(window), KvType::Q8_0),
        ("window and all", gemma3.gguf(), KvType::F16),
        ("norms of both kinds", gemma2.gguf(), KvType::Q4_0),
        ("experts", of(TinyModel::qwen3moe(TensorType::Q4_0, 192)), KvType::F16),
        ("latents", of(TinyModel::deepseek2(TensorType::Q4_0, 192)), KvType::F16),
        ("delta nets", of(TinyModel::qwen35(TensorType::Q4_0)), KvType::F16),
        ("mamba", of(TinyModel::granitehybrid(TensorType::Q4_0, 192)), KvType::F16),
        ("convolutions", of(TinyModel::lfm2(TensorType::Q8_0)), KvType::F16),
        ("blocks in parallel", with_layers("gptneox", 4), KvType::F16),
        ("positions", with_layers("gpt2", 4), KvType::F16),
        ("ALiBi", with_layers("bloom", 4), KvType::F16),
        ("no head of its own", golden("gemma2"), KvType::F16),
    ];
    for (name, bytes, ty) in all {
        check(name, bytes, &[2], &kv(ty));
    }
    let kv = KvTypes { keys: KvType::Q8_0, values: KvType::F16 };
    let model = of(TinyModel { head_dim: 64, ..TinyModel::llama(TensorType::Q4_0) });
    check("two types of a cache", model, &[2], &LoadOptions { kv, ..options() });
}

#[test]
fn models_whose_layers_share_more_are_refused_by_name() {
    let refused = |bytes: Vec<u8>| {
        let file = ModelFile::from_bytes("tiny", bytes);
        let peers = vec!["127.0.0.1:1".to_owned()];
        let stage = Some(StageOptions {
            number: 2,
            of: 2,
            peers,
            key: StageKey::default(),
            without_key: false,
        });
        let options = LoadOptions { stage, ..options() };
        Engine::load(&file, &options, &mut |_| {}).err().map(|e| e.to_string()).unwrap_or_default()
    };
    let error = refused(TinyModel::gemma3n(TensorType::Q4_0).gguf());
    assert!(error.contains("gemma3n cannot be cut into stages here: "), "{error}");
    let error = refused(TinyModel::gemma4(TensorType::Q4_0).gguf());
    assert!(error.contains("gemma4 cannot be cut into stages here: its layers have"), "{error}");
    let one = TinyModel { layers: 1, ..TinyModel::qwen3(TensorType::Q4_0) };
    assert!(refused(one.gguf()).contains("2 stages cannot share 1 layers"));
}
