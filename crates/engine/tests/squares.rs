//! Sums of squares of what matrices multiply: of every token once, however nodes and threads share the work.

use arclight_engine::{BatchEntry, Engine, LoadOptions, ModelFile, Numa, Outputs};
use gguf::{Gguf, TensorType};
use graph::TensorSquares;
use std::collections::BTreeMap;
use testkit::TinyModel;

const TOKENS: usize = 70;

/// The sums of a text that is computed in steps of several sizes.
fn squares(bytes: &[u8], numa: Numa, nodes: usize) -> BTreeMap<String, TensorSquares> {
    let file = ModelFile::from_bytes("squares", bytes.to_vec());
    let options = LoadOptions {
        numa,
        nodes: Some(nodes),
        threads: Some(2 * nodes),
        no_pin: true,
        step_outputs: Some(TOKENS),
        ..LoadOptions::default()
    };
    let mut engine = Engine::load(&file, &options, &mut |_| {}).unwrap();
    let sequence = engine.new_sequence().unwrap();
    let tokens: Vec<u32> = (0..TOKENS as u32).map(|i| (i * 31) % 300).collect();
    let step = |engine: &mut Engine, tokens: &[u32]| {
        let outputs = Outputs::AllHidden;
        engine.step(&[BatchEntry { sequence, tokens, outputs }]).unwrap();
    };
    engine.begin_squares();
    for part in [&tokens[..1], &tokens[1..60], &tokens[60..]] {
        step(&mut engine, part);
    }
    let all = engine.take_squares();
    // Nothing is summed behind that.
    step(&mut engine, &tokens[..5]);
    assert!(engine.take_squares().is_empty());
    all.into_iter().map(|tensor| (tensor.name.clone(), tensor)).collect()
}

/// Whether sums are the same but for the order in which threads add to them.
#[track_caller]
fn same(a: &TensorSquares, b: &TensorSquares, what: &str) {
    assert_eq!((&a.name, &a.counts, a.sums.len()), (&b.name, &b.counts, b.sums.len()), "{what}");
    for (x, y) in a.sums.iter().zip(&b.sums) {
        assert!((x - y).abs() <= 1e-12 * x.abs(), "{what}: {} {x} {y}", a.name);
    }
}

#[test]
fn they_are_those_of_the_input_computed_by_hand() {
    let bytes = TinyModel::qwen3(TensorType::F32).gguf();
    let all = squares(&bytes, Numa::TensorParallel, 1);
    let gguf = Gguf::parse(&bytes).unwrap();
    let values = |name: &str| {
        let tensor = gguf.tensor(name).unwrap();
        let mut values = vec![0.0; tensor.elements()];
        tensor.ty.dequantize(tensor.data, &mut values).unwrap();
        values
    };
    // The first layer's attention reads the norm of the embedding.
    let (table, norm) = (values("token_embd.weight"), values("blk.0.attn_norm.weight"));
    let eps = gguf.metadata().f32("qwen3.attention.layer_norm_rms_epsilon").unwrap();
    let hidden = norm.len();
    let mut want = vec![0.0; hidden];
    for token in (0..TOKENS).map(|i| (i * 31) % 300) {
        let row = &table[token * hidden..][..hidden];
        let mean = row.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / hidden as f64;
        for ((want, x), weight) in want.iter_mut().zip(row).zip(&norm) {
            *want += (f64::from(*x) * f64::from(*weight)).powi(2) / (mean + f64::from(eps));
        }
    }
    for name in ["attn_q", "attn_k", "attn_v"] {
        let got = &all[&format!("blk.0.{name}.weight")];
        assert_eq!(got.counts, [TOKENS as u64]);
        for (got, want) in got.sums.iter().zip(&want) {
            // Norms are in single precision: some roundings of 6e-8 each.
            assert!((got - want).abs() < 1e-6 * want, "{name}: {got} {want}");
        }
    }
}

#[test]
fn nodes_and_threads_change_nothing() {
    for (name, model) in [
        ("qwen3", TinyModel::qwen3(TensorType::F32)),
        ("qwen3moe", TinyModel::qwen3moe(TensorType::F32, 192)),
        ("qwen35", TinyModel::qwen35(TensorType::BF16)),
        ("deepseek2", TinyModel::deepseek2(TensorType::F32, 96)),
        ("llama4", TinyModel::llama4(TensorType::Q8_0, 192)),
    ] {
        let bytes = model.gguf();
        let one = squares(&bytes, Numa::TensorParallel, 1);
        let gguf = Gguf::parse(&bytes).unwrap();
        let matrices = gguf.tensors().iter().filter(|tensor| {
            tensor.name().starts_with("blk.")
                && tensor.rows() > 1
                && !tensor.name().contains("conv")
        });
        for tensor in matrices {
            let sums = one.get(tensor.name());
            let sums = sums.unwrap_or_else(|| panic!("{name}: none of {}", tensor.name()));
            assert!(sums.sums.iter().all(|sum| sum.is_finite()), "{name}: {}", tensor.name());
            assert!(sums.sums.iter().any(|sum| *sum > 0.0), "{name}: {}", tensor.name());
        }
        for (numa, nodes) in
            [(Numa::TensorParallel, 2), (Numa::TensorParallel, 3), (Numa::Pipeline, 2)]
        {
            let many = squares(&bytes, numa, nodes);
            assert!(many.keys().eq(one.keys()), "{name}, {numa:?}, {nodes} nodes");
            for (one, many) in one.values().zip(many.values()) {
                same(one, many, &format!("{name}, {numa:?}, {nodes} nodes"));
            }
        }
    }
}

#[test]
fn every_token_counts_for_each_of_its_experts() {
    let bytes = TinyModel::qwen3moe(TensorType::F32, 192).gguf();
    let all = squares(&bytes, Numa::TensorParallel, 2);
    let gguf = Gguf::parse(&bytes).unwrap();
    let used = gguf.metadata().u32("qwen3moe.expert_used_count").unwrap() as usize;
    for name in ["ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"] {
        let counts = &all[&format!("blk.1.{name}.weight")].counts;
        assert_eq!(counts.iter().sum::<u64>(), (TOKENS * used) as u64, "{name}");
    }
    let of = |name: &str| &all[&format!("blk.1.{name}.weight")];
    assert_eq!(of("ffn_gate_exps").counts, of("ffn_down_exps").counts);
    // Experts together read what the router reads, each token as often as it has experts.
    let router = of("ffn_gate_inp");
    let up = of("ffn_up_exps");
    let cols = router.sums.len();
    for (col, router) in router.sums.iter().enumerate() {
        let experts: f64 = up.sums.iter().skip(col).step_by(cols).sum();
        assert!((experts - used as f64 * router).abs() < 1e-9 * experts, "{col}");
    }
}
