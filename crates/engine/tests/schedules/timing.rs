//! What a search asks: which shapes there are, and how long their products take.

use super::{grid, load, qwen3, slice};
use arclight_engine::{BatchEntry, Engine, Numa, Outputs, Product, Schedule};
use gguf::TensorType;
use std::time::Duration;

#[test]
fn products_are_timed_beside_running_sequences() {
    for mode in [
        (Numa::TensorParallel, 1, 2),
        (Numa::TensorParallel, 2, 4),
        (Numa::Pipeline, 2, 4),
        (Numa::Mirror, 2, 4),
    ] {
        let run = |timed: bool| {
            let mut engine = load(&qwen3(), mode);
            let sequence = engine.new_sequence().unwrap();
            let tokens: Vec<u32> = (0..40).collect();
            let mut bits = Vec::new();
            for tokens in [&tokens[..], &[7], &[8], &[9, 10, 11]] {
                let entry = BatchEntry { sequence, tokens, outputs: Outputs::Last };
                let logits = engine.step(&[entry]).unwrap();
                bits.extend(logits.row(0).iter().map(|x| x.to_bits()));
                let activity = engine.activity();
                assert!(activity.waits_as_compiled(), "{mode:?}, {activity:?}");
                if timed {
                    time_all(&mut engine);
                }
            }
            bits
        };
        assert!(run(true) == run(false), "{mode:?}");
    }
}

/// Times all shapes, for few tokens and many, in several ways.
fn time_all(engine: &mut Engine) {
    let shapes = engine.matrix_shapes()[0].clone();
    let before = engine.plan().clone();
    for used in shapes {
        assert!(used.matrices > 0, "{used:?}");
        let summed = used.shape.product == Product::Summed;
        for schedule in [Schedule::default(), slice(1, 2), grid(2, 1), grid(1, 2)] {
            for tokens in [1, 8] {
                let splits = schedule.grid.splits;
                let most = Duration::ZERO;
                let timed = engine.time_matrices(&used.shape, 0, tokens, &schedule, most);
                match summed || splits == 1 {
                    true => assert!(timed.unwrap() > 0.0, "{used:?}"),
                    false => assert!(timed.unwrap_err().to_string().contains("columns")),
                }
            }
        }
    }
    assert_eq!(*engine.plan(), before);
}

#[test]
fn what_is_timed_is_the_whole_product() {
    for mode in [(Numa::TensorParallel, 1, 3), (Numa::TensorParallel, 2, 6)] {
        let mut engine = load(&qwen3(), mode);
        let sequence = engine.new_sequence().unwrap();
        let entry = BatchEntry { sequence, tokens: &[7; 4], outputs: Outputs::All };
        engine.step(&[entry]).unwrap();
        let bits = |engine: &Engine| {
            let logits = engine.logits();
            (0..4).flat_map(|i| logits.row(i)).map(|x| x.to_bits()).collect::<Vec<_>>()
        };
        let shapes = engine.matrix_shapes().swap_remove(0);
        // The matrix that makes logits, whose products can be seen: made-up activations, alike in all rows.
        let heads = shapes.iter().filter(|used| used.matrices == 1);
        let mut all = vec![bits(&engine)];
        for schedule in [Schedule::default(), slice(3, 1), grid(2, 1), grid(3, 1)] {
            for used in heads.clone() {
                let most = Duration::ZERO;
                engine.time_matrices(&used.shape, 0, 4, &schedule, most).unwrap();
            }
            let got = bits(&engine);
            assert!(got.chunks(300).all(|row| row == &got[..300]), "{mode:?}, {schedule:?}");
            all.push(got);
        }
        assert!(all[2..].iter().all(|got| *got == all[1]), "{mode:?}");
        assert!(all[1] != all[0] && all[1].iter().all(|&x| f32::from_bits(x).is_normal()));
    }
}

#[test]
fn shapes_are_those_of_the_model() {
    let engine = load(&qwen3(), (Numa::TensorParallel, 2, 4));
    let levels = engine.matrix_shapes();
    let [all] = levels.as_slice() else { panic!("one level") };
    let names: Vec<(&str, usize)> = all.iter().map(|u| (u.name.as_str(), u.matrices)).collect();
    // The vocabulary of 300 is 160 rows on one node and 140 on the other.
    let layers = [("qkv", 3), ("attn_output", 3), ("gate_up", 3), ("down", 3)];
    assert_eq!(names, [&layers[..], &[("vocab", 1), ("vocab", 1)]].concat());
    let qkv = &all[0].shape;
    let half = |rows| (TensorType::Q4_0, rows);
    assert_eq!(qkv.parts, [half(512), half(256), half(256)]);
    assert_eq!((qkv.cols, qkv.product, qkv.threads), (256, Product::Plain, 2));
    assert_eq!(qkv.to_string(), "Q4_0 512 + Q4_0 256 + Q4_0 256 x 256, 2 threads");
}
