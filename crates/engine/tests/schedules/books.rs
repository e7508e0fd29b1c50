//! What is counted and recorded follows the schedules.

use super::{STEPS, everywhere, grid, load, qwen3, slice, take};
use arclight_engine::{BatchEntry, Numa, Outputs, Product, Schedule, Schedules};

#[test]
fn the_books_know_what_parts_of_columns_exchange() {
    // What a step of so many tokens exchanges beyond that of as many tokens without schedules.
    let exchanged = |tokens: usize, rows: Vec<(usize, Schedule)>| {
        let mut engine = load(&qwen3(), (Numa::TensorParallel, 2, 4));
        let mut schedules = Schedules::default();
        for used in engine.matrix_shapes()[0].clone() {
            if used.shape.product == Product::Summed {
                schedules.add(used.shape, rows.clone());
            }
        }
        engine.set_schedules(schedules).unwrap();
        let sequence = engine.new_sequence().unwrap();
        let tokens = &[7; 8][..tokens];
        engine.step(&[BatchEntry { sequence, tokens, outputs: Outputs::None }]).unwrap();
        let places = engine.activity().counts.places;
        (places.iter().map(|p| p.exchanged).collect::<Vec<_>>(), places[0].weights)
    };
    // A node has four of eight segments: one root, or two. Each goes to the other node, for the output
    // and the down projection of three layers: a row of 256 f32.
    let more = 3 * 2 * 256 * 4;
    let rows = vec![(1, grid(1, 2)), (2, grid(2, 1)), (4, grid(1, 2))];
    for (tokens, cut) in [(1, true), (2, false), (3, true), (4, true), (5, false)] {
        let ((one, weights), (two, same)) =
            (exchanged(tokens, Vec::new()), exchanged(tokens, rows.clone()));
        assert_eq!(weights, same, "the node's weights, however threads share them");
        let got: Vec<u64> = one.iter().zip(&two).map(|(one, two)| two - one).collect();
        let want = if cut { more * tokens as u64 } else { 0 };
        assert_eq!(got, [want; 2], "{tokens} tokens");
    }
}

#[test]
fn a_profile_tells_each_threads_part() {
    let mut engine = load(&qwen3(), (Numa::TensorParallel, 1, 5));
    let mut record = |schedule| {
        let schedules = everywhere(&mut engine, schedule, |_| true);
        engine.set_schedules(schedules).unwrap();
        engine.begin_profile(1 << 16).unwrap();
        take(&mut engine);
        let profile = engine.end_profile().unwrap();
        let mut threads = [(0, 0); 5];
        for (thread, (bytes, macs)) in threads.iter_mut().enumerate() {
            for event in profile.events(thread).filter(|e| STEPS[e.step].iter().sum::<usize>() > 8)
            {
                let graph::profile::What::Operator { name: "down" | "gate_up", demand, .. } =
                    event.what
                else {
                    continue;
                };
                *bytes += demand.bytes;
                *macs += demand.all_macs();
            }
        }
        threads
    };
    let sum = |threads: [(u64, u64); 5]| {
        threads.iter().fold((0, 0), |(b, m), (bytes, macs)| (b + bytes, m + macs))
    };
    let (bytes, macs) = sum(record(Schedule::default()));
    assert!(macs > 0);
    // Each product is computed once, whoever does it; weights are read once for each part of the tokens.
    let two = record(grid(2, 1));
    assert_eq!(sum(two), (2 * bytes, macs));
    assert_eq!(two[4], (0, 0), "left over");
    assert_eq!(sum(record(grid(5, 1))), (5 * bytes, macs));
    assert_eq!(sum(record(grid(1, 2))), (bytes, macs));
    assert_eq!(sum(record(slice(1, 1))), (bytes, macs));
}
