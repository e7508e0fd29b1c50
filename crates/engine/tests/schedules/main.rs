//! Schedules say how products are shared and cut; they change no bits and no state.

mod bits;
mod books;
mod carried;
mod kernel;
mod refused;
mod timing;

use arclight_engine::{
    BatchEntry, Engine, Grid, LoadOptions, ModelFile, Numa, Outputs, Phase, Product, Schedule,
    Schedules, SeqId, Slice,
};
use gguf::TensorType;
use graph::SplitBy;
use testkit::TinyModel;

/// Prompts, batches of tokens, and both together: rows that are worked on privately, and more.
const STEPS: [&[usize]; 7] = [&[40], &[1], &[1, 8], &[3, 2, 3], &[70, 1, 1], &[1, 1, 1], &[5]];

/// Every way to share a model, with teams of one to six threads.
const MODES: [(Numa, usize, usize); 9] = [
    (Numa::TensorParallel, 1, 1),
    (Numa::TensorParallel, 1, 2),
    (Numa::TensorParallel, 1, 5),
    (Numa::TensorParallel, 2, 4),
    (Numa::TensorParallel, 2, 5),
    (Numa::TensorParallel, 3, 9),
    (Numa::Mirror, 2, 6),
    (Numa::Pipeline, 2, 4),
    (Numa::Interleave, 2, 3),
];

/// Three layers, in which no two matrices have one shape.
fn qwen3() -> TinyModel {
    TinyModel { layers: 3, ffn: 1536, ..TinyModel::qwen3(TensorType::Q4_0) }
}

fn load(model: &TinyModel, (numa, nodes, threads): (Numa, usize, usize)) -> Engine {
    load_in(model, (numa, nodes, threads), Vec::new())
}

fn load_in(
    model: &TinyModel,
    (numa, nodes, threads): (Numa, usize, usize),
    phases: Vec<Phase>,
) -> Engine {
    let file = ModelFile::from_bytes("tiny", model.gguf());
    let options = LoadOptions {
        numa,
        nodes: Some(nodes),
        threads: Some(threads),
        sequences: Some(3),
        step_outputs: Some(8),
        no_pin: true,
        stats: true,
        phases,
        ..LoadOptions::default()
    };
    Engine::load(&file, &options, &mut |_| {}).unwrap()
}

/// Takes all steps; the bits of their logits.
fn take(engine: &mut Engine) -> Vec<u32> {
    let sequences: Vec<SeqId> = (0..3).map(|_| engine.new_sequence().unwrap()).collect();
    let mut bits = Vec::new();
    for (at, step) in STEPS.iter().enumerate() {
        let tokens: Vec<u32> = (0..70).map(|i| (i * 31 + 7 * at as u32) % 300).collect();
        let entry = |(&len, &sequence)| BatchEntry {
            sequence,
            tokens: &tokens[..len],
            outputs: Outputs::Last,
        };
        let batch: Vec<BatchEntry<'_>> = step.iter().zip(&sequences).map(entry).collect();
        let logits = engine.step(&batch).unwrap();
        bits.extend((0..logits.len()).flat_map(|i| logits.row(i)).map(|x| x.to_bits()));
    }
    for sequence in sequences {
        engine.free(sequence).unwrap();
    }
    bits
}

/// The fewest segments that columns which nodes share have on a node.
fn segments(engine: &mut Engine) -> usize {
    let graph = engine.graph();
    let summed = graph.matrices().iter().filter(|m| m.split == SplitBy::Cols);
    let each = summed.flat_map(|m| (0..graph.nodes()).map(|node| m.segments(0, node).len()));
    each.filter(|&segments| segments > 0).min().unwrap()
}

/// `schedule` for all shapes, as far as they can have it; `which` tells by the shape's index.
fn everywhere(engine: &mut Engine, schedule: Schedule, which: impl Fn(usize) -> bool) -> Schedules {
    let mut schedules = Schedules::default();
    let segments = segments(engine);
    let shapes = engine.matrix_shapes().into_iter().flatten().enumerate();
    let mut seen = Vec::new();
    for (at, used) in shapes {
        let shape = used.shape;
        if !which(at) || seen.contains(&shape) {
            continue;
        }
        seen.push(shape.clone());
        let most = if shape.product == Product::Summed { segments.min(shape.threads) } else { 1 };
        let splits = schedule.grid.splits.min(most);
        let tokens = schedule.grid.tokens.min(shape.threads / splits);
        let schedule = Schedule { grid: Grid { tokens, splits }, ..schedule };
        schedules.add(shape, vec![(4096, schedule)]);
    }
    schedules
}

fn slice(tiles: usize, tokens: usize) -> Schedule {
    Schedule { slice: Some(Slice { tiles, tokens }), ..Schedule::default() }
}

fn grid(tokens: usize, splits: usize) -> Schedule {
    Schedule { grid: Grid { tokens, splits }, ..Schedule::default() }
}
