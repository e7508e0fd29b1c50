//! A model is loaded while another computes on the same cores.

use super::*;
use arclight_engine::CoreTurns;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

/// 14 MiB in each of eight layers.
fn large() -> Arc<ModelFile> {
    let tiny = TinyModel::qwen3(TensorType::Q4_0);
    let model = TinyModel { hidden: 1024, ffn: 8192, layers: 8, ..tiny };
    Arc::new(ModelFile::from_bytes("large", model.gguf()))
}

#[test]
fn a_load_waits_for_a_step_of_another_model_at_each_of_its_rounds() {
    let turns = Arc::<CoreTurns>::default();
    let serving = ReplicaOptions { turns: Some(turns), ..copies(1) };
    let long = LoadOptions { context: Some(16_384), ..options(1) };
    let machine = one_node(2);
    let file = {
        let model = TinyModel { context: 16_384, ..TinyModel::qwen3(TensorType::Q4_0) };
        Arc::new(ModelFile::from_bytes("tiny", model.gguf()))
    };
    let first = Replicas::load_on(&file, &machine, &long, &serving, &mut |_| {}).unwrap();
    let (steps, enough) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let (count, stop) = (steps.clone(), enough.clone());
    let stop = move |_| {
        count.fetch_add(1, SeqCst);
        stop.load(SeqCst)
    };
    let request = Request {
        stop: Some(Box::new(stop)),
        end_tokens: Vec::new(),
        limit: Some(16_000),
        ..request(5, 0)
    };
    let stream = first.submit(request).unwrap();
    let large = large();
    let mut seen = Vec::new();
    let mut progress = |_| seen.push(steps.load(SeqCst));
    let second = Replicas::load_on(&large, &machine, &options(1), &serving, &mut progress).unwrap();
    enough.store(true, SeqCst);
    let (_, end) = stream.wait().unwrap();
    assert_eq!(end.stopped, StopReason::Interrupted, "the stream was too short to tell");
    // A round is 8 MiB of the file, or what has to be packed together.
    let rounds = seen.len() - 1;
    assert!(rounds >= 8, "{rounds} rounds");
    let steps = seen[rounds] - seen[0];
    // Each, but where the thread of the stream was not on a core in time to ask for its turn.
    assert!(2 * steps >= rounds, "{steps} steps in {rounds} rounds: {seen:?}");
    drop(second);
}
