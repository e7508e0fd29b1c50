//! Adapters: the same as merged weights, the same bits in any company, no trace in sequences without them.

use arclight_engine::{
    Adapted, Adapter, AdapterUse, BatchEntry, Engine, Error, KvType, LoadOptions, ModelFile, Numa,
    Outputs, SeqId, Variant,
};
use gguf::{OwnedValue, TensorType, Writer};
use std::sync::Arc;
use testkit::{Rng, TinyModel, lora, merged};

/// Largest difference relative to the largest logit: products of floats, whose sums differ in their order and in
/// what was rounded when weights were merged.
const TOLERANCE: f32 = 2e-5;

fn adapter(bytes: Vec<u8>) -> Result<Arc<Adapter>, Error> {
    Adapter::read(&ModelFile::from_bytes("adapter", bytes)).map(Arc::new)
}

fn load(model: &[u8], adapters: &[Vec<u8>], options: LoadOptions) -> Result<Engine, Error> {
    let uses = adapters.iter().enumerate().map(|(i, bytes)| {
        let (name, adapter) = (format!("a{i}"), adapter(bytes.clone())?);
        Ok(AdapterUse { name, adapter, scale: 0.0 })
    });
    let options = LoadOptions {
        no_pin: true,
        sequences: Some(6),
        step_outputs: Some(64),
        adapters: uses.collect::<Result<_, Error>>()?,
        ..options
    };
    Engine::load(&ModelFile::from_bytes("tiny", model.to_vec()), &options, &mut |_| {})
}

fn prompt(len: usize, seed: u64) -> Vec<u32> {
    let mut rng = Rng::new(seed);
    (0..len).map(|_| rng.below(300) as u32).collect()
}

fn with(adapter: u32, scale: f32) -> Adapted {
    Adapted { adapter, scale }
}

fn feed(engine: &mut Engine, sequence: SeqId, tokens: &[u32], chunk: usize) -> Vec<f32> {
    let mut last = Vec::new();
    for piece in tokens.chunks(chunk) {
        let entry = BatchEntry { sequence, tokens: piece, outputs: Outputs::Last };
        last = engine.step(&[entry]).unwrap().row(0).to_vec();
    }
    last
}

/// The last logits of a sequence with these adapters.
fn alone(engine: &mut Engine, set: &[Adapted], tokens: &[u32], chunk: usize) -> Vec<f32> {
    let sequence = engine.new_sequence_with(set).unwrap();
    let logits = feed(engine, sequence, tokens, chunk);
    engine.free(sequence).unwrap();
    logits
}

fn bits(row: &[f32]) -> Vec<u32> {
    row.iter().map(|v| v.to_bits()).collect()
}

fn distance(got: &[f32], want: &[f32]) -> f32 {
    let scale = want.iter().fold(0f32, |m, w| m.max(w.abs()));
    got.iter().zip(want).map(|(g, w)| (g - w).abs()).fold(0f32, f32::max) / scale
}

/// Heads, columns and rows that divide by nothing.
fn odd(arch: &'static str, ty: TensorType) -> TinyModel {
    let (heads, kv_heads, head_dim, ffn) = (14, 2, 32, 1056);
    TinyModel { arch, heads, kv_heads, head_dim, ffn, ty, ..TinyModel::llama(ty) }
}

/// Matrices of one part and several, apart and fused in the file; biases, functions and norms of what adapters are added
/// to; blocks side by side; heads whose rows and columns take turns; latents; several streams.
fn floats() -> Vec<(&'static str, TinyModel)> {
    let f32 = TensorType::F32;
    vec![
        ("llama", odd("llama", f32)),
        ("qwen3", TinyModel::qwen3(f32)),
        ("phi3", odd("phi3", f32)),
        ("olmo2", odd("olmo2", f32)),
        ("starcoder2", odd("starcoder2", f32)),
        ("gemma2", TinyModel::gemma2(f32)),
        ("glm4", TinyModel::glm4(f32)),
        ("gptneox", odd("gptneox", f32)),
        ("phi2", odd("phi2", f32)),
        ("qwen35", TinyModel::qwen35(f32)),
        ("qwen3next", TinyModel::qwen3next(f32, 96)),
        ("falcon_h1", TinyModel::falcon_h1(f32)),
        ("lfm2", TinyModel::lfm2(f32)),
        ("deepseek2", TinyModel::deepseek2(f32, 96)),
        ("gemma3n", TinyModel::gemma3n(f32)),
        ("gemma4", TinyModel::gemma4(f32)),
        ("qwen3moe", TinyModel::qwen3moe(f32, 96)),
    ]
}

#[test]
fn adapters_do_what_merged_weights_do() {
    let tokens = prompt(70, 1);
    for (name, model) in floats() {
        let model = model.gguf();
        let a = lora(&model, TensorType::F32, 8, 8.0, 1);
        let b = lora(&model, TensorType::F16, 20, 10.0, 2);
        let both = merged(&model, &[(&a, 0.75), (&b, -1.5)]);
        let options = |nodes| LoadOptions {
            nodes: Some(nodes),
            kv: KvType::F32.into(),
            ..LoadOptions::default()
        };
        let want = alone(&mut load(&both, &[], options(1)).unwrap(), &[], &tokens, 512);
        let base = alone(&mut load(&model, &[], options(1)).unwrap(), &[], &tokens, 512);
        assert!(distance(&base, &want) > 100.0 * TOLERANCE, "{name}: adapters that do something");
        for nodes in [1, 2, 3] {
            let mut engine = load(&model, &[a.clone(), b.clone()], options(nodes)).unwrap();
            let set = [with(1, -1.5), with(0, 0.75)];
            for chunk in [512, 1] {
                let got = alone(&mut engine, &set, &tokens, chunk);
                let off = distance(&got, &want);
                assert!(off < TOLERANCE, "{name} on {nodes} nodes, by {chunk}: off by {off:e}");
            }
        }
    }
}

#[test]
fn adapters_cost_local_waits_and_no_global_one() {
    let model = TinyModel::llama(TensorType::Q4_0);
    let (layers, model) = (model.layers, model.gguf());
    let adapters = [lora(&model, TensorType::F32, 4, 4.0, 1)];
    for nodes in [1, 2, 3] {
        let options =
            LoadOptions { nodes: Some(nodes), threads: Some(3), ..LoadOptions::default() };
        let waits = |engine: &mut Engine, adapts, form| {
            let program = engine.program(Variant { adapts, ..form });
            graph::count_waits(&program.unwrap()[0])
        };
        let mut plain = load(&model, &[], options.clone()).unwrap();
        let mut engine = load(&model, &adapters, options).unwrap();
        // Q, K and V, output, gate and up, down; and the head.
        let more = 4 * layers + 1;
        for form in [Variant::DECODE, Variant::PREFILL] {
            let (all, global) = waits(&mut plain, false, form);
            assert_eq!(waits(&mut engine, false, form), (all, global), "{nodes} nodes");
            let (adapted, still) = waits(&mut engine, true, form);
            assert_eq!(still, global, "{nodes} nodes");
            // Prompts may need fewer: a wait serves for both products.
            let right =
                if form.private_tokens { adapted == all + more } else { adapted <= all + more };
            assert!(right, "{nodes} nodes: {adapted} waits, {all} without");
        }
        assert!(plain.program(Variant { adapts: true, ..Variant::DECODE }).is_none());
    }
}

/// Several ways through the operators with quantised weights.
fn quantised() -> Vec<(&'static str, TinyModel)> {
    let mixed = TinyModel { second: Some(TensorType::Q6_K), ..TinyModel::qwen3(TensorType::Q4_K) };
    vec![
        ("qwen3 q4_k + q6_k", mixed),
        ("llama, odd shapes", odd("llama", TensorType::Q4_0)),
        ("olmo2, odd shapes", odd("olmo2", TensorType::Q8_0)),
        ("phi3, odd shapes", odd("phi3", TensorType::Q4_0)),
        ("gptneox, odd shapes", odd("gptneox", TensorType::Q8_0)),
        ("gemma2 q8_0", TinyModel::gemma2(TensorType::Q8_0)),
        ("delta nets q4_0", TinyModel::qwen35(TensorType::Q4_0)),
        ("llama bf16", TinyModel::llama(TensorType::BF16)),
    ]
}

#[test]
fn company_nodes_and_chunks_do_not_change_a_bit() {
    let (a, b, c, d) = (prompt(290, 5), prompt(40, 6), prompt(7, 7), prompt(60, 8));
    let sets: [&[Adapted]; 4] =
        [&[with(0, 1.0)], &[], &[with(0, 0.5), with(1, 2.0)], &[with(1, 1.0)]];
    let prompts = [&a, &b, &c, &d];
    for (name, model) in quantised() {
        let model = model.gguf();
        let adapters =
            [lora(&model, TensorType::F32, 16, 16.0, 1), lora(&model, TensorType::F16, 5, 5.0, 2)];
        let options = |nodes, threads| LoadOptions {
            nodes: Some(nodes),
            threads: Some(threads),
            ..LoadOptions::default()
        };
        let mut engine = load(&model, &adapters, options(1, 2)).unwrap();
        let want: Vec<_> =
            (0..4).map(|i| bits(&alone(&mut engine, sets[i], prompts[i], 512))).collect();
        // Without any it is as if there were none.
        let mut plain = load(&model, &[], options(1, 2)).unwrap();
        assert!(bits(&alone(&mut plain, &[], &b, 512)) == want[1], "{name}: no trace");
        assert!(bits(&alone(&mut plain, &[], &a, 512)) != want[0], "{name}: they do something");
        let zero = bits(&alone(&mut engine, &[with(0, 0.0)], &b, 512));
        assert!(zero == want[1], "{name}: a factor of zero is none");

        for (nodes, threads) in [(1, 1), (1, 3), (2, 2), (3, 3), (2, 5)] {
            let mut engine = load(&model, &adapters, options(nodes, threads)).unwrap();
            let at = format!("{name}, {nodes} nodes, {threads} threads");
            for chunk in [512, 13, 1] {
                let got = bits(&alone(&mut engine, sets[2], &c, chunk));
                assert!(got == want[2], "{at}: chunks of {chunk}");
            }
            // All in one step, then a token each.
            let ids: Vec<SeqId> =
                (0..4).map(|i| engine.new_sequence_with(sets[i]).unwrap()).collect();
            let all = |i: usize| BatchEntry {
                sequence: ids[i],
                tokens: prompts[i],
                outputs: Outputs::Last,
            };
            let logits = engine.step(&[all(0), all(1), all(2), all(3)]).unwrap();
            for (i, want) in want.iter().enumerate() {
                assert!(bits(logits.row(i)) == *want, "{at}: prompt {i} in a batch");
            }
            let one = |i: usize| BatchEntry { tokens: &[9], ..all(i) };
            let logits = engine.step(&[one(3), one(0), one(1), one(2)]).unwrap();
            let together: Vec<_> = [1, 2, 3, 0].map(|i| bits(logits.row(i))).into();
            for (i, together) in together.iter().enumerate() {
                let mut whole = prompts[i].clone();
                whole.push(9);
                let lone = bits(&alone(&mut engine, sets[i], &whole, 512));
                assert!(lone == *together, "{at}: decoding {i} beside others");
            }
            // A copy has the adapters of its original.
            let copy = engine.fork(ids[2]).unwrap();
            let after = bits(&feed(&mut engine, ids[2], &[3], 1));
            assert!(bits(&feed(&mut engine, copy, &[3], 1)) == after, "{at}: a copy");
        }
    }
}

#[test]
fn every_form_of_execution_gives_the_same_bits() {
    let tokens = prompt(270, 8);
    for (name, model) in quantised() {
        let model = model.gguf();
        let adapters = [lora(&model, TensorType::F32, 12, 12.0, 3)];
        for nodes in [1, 2, 3] {
            let options =
                LoadOptions { nodes: Some(nodes), threads: Some(3), ..LoadOptions::default() };
            let mut engine = load(&model, &adapters, options).unwrap();
            let set = [with(0, 1.25)];
            let base = bits(&alone(&mut engine, &set, &tokens, 512));
            for variant in Variant::all(nodes) {
                let sequence = engine.new_sequence_with(&set).unwrap();
                feed(&mut engine, sequence, &tokens[..269], 512);
                engine.force_variant(Some(variant)).unwrap();
                let got = bits(&feed(&mut engine, sequence, &tokens[269..], 1));
                engine.force_variant(None).unwrap();
                engine.free(sequence).unwrap();
                assert!(got == base, "{name}: {variant:?}");
            }
        }
    }
}

#[test]
fn all_ways_to_use_nodes_give_the_same_bits() {
    let tokens = prompt(100, 9);
    let model = odd("llama", TensorType::Q4_0).gguf();
    let adapters = [lora(&model, TensorType::F32, 16, 16.0, 4)];
    let run = |numa, nodes| {
        let options = LoadOptions { numa, nodes: Some(nodes), ..LoadOptions::default() };
        let mut engine = load(&model, &adapters, options).unwrap();
        [512, 1].map(|chunk| bits(&alone(&mut engine, &[with(0, 1.0)], &tokens, chunk)))
    };
    let one = run(Numa::TensorParallel, 1);
    for numa in [Numa::Pipeline, Numa::Mirror, Numa::Interleave, Numa::Off] {
        assert!(run(numa, 2) == one, "{numa:?}");
    }
}

#[test]
fn beginnings_are_shared_among_equal_sets_only() {
    let model = TinyModel::qwen3(TensorType::Q4_0).gguf();
    let adapters =
        [lora(&model, TensorType::F32, 8, 8.0, 1), lora(&model, TensorType::F32, 8, 8.0, 2)];
    let mut engine = load(&model, &adapters, LoadOptions::default()).unwrap();
    let tokens = prompt(100, 3);
    let mut begin = |set: &[Adapted]| {
        let (sequence, cached) = engine.begin_with(&tokens, set).unwrap();
        let logits = bits(&feed(&mut engine, sequence, &tokens[cached..], 512));
        engine.free(sequence).unwrap();
        (cached, logits)
    };
    let sets: [&[Adapted]; 5] =
        [&[], &[with(0, 1.0)], &[with(0, 0.5)], &[with(1, 1.0)], &[with(0, 1.0), with(1, 1.0)]];
    let first: Vec<_> = sets.iter().map(|set| begin(set)).collect();
    assert!(first.iter().all(|(cached, _)| *cached == 0), "nobody else has computed it");
    for (i, set) in sets.iter().enumerate() {
        let (cached, logits) = begin(set);
        assert_eq!(cached, 99, "{set:?}");
        assert!(logits == first[i].1, "{set:?}");
        assert!(first[..i].iter().all(|other| other.1 != logits), "{set:?} does something else");
    }
    let (cached, _) = begin(&[with(1, 1.0), with(0, 1.0)]);
    assert_eq!(cached, 99, "order does not count");
}

/// A file with other metadata or other tensors.
fn changed(
    file: &[u8],
    metadata: &[(&str, &str)],
    tensor: impl Fn(&str, &[usize]) -> Option<(String, Vec<usize>)>,
) -> Vec<u8> {
    let gguf = gguf::Gguf::parse(file).unwrap();
    let mut w = Writer::new();
    for (key, value) in gguf.metadata().iter() {
        match metadata.iter().find(|(changed, _)| *changed == key) {
            Some((_, value)) => w.kv(key, *value),
            None => w.kv(key, OwnedValue::from(value)),
        };
    }
    for t in gguf.tensors() {
        if let Some((name, dims)) = tensor(t.name(), t.shape.dims()) {
            let bytes = dims.iter().product::<usize>() * t.ty.block_bytes();
            w.tensor(
                name,
                &dims,
                t.ty,
                t.data.iter().copied().cycle().take(bytes).collect::<Vec<_>>(),
            );
        }
    }
    let mut bytes = Vec::new();
    w.write_to(&mut bytes).unwrap();
    bytes
}

#[test]
fn what_does_not_fit_is_refused_and_named() {
    let model = TinyModel::qwen3moe(TensorType::F32, 96).gguf();
    let good = lora(&model, TensorType::F32, 4, 4.0, 1);
    load(&model, std::slice::from_ref(&good), LoadOptions::default()).unwrap();
    let same = |name: &str, dims: &[usize]| Some((name.to_owned(), dims.to_vec()));
    let renamed = |from: &'static str, to: &'static str| {
        move |name: &str, dims: &[usize]| {
            let other = name.strip_prefix(from).map(|end| format!("{to}{end}"));
            Some((other.unwrap_or_else(|| name.to_owned()), dims.to_vec()))
        }
    };
    let refused = |bytes: Vec<u8>| {
        let error = load(&model, &[bytes], LoadOptions::default()).err().expect("refused");
        error.to_string()
    };
    let cases = [
        (model.clone(), "adapter: this is no adapter: general.type is not there"),
        (changed(&good, &[("adapter.type", "dora")], same), "adapters of type dora"),
        (
            changed(&good, &[("general.architecture", "llama")], same),
            "it is for models of architecture llama, but this model is qwen3moe",
        ),
        (
            changed(&good, &[], renamed("blk.0.attn_q.weight.lora_a", "blk.0.attn_q.weight.a")),
            "tensor blk.0.attn_q.weight.a is neither .lora_a nor .lora_b",
        ),
        (
            changed(&good, &[], |name, dims| {
                (name != "blk.1.attn_k.weight.lora_b").then(|| (name.to_owned(), dims.to_vec()))
            }),
            "tensor blk.1.attn_k.weight.lora_b is missing",
        ),
        (
            changed(&good, &[], renamed("blk.0.attn_q.weight", "blk.7.attn_q.weight")),
            "what the adapter has for blk.7.attn_q.weight is of no use: the model has no such tensor",
        ),
        (
            changed(&good, &[], |name, dims| {
                let mut dims = dims.to_vec();
                if name == "blk.0.attn_output.weight.lora_b" {
                    dims[1] -= 16;
                }
                Some((name.to_owned(), dims))
            }),
            "what the adapter has for blk.0.attn_output.weight has A of 4 x",
        ),
        (
            changed(&good, &[], renamed("blk.0.attn_q.weight", "blk.0.ffn_down_exps.weight")),
            "what the adapter has for blk.0.ffn_down_exps.weight cannot be added: adapters of experts",
        ),
        (
            changed(&good, &[], renamed("blk.0.attn_q.weight", "blk.0.attn_norm.weight")),
            "what the adapter has for blk.0.attn_norm.weight",
        ),
        (changed(&good, &[], |_, _| None), "it has no tensors"),
    ];
    for (bytes, want) in cases {
        let got = refused(bytes);
        assert!(got.contains(want), "{got}\nwants\n{want}");
    }
    // Of embeddings.
    let untied = TinyModel::qwen3(TensorType::F32).gguf();
    let gguf = gguf::Gguf::parse(&untied).unwrap();
    let (rows, cols) = {
        let table = gguf.tensor("token_embd.weight").unwrap();
        (table.rows(), table.cols())
    };
    let mut w = Writer::new();
    w.kv("general.type", "adapter").kv("general.architecture", "qwen3");
    w.kv("adapter.type", "lora").kv("adapter.lora.alpha", 1.0f32);
    w.tensor("token_embd.weight.lora_a", &[cols, 2], TensorType::F32, vec![0; cols * 8]);
    w.tensor("token_embd.weight.lora_b", &[2, rows], TensorType::F32, vec![0; rows * 8]);
    let mut bytes = Vec::new();
    w.write_to(&mut bytes).unwrap();
    let error = load(&untied, &[bytes], LoadOptions::default()).err().expect("refused");
    assert!(
        error.to_string().contains("token_embd.weight cannot be added: adapters of embeddings")
    );
}

#[test]
fn sequences_name_adapters_that_are_there() {
    let model = TinyModel::qwen3(TensorType::Q4_0).gguf();
    let adapters = [lora(&model, TensorType::F32, 8, 8.0, 1)];
    let mut engine = load(&model, &adapters, LoadOptions::default()).unwrap();
    let mut refused = |set: &[Adapted]| engine.new_sequence_with(set).unwrap_err().to_string();
    assert_eq!(refused(&[with(1, 1.0)]), "there is no adapter 1: 1 are loaded");
    assert_eq!(refused(&[with(0, 1.0), with(0, 0.5)]), "adapter 0 is named twice");
    assert!(refused(&[with(0, f32::NAN)]).contains("the scale of adapter 0 is NaN"));
}
