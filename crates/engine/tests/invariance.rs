//! The same answer every time: the bits of a sequence's logits depend on nothing but its tokens,
//! and not even on the number of nodes.

use arclight_engine::{
    BatchEntry, Engine, KvType, KvTypes, LoadOptions, ModelFile, Numa, Outputs, SeqId, Variant,
};
use gguf::TensorType;
use std::sync::LazyLock;
use testkit::{Rng, TinyModel, with_scales};

/// A file, and how its keys and values are kept.
struct Model {
    bytes: Vec<u8>,
    kv: KvTypes,
}

/// One float type, one plain, two mixed and one unpacked quantised type: they take different ways
/// through the operators. Kernels of the other types are held to the same bits in `kernels`. The KV cache
/// is of half floats, bfloat16 or quantised.
///
/// Made once: fitting their blocks takes as long as a test.
fn models() -> &'static [(String, Model)] {
    static MODELS: LazyLock<Vec<(String, Model)>> = LazyLock::new(make_models);
    &MODELS
}

fn make_models() -> Vec<(String, Model)> {
    let mixed = TinyModel { second: Some(TensorType::Q6_K), ..TinyModel::qwen3(TensorType::Q4_K) };
    let other =
        TinyModel { second: Some(TensorType::Q5_K), ..TinyModel::qwen3(TensorType::IQ4_XS) };
    let wide = || TinyModel { head_dim: 64, ..TinyModel::qwen3(TensorType::Q4_0) };
    let gemma3 = TinyModel { arch: "gemma3", window: Some(40), ..odd() };
    let model = |name: &str, kv: KvType, of: TinyModel| {
        (name.to_owned(), Model { bytes: of.gguf(), kv: kv.into() })
    };
    let apart = |name: &str, keys, values, of: TinyModel| {
        let model = Model { bytes: of.gguf(), kv: KvTypes { keys, values } };
        (format!("{name}, keys {keys}, values {values}"), model)
    };
    let scaled = |name: &str, of: TinyModel| {
        let bytes = with_scales(&of.gguf()).unwrap().beside;
        (name.to_owned(), Model { bytes, kv: KvType::F16.into() })
    };
    vec![
        model("qwen3 q4_0", KvType::F16, TinyModel::qwen3(TensorType::Q4_0)),
        model("qwen3 q4_k + q6_k", KvType::F16, mixed),
        model("qwen3 iq4_xs + q5_k", KvType::F16, other),
        model("llama tq2_0", KvType::F16, TinyModel::llama(TensorType::TQ2_0)),
        model("llama iq2_xxs", KvType::F16, TinyModel::llama(TensorType::IQ2_XXS)),
        model("llama bf16", KvType::F16, TinyModel::llama(TensorType::BF16)),
        model("odd shapes", KvType::F16, odd()),
        model("qwen3 q4_0, kv q8_0", KvType::Q8_0, wide()),
        model("qwen3 q4_0, kv q4_0", KvType::Q4_0, wide()),
        model("odd shapes, kv q8_0", KvType::Q8_0, odd()),
        model("odd shapes, kv q4_0", KvType::Q4_0, odd()),
        model("odd shapes, kv bf16", KvType::Bf16, odd()),
        // Biases are cut like rows, also where two nodes hold a key head; factors act on whole sums.
        model("qwen2, odd shapes", KvType::F16, TinyModel { arch: "qwen2", ..odd() }),
        model("granite q4_0", KvType::F16, TinyModel::granite(TensorType::Q4_0)),
        model("phi3, odd shapes", KvType::F16, TinyModel { arch: "phi3", ..odd() }),
        // Norms of sums over nodes, and over heads of all nodes; biases of sums.
        model("olmo2 q4_0", KvType::F16, TinyModel::olmo2(TensorType::Q4_0)),
        model("olmo2, odd shapes", KvType::F16, TinyModel { arch: "olmo2", ..odd() }),
        model("starcoder2, odd shapes", KvType::F16, TinyModel { arch: "starcoder2", ..odd() }),
        model("glm4 bf16", KvType::F16, TinyModel::glm4(TensorType::BF16)),
        model("gemma2 q8_0", KvType::F16, TinyModel::gemma2(TensorType::Q8_0)),
        model("gemma3, odd shapes", KvType::F16, TinyModel { layers: 4, ..gemma3 }),
        model("smollm3 q8_0", KvType::F16, TinyModel::smollm3(TensorType::Q8_0)),
        // Windows that begin within a range of keys and across two.
        model("llama q4_0, window 40", KvType::F16, windowed(Some(40))),
        model(
            "phi3, window 100",
            KvType::F16,
            TinyModel { arch: "phi3", window: Some(100), ..odd() },
        ),
        model(
            "odd shapes, window 100, kv q8_0",
            KvType::Q8_0,
            TinyModel { window: Some(100), ..odd() },
        ),
        model("llama q4_0, window 40, kv q4_0", KvType::Q4_0, windowed(Some(40))),
        // Experts of several leaves and few, of which nodes have other ones by class; of floats.
        model("experts q4_0", KvType::F16, TinyModel::qwen3moe(TensorType::Q4_0, 768)),
        model("experts q4_k + q6_k", KvType::F16, {
            let second = Some(TensorType::Q6_K);
            TinyModel { second, ..TinyModel::qwen3moe(TensorType::Q4_K, 768) }
        }),
        // One more expert for all tokens, in a bank and as a dense layer.
        model("shared expert q8_0", KvType::F16, TinyModel::qwen2moe(TensorType::Q8_0, 160)),
        model("dense expert q4_0", KvType::F16, TinyModel::dots1(TensorType::Q4_0, 192)),
        model("sinks and biases q4_0", KvType::F16, TinyModel::gpt_oss(TensorType::Q4_0, 192)),
        // Latents are one key for all heads; their matrices by head are of blocks or of floats.
        model("latents q4_0", KvType::F16, TinyModel::deepseek2(TensorType::Q4_0, 192)),
        model("latents q8_0, kv q8_0", KvType::Q8_0, TinyModel::deepseek2(TensorType::Q8_0, 96)),
        model("latents bf16", KvType::Bf16, TinyModel::deepseek2(TensorType::BF16, 48)),
        model("chunks of 100, q8_0", KvType::F16, TinyModel::llama4(TensorType::Q8_0, 96)),
        model("experts bf16", KvType::F16, TinyModel::qwen3moe(TensorType::BF16, 48)),
        // States of fixed size: delta nets of both orders of heads, Mamba-2 with one head of keys and a norm
        // over all heads, or with four, short convolutions.
        model("delta nets q4_0", KvType::F16, TinyModel::qwen35(TensorType::Q4_0)),
        model("delta nets, experts q8_0", KvType::F16, TinyModel::qwen3next(TensorType::Q8_0, 96)),
        model("mamba, experts q4_0", KvType::F16, TinyModel::granitehybrid(TensorType::Q4_0, 192)),
        model("mamba, layers of one block", KvType::F16, TinyModel::nemotron_h(TensorType::Q8_0)),
        model("mamba beside attention f32", KvType::F16, TinyModel::falcon_h1(TensorType::F32)),
        model("convolutions q8_0", KvType::F16, TinyModel::lfm2(TensorType::Q8_0)),
        // Several streams, gates of which the largest count; with rotated keys.
        model("gemma3n q4_0", KvType::F16, TinyModel::gemma3n(TensorType::Q4_0)),
        model("gemma3n q8_0, kv q8_0", KvType::Q8_0, TinyModel::gemma3n(TensorType::Q8_0)),
        // Heads of two lengths, shared keys and values, inputs of layers; with rotated keys.
        model("gemma4 q4_0", KvType::F16, TinyModel::gemma4(TensorType::Q4_0)),
        model("gemma4 q8_0, kv q4_0", KvType::Q4_0, TinyModel::gemma4(TensorType::Q8_0)),
        // Scales of matrices, on products and on sums.
        scaled("nvfp4 with scales", TinyModel { ffn: 1088, ..TinyModel::llama(TensorType::NVFP4) }),
        scaled("experts nvfp4 with scales", TinyModel::qwen2moe(TensorType::NVFP4, 192)),
        // Blocks in parallel behind two norms and behind one, with biases of all; norms of heads with own weights.
        model("gptneox, odd shapes", KvType::F16, TinyModel { arch: "gptneox", ..odd() }),
        model("phi2, odd shapes", KvType::F16, TinyModel { arch: "phi2", ..odd() }),
        model("command-r, odd shapes", KvType::F16, TinyModel { arch: "command-r", ..odd() }),
        // Norms over what all nodes have; experts chosen before attention.
        model(
            "bitnet tq2_0",
            KvType::F16,
            TinyModel { arch: "bitnet", ..TinyModel::llama(TensorType::TQ2_0) },
        ),
        model("bitnet, odd shapes", KvType::F16, TinyModel { arch: "bitnet", ..odd() }),
        model("smallthinker q4_0", KvType::F16, {
            TinyModel { arch: "smallthinker", ..TinyModel::qwen3moe(TensorType::Q4_0, 192) }
        }),
        // Slopes of heads, of two kinds; a norm behind the embedding; limits of queries, keys and values.
        model("bloom, odd shapes", KvType::F16, TinyModel { arch: "bloom", ..odd() }),
        model("bloom, kv q8_0", KvType::Q8_0, TinyModel { arch: "bloom", ..odd() }),
        model("mpt, odd shapes", KvType::F16, TinyModel { arch: "mpt", ..odd() }),
        // Embeddings of positions; heads of odd length, and long ones.
        model("gpt2, odd shapes", KvType::F16, TinyModel { arch: "gpt2", ..odd() }),
        model(
            "gpt2, heads of 7",
            KvType::F16,
            TinyModel { arch: "gpt2", ty: TensorType::F32, ..small_heads(7) },
        ),
        model(
            "qwen3, heads of 320, kv q8_0",
            KvType::Q8_0,
            TinyModel { ffn: 256, ..small_heads(320) },
        ),
        model("olmo2, heads of 24", KvType::F16, TinyModel { arch: "olmo2", ..small_heads(24) }),
        model("olmo2, heads of 20, f32", KvType::F16, {
            TinyModel { arch: "olmo2", ty: TensorType::F32, ..small_heads(20) }
        }),
        model("qwen2, heads of 100, kv q4_0", KvType::Q4_0, {
            TinyModel { arch: "qwen2", ..small_heads(100) }
        }),
        apart("odd shapes", KvType::Q8_0, KvType::F16, odd()),
        apart("qwen3 q4_0", KvType::F16, KvType::Q4_0, wide()),
        apart("heads of 24", KvType::Bf16, KvType::Q8_0, small_heads(24)),
        apart("window 40", KvType::Q8_0, KvType::Q4_0, windowed(Some(40))),
        apart("latents", KvType::Q8_0, KvType::F16, TinyModel::deepseek2(TensorType::Q8_0, 96)),
        // Heads that fill no vector, with norms of their own, and nodes whose keys fill no tile.
        model("qwen3, heads of 8", KvType::F16, small_heads(8)),
        model("qwen3, heads of 24, kv q8_0", KvType::Q8_0, small_heads(24)),
        model("qwen2, heads of 8, kv q4_0", KvType::Q4_0, {
            TinyModel { arch: "qwen2", ..small_heads(8) }
        }),
    ]
}

fn windowed(window: Option<usize>) -> TinyModel {
    TinyModel { window, head_dim: 64, ..TinyModel::llama(TensorType::Q4_0) }
}

fn small_heads(head_dim: usize) -> TinyModel {
    TinyModel { head_dim, ffn: 320, ..TinyModel::qwen3(TensorType::Q8_0) }
}

/// Heads, columns and rows that divide by nothing: 7 query heads to one of keys, 33 blocks.
fn odd() -> TinyModel {
    let (heads, kv_heads, head_dim, ffn) = (14, 2, 32, 1056);
    TinyModel { heads, kv_heads, head_dim, ffn, ..TinyModel::llama(TensorType::Q4_0) }
}

fn load(model: &Model, options: LoadOptions) -> Engine {
    let file = ModelFile::from_bytes("tiny", model.bytes.clone());
    let options = LoadOptions {
        no_pin: true,
        sequences: Some(4),
        step_outputs: Some(64),
        kv: model.kv,
        ..options
    };
    Engine::load(&file, &options, &mut |_| {}).unwrap()
}

fn prompt(len: usize, seed: u64) -> Vec<u32> {
    let mut rng = Rng::new(seed);
    (0..len).map(|_| rng.below(300) as u32).collect()
}

fn bits(row: &[f32]) -> Vec<u32> {
    row.iter().map(|v| v.to_bits()).collect()
}

/// Feeds `tokens` in pieces of `chunk`; the last position's logits.
fn feed(engine: &mut Engine, sequence: SeqId, tokens: &[u32], chunk: usize) -> Vec<u32> {
    let mut last = Vec::new();
    for piece in tokens.chunks(chunk) {
        let entry = BatchEntry { sequence, tokens: piece, outputs: Outputs::Last };
        last = bits(engine.step(&[entry]).unwrap().row(0));
    }
    last
}

/// Takes a sequence back to these tokens, with which it began. Of states of fixed size, what lies behind the
/// snapshot that is left is computed again.
fn back(engine: &mut Engine, sequence: SeqId, tokens: &[u32]) {
    let kept = engine.truncate(sequence, tokens.len()).unwrap();
    feed(engine, sequence, &tokens[kept..], 512);
}

fn alone(engine: &mut Engine, tokens: &[u32], chunk: usize) -> Vec<u32> {
    let sequence = engine.new_sequence().unwrap();
    let logits = feed(engine, sequence, tokens, chunk);
    engine.free(sequence).unwrap();
    logits
}

#[test]
fn threads_do_not_change_a_bit() {
    let tokens = prompt(300, 3);
    for (name, model) in models() {
        let run = |threads| {
            let options =
                LoadOptions { threads: Some(threads), nodes: Some(1), ..Default::default() };
            alone(&mut load(model, options), &tokens, 512)
        };
        let one = run(1);
        for threads in [2, 3, 4] {
            assert!(run(threads) == one, "{name}: {threads} threads");
        }
    }
}

#[test]
fn chunks_of_a_prompt_do_not_change_a_bit() {
    let tokens = prompt(300, 4);
    for (name, model) in models() {
        let mut engine = load(model, LoadOptions { threads: Some(2), ..Default::default() });
        let whole = alone(&mut engine, &tokens, 512);
        for chunk in [1, 13, 64] {
            assert!(alone(&mut engine, &tokens, chunk) == whole, "{name}: chunks of {chunk}");
        }
    }
}

#[test]
fn company_in_the_batch_does_not_change_a_bit() {
    let (a, b, c) = (prompt(290, 5), prompt(40, 6), prompt(7, 7));
    for (name, model) in models() {
        let mut engine = load(model, LoadOptions { threads: Some(2), ..Default::default() });
        let want: Vec<_> = [&a, &b, &c].map(|p| alone(&mut engine, p, 512)).into();

        // All prompts in one step.
        let ids: Vec<SeqId> = (0..3).map(|_| engine.new_sequence().unwrap()).collect();
        let all = |outputs| {
            let prompts = [&a, &b, &c];
            let entries = prompts.into_iter().zip(&ids);
            entries.map(move |(tokens, &sequence)| BatchEntry { sequence, tokens, outputs })
        };
        let batch: Vec<_> = all(Outputs::Last).collect();
        let logits = engine.step(&batch).unwrap();
        for (i, want) in want.iter().enumerate() {
            assert!(bits(logits.row(i)) == *want, "{name}: prompt {i} in a batch of three");
        }

        // One token each, together and alone.
        let next = [1u32, 2, 3];
        let entry = |i: usize| BatchEntry {
            sequence: ids[i],
            tokens: std::slice::from_ref(&next[i]),
            outputs: Outputs::Last,
        };
        let logits = engine.step(&[entry(0), entry(1), entry(2)]).unwrap();
        let together: Vec<_> = (0..3).map(|i| bits(logits.row(i))).collect();
        for (i, prompt) in [&a, &b, &c].into_iter().enumerate() {
            back(&mut engine, ids[i], prompt);
            let lone = bits(engine.step(&[entry(i)]).unwrap().row(0));
            assert!(lone == together[i], "{name}: decoding beside two others");
        }

        // A decoding sequence beside another's prompt.
        back(&mut engine, ids[0], &a);
        engine.truncate(ids[1], 0).unwrap();
        let prefill = BatchEntry { sequence: ids[1], tokens: &b, outputs: Outputs::Last };
        let logits = engine.step(&[entry(0), prefill]).unwrap();
        assert!(bits(logits.row(0)) == together[0], "{name}: decoding beside a prefill");
        assert!(bits(logits.row(1)) == want[1], "{name}: prefilling beside a decode");
    }
}

#[test]
fn every_form_of_execution_gives_the_same_bits() {
    let tokens = prompt(270, 8); // two KV ranges
    for (name, model) in models() {
        for nodes in [1, 2, 3] {
            let options =
                LoadOptions { nodes: Some(nodes), threads: Some(3), ..Default::default() };
            let mut engine = load(model, options);
            let base = alone(&mut engine, &tokens, 512);
            let sequence = engine.new_sequence().unwrap();
            feed(&mut engine, sequence, &tokens[..269], 512);
            let last = &tokens[269..];
            for variant in Variant::all(nodes) {
                engine.force_variant(Some(variant)).unwrap();
                assert!(feed(&mut engine, sequence, last, 1) == base, "{name}: {variant:?}");
                engine.force_variant(None).unwrap();
                back(&mut engine, sequence, &tokens[..269]);
            }
        }
    }
}

#[test]
fn shared_work_gives_the_bits_of_private_work_for_whole_prompts() {
    let tokens = prompt(16, 9);
    for (name, model) in models() {
        let mut engine = load(model, LoadOptions { threads: Some(2), ..Default::default() });
        let base = alone(&mut engine, &tokens, 1);
        for variant in Variant::all(1).into_iter().filter(|v| !v.append_in_attention) {
            engine.force_variant(Some(variant)).unwrap();
            assert!(alone(&mut engine, &tokens, 16) == base, "{name}: {variant:?}");
        }
    }
}

#[test]
fn the_number_of_nodes_does_not_change_a_bit() {
    let tokens = prompt(100, 10);
    for (name, model) in models() {
        let run = |nodes| {
            let mut engine = load(model, LoadOptions { nodes: Some(nodes), ..Default::default() });
            (alone(&mut engine, &tokens, 512), alone(&mut engine, &tokens[..5], 1))
        };
        let one = run(1);
        // 3, 5 and 6 share unevenly, 8 cut the groups of two query heads, 11 leave some idle.
        for nodes in [2, 3, 4, 5, 6, 8, 11] {
            assert!(run(nodes) == one, "{name}: {nodes} nodes");
        }
    }
}

#[test]
fn unequal_nodes_do_not_change_a_bit() {
    let tokens = prompt(100, 11);
    for (name, model) in models() {
        let run = |nodes, threads| {
            let options =
                LoadOptions { nodes: Some(nodes), threads: Some(threads), ..Default::default() };
            let mut engine = load(model, options);
            (alone(&mut engine, &tokens, 512), alone(&mut engine, &tokens[..5], 1))
        };
        let one = run(1, 1);
        // Shares follow the threads: 2 + 1, 2 + 2 + 1, and 2 + 1 + 1 + 1.
        for (nodes, threads) in [(2, 3), (3, 5), (4, 5)] {
            assert!(run(nodes, threads) == one, "{name}: {threads} threads on {nodes} nodes");
        }
    }
}

fn spread(numa: Numa, nodes: usize, threads: usize) -> LoadOptions {
    LoadOptions { numa, nodes: Some(nodes), threads: Some(threads), ..Default::default() }
}

/// Layers that share keys and values are none.
fn can_be_a_pipeline(name: &str) -> bool {
    !["gemma3n", "gemma4"].iter().any(|family| name.starts_with(family))
}

#[test]
fn how_nodes_share_the_model_does_not_change_a_bit() {
    let (tokens, short) = (prompt(300, 12), prompt(5, 13));
    for (name, model) in models() {
        let run = |numa, nodes, threads| {
            let mut engine = load(model, spread(numa, nodes, threads));
            (batch(&mut engine, &tokens, &short), alone(&mut engine, &tokens[..40], 1))
        };
        let one = run(Numa::Off, 1, 1);
        let pipeline = can_be_a_pipeline(name).then_some(Numa::Pipeline);
        let ways = [Numa::TensorParallel, Numa::Mirror, Numa::Interleave, Numa::Off];
        for numa in ways.into_iter().chain(pipeline) {
            assert!(run(numa, 2, 3) == one, "{name}: {numa:?}");
        }
    }
}

#[test]
fn tiles_that_other_threads_take_over_do_not_change_a_bit() {
    let (tokens, short) = (prompt(300, 16), prompt(5, 17));
    for (name, model) in models() {
        let run = |numa, nodes, threads, shares| {
            let mut engine = load(model, spread(numa, nodes, threads));
            engine.share_products(shares);
            (batch(&mut engine, &tokens, &short), alone(&mut engine, &tokens[..20], 1))
        };
        let one = run(Numa::Off, 1, 1, false);
        let pipeline = can_be_a_pipeline(name).then_some((Numa::Pipeline, 2));
        let ways = [(Numa::Off, 1), (Numa::TensorParallel, 2), (Numa::Interleave, 2)];
        for (numa, nodes) in ways.into_iter().chain(pipeline) {
            assert!(run(numa, nodes, 4, true) == one, "{name}: {numa:?}");
        }
    }
}

/// Two prompts in one step, all of the first one's logits, then a token each, then hidden states, alone
/// and beside logits.
fn batch(engine: &mut Engine, a: &[u32], b: &[u32]) -> Vec<Vec<u32>> {
    let ids = [engine.new_sequence().unwrap(), engine.new_sequence().unwrap()];
    let entry = |i: usize, tokens, outputs| BatchEntry { sequence: ids[i], tokens, outputs };
    let last = a.len() - 60;
    feed(engine, ids[0], &a[..last], 512);
    let mut all = Vec::new();
    for step in [
        [entry(0, &a[last..], Outputs::All), entry(1, b, Outputs::Last)],
        [entry(0, &b[..1], Outputs::Last), entry(1, &b[1..2], Outputs::Last)],
        [entry(0, &a[..50], Outputs::AllHidden), entry(1, &a[..40], Outputs::LastHidden)],
        [entry(0, &b[..2], Outputs::LastHidden), entry(1, &b[2..4], Outputs::All)],
    ] {
        let given = engine.step(&step).unwrap();
        all.extend((0..given.len()).map(|i| bits(given.row(i))));
        let hidden = |outputs, tokens: &[u32]| match outputs {
            Outputs::AllHidden => tokens.len(),
            Outputs::LastHidden => 1,
            _ => 0,
        };
        let hidden = step.iter().map(|entry| hidden(entry.outputs, entry.tokens)).sum();
        all.extend((0..hidden).map(|i| bits(given.hidden(i))));
    }
    for id in ids {
        engine.free(id).unwrap();
    }
    all
}

#[test]
fn a_window_that_holds_everything_is_full_attention() {
    let tokens = prompt(300, 14);
    for kv in [KvType::F16, KvType::Bf16, KvType::Q8_0, KvType::Q4_0] {
        let run = |window, context| {
            let model = Model { bytes: windowed(window).gguf(), kv: kv.into() };
            let options = LoadOptions { context: Some(context), ..Default::default() };
            let mut engine = load(&model, options);
            [300, 299].map(|n| alone(&mut engine, &tokens[..n], 512))
        };
        let full = run(None, 400);
        // No class of its own, one whose window is never full, one that just holds all, and one that
        // lacks a key of the last token.
        assert!(run(Some(400), 400) == full);
        assert!(run(Some(399), 400) == full);
        assert!(run(Some(300), 400) == full);
        let [last, before] = run(Some(299), 400);
        assert!(before == full[1] && last != full[0]);
    }
}

#[test]
fn what_a_window_has_left_behind_is_computed_again() {
    let tokens = prompt(400, 15);
    let model = Model { bytes: windowed(Some(40)).gguf(), kv: KvType::F16.into() };
    let mut engine = load(&model, LoadOptions::default());
    let pages = engine.pages().free;
    let want = alone(&mut engine, &tokens[..251], 512);
    let sequence = engine.new_sequence().unwrap();
    feed(&mut engine, sequence, &tokens, 512);
    for (back, kept) in [(64, 64), (100, 0)] {
        let len = engine.len(sequence).unwrap();
        let held = engine.truncate(sequence, len - back).unwrap();
        assert_eq!(held, if kept == 0 { 0 } else { len - kept });
        assert_eq!(engine.len(sequence).unwrap(), held);
    }
    assert!(feed(&mut engine, sequence, &tokens[..251], 100) == want);
    // 336 kept; from 251 it goes back to 200, and on.
    assert_eq!(engine.truncate(sequence, 200).unwrap(), 200);
    assert!(feed(&mut engine, sequence, &tokens[200..251], 7) == want);
    engine.free(sequence).unwrap();
    assert_eq!(engine.pages().free, pages);
}

#[test]
fn keys_behind_a_window_take_no_memory() {
    let kv = |window, context| {
        let model = Model { bytes: windowed(window).gguf(), kv: KvType::F16.into() };
        let options = LoadOptions {
            context: Some(context),
            step_tokens: Some(64),
            nodes: Some(1),
            ..Default::default()
        };
        let engine = load(&model, options);
        let report = engine.report().nodes[0].kv;
        // What is said is what is there.
        let arenas = engine.placement().unwrap().arenas;
        let there: usize = arenas.iter().filter(|a| a.name == "KV pages").map(|a| a.bytes).sum();
        assert_eq!(report, there);
        report
    };
    // Four sequences; a page of two layers with four heads of 64 half floats.
    let page = 32 * 2 * 4 * 2 * 64 * 2;
    // And a page for a copy; with heads of 64 they lie in groups of sixteen.
    assert_eq!(kv(None, 1024), (4 * 32 + 16) * page);
    // 40 + 64 - 1 tokens lie in five pages at most; one more for each sequence, two for a step, and
    // the copy; four windows of two pages stay in the prefix cache.
    assert_eq!(kv(Some(40), 1024), (4 * 6 + 4 * 2 + 2 + 1usize).next_multiple_of(16) * page);
    assert_eq!(kv(Some(40), 512), kv(Some(40), 1024));
}

#[test]
fn the_book_counts_the_keys_that_are_seen() {
    let kv = |window| {
        let model = Model { bytes: windowed(window).gguf(), kv: KvType::F16.into() };
        let mut engine = load(&model, LoadOptions { nodes: Some(1), ..Default::default() });
        let sequence = engine.new_sequence().unwrap();
        feed(&mut engine, sequence, &prompt(300, 16), 512);
        engine.reset_activity();
        feed(&mut engine, sequence, &[1], 1);
        engine.activity().counts.places[0].kv
    };
    let token = 2 * 4 * 2 * 64 * 2;
    assert_eq!((kv(None), kv(Some(40))), (301 * token, 40 * token));
}
