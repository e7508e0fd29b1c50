//! Experts and latents behind the queue: what company, replicas, the prefix cache and guesses do to their answers.

use super::*;

/// Experts of a width that two nodes share unevenly; with a shared one; with sinks and biases; over latents.
fn models() -> Vec<(Arc<ModelFile>, KvType)> {
    let file = |model: TinyModel| Arc::new(ModelFile::from_bytes(model.arch, model.gguf()));
    vec![
        (file(TinyModel::qwen3moe(TensorType::Q4_0, 192)), KvType::F16),
        (file(TinyModel::qwen2moe(TensorType::Q8_0, 160)), KvType::F16),
        (file(TinyModel::gpt_oss(TensorType::Q4_0, 192)), KvType::F16),
        (file(TinyModel::deepseek2(TensorType::Q4_0, 192)), KvType::Q8_0),
    ]
}

#[test]
fn sparse_models_answer_as_a_single_engine_does() {
    models().into_iter().for_each(|(file, kv)| answers_are_a_single_engine_s(&file, kv));
}

#[test]
fn chosen_experts_are_counted_and_idle_time_counts_for_nothing() {
    let file = TinyModel::qwen3moe(TensorType::Q4_0, 192);
    let file = Arc::new(ModelFile::from_bytes(file.arch, file.gguf()));
    let replicas =
        Replicas::load_on(&file, &one_node(2), &options(1), &copies(1), &mut |_| {}).unwrap();
    // Tokens that were computed, and the choices in each layer.
    let look = || {
        let status = replicas.status().remove(0);
        let done = status.counters;
        let layers = status.experts.iter().map(|layer| layer.iter().sum::<u64>());
        // The last token of an answer is not computed.
        (done.computed_tokens + done.generated_tokens - done.served, layers.collect::<Vec<_>>())
    };
    assert!(look().1.iter().all(|&choices| choices == 0));
    serve(&replicas, request(70, 1));
    let (tokens, layers) = look();
    let each = layers[0] / tokens;
    assert!(each > 0 && !layers.is_empty(), "{layers:?}");
    assert!(layers.iter().all(|&choices| choices == each * tokens), "{layers:?} of {tokens}");
    super::idle::idle(&replicas, |engine| {
        engine.time_step(&prompt(9, 3), Duration::ZERO).unwrap();
    });
    serve(&replicas, request(60, 3));
    let (more, layers) = look();
    assert!(more > tokens + 60);
    assert!(layers.iter().all(|&choices| choices == each * more), "{layers:?} of {more}");
}
