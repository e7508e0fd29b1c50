//! States of fixed size behind the queue: what company, replicas, the prefix cache, guesses and copies do to the
//! answers of models that have them.

use super::*;
use arclight_engine::{KvType, Speculation};

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

fn all() -> Vec<Request> {
    let sizes = [3, 40, 1, 100, 33, 64];
    let of = |(&len, seed)| Request { end_tokens: Vec::new(), ..request(len, seed) };
    sizes.iter().zip(0..).map(of).collect()
}

#[test]
fn hybrid_models_answer_as_a_single_engine_does() {
    let two = FakeMachine::uniform(2, 2).machine().unwrap();
    for file in models() {
        let options = |sequences| LoadOptions { kv: KvType::F16, ..options(sequences) };
        let mut engine = Engine::load_on(&file, &one_node(1), &options(1), &mut |_| {}).unwrap();
        let want: Vec<_> = all().iter().map(|r| alone(&mut engine, r).0).collect();
        let lookup = ReplicaOptions { speculation: Speculation::Lookup(4), ..copies(1) };
        let draft = Speculation::Draft(file.clone(), 3);
        let draft = ReplicaOptions { speculation: draft, ..copies(1) };
        for serving in [copies(1), copies(2), lookup, draft] {
            let replicas =
                Replicas::load_on(&file, &two, &options(3), &serving, &mut |_| {}).unwrap();
            // Twice: the second time prompts are found.
            for round in 0..2 {
                let tickets = replicas.submit_all(all()).unwrap();
                for (i, (ticket, want)) in tickets.into_iter().zip(&want).enumerate() {
                    let what = format!("{serving:?}, request {i}, round {round}");
                    assert_eq!(&ticket.wait().unwrap().0, want, "{what}");
                }
            }
            let counters = replicas.counters();
            assert!(counters.cached_tokens > 0, "{counters:?}");
            if matches!(serving.speculation, Speculation::Draft(..)) {
                assert_eq!(counters.accepted_tokens, counters.drafted_tokens);
                assert!(counters.drafted_tokens > 0);
            }
        }
    }
}
