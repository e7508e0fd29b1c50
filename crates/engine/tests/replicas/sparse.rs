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
