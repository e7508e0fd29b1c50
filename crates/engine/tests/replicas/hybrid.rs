//! States of fixed size behind the queue: what company, replicas, the prefix cache, guesses and copies do to the
//! answers of models that have them.

use super::*;

/// Delta nets; with experts; Mamba-2 with experts; in layers of their own; beside attention; convolutions.
fn models() -> Vec<Arc<ModelFile>> {
    let file = |model: TinyModel| Arc::new(ModelFile::from_bytes(model.arch, model.gguf()));
    vec![
        file(TinyModel::qwen35(TensorType::Q4_0)),
        file(TinyModel::qwen3next(TensorType::Q4_0, 192)),
        file(TinyModel::granitehybrid(TensorType::Q8_0, 96)),
        file(TinyModel::nemotron_h(TensorType::Q4_0)),
        file(TinyModel::falcon_h1(TensorType::Q4_0)),
        file(TinyModel::lfm2(TensorType::Q4_0)),
    ]
}

#[test]
fn hybrid_models_answer_as_a_single_engine_does() {
    models().iter().for_each(|file| answers_are_a_single_engine_s(file, KvType::F16));
}
