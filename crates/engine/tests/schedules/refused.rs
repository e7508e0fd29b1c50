//! Schedules that cannot be are refused, and change nothing.

use super::{grid, load, qwen3, slice, take};
use arclight_engine::{MatrixShape, Numa, Product, Schedule, Schedules};
use std::time::Duration;

#[test]
fn schedules_that_cannot_be_are_refused() {
    let mut engine = load(&qwen3(), (Numa::TensorParallel, 2, 20));
    let expected = take(&mut engine);
    let shapes = engine.matrix_shapes()[0].clone();
    let of =
        |product| shapes.iter().find(|used| used.shape.product == product).unwrap().shape.clone();
    let (plain, summed) = (of(Product::Plain), of(Product::Summed));
    let mut refuse = |rows: Vec<(MatrixShape, Vec<(usize, Schedule)>)>, says: &str| {
        let mut schedules = Schedules::default();
        rows.into_iter().for_each(|(shape, rows)| schedules.add(shape, rows));
        let error = engine.set_schedules(schedules).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
        assert_eq!(engine.plan().schedules, Schedules::default());
    };
    let one = |shape: &MatrixShape, schedule| vec![(shape.clone(), vec![(8, schedule)])];
    refuse(
        one(&plain, slice(0, 1)),
        "Q4_0 512 + Q4_0 256 + Q4_0 256 x 256, 10 threads for up to 8 tokens has an empty slice",
    );
    refuse(one(&plain, slice(1, 0)), "an empty slice");
    refuse(one(&plain, grid(0, 1)), "an empty grid");
    refuse(one(&plain, grid(1, 0)), "an empty grid");
    refuse(one(&plain, grid(1, 2)), "cuts the columns into 2, which only");
    refuse(one(&plain, grid(11, 1)), "11 parts of the tokens by 1 of the columns for 10 threads");
    refuse(one(&summed, grid(4, 3)), "4 parts of the tokens by 3 of the columns for 10 threads");
    refuse(one(&summed, grid(usize::MAX, 3)), "for 10 threads");
    refuse(one(&summed, grid(1, 5)), "cuts the columns into 5, but a node has only 4 segments");
    let rows = |a, b| vec![(plain.clone(), vec![(a, grid(1, 1)), (b, grid(2, 1))])];
    refuse(rows(8, 8), "for up to 8 tokens stands behind one for up to 8");
    refuse(rows(0, 8), "for up to 0 tokens stands behind one for up to 0");
    let twice = [one(&plain, grid(2, 1)), one(&plain, grid(3, 1))].concat();
    refuse(twice, "is the second of its shape");
    // Shapes of other models and teams do no harm.
    let mut schedules = Schedules::default();
    schedules.add(MatrixShape { threads: 40, ..plain.clone() }, vec![(1, grid(40, 1))]);
    engine.set_schedules(schedules).unwrap();
    assert!(take(&mut engine) == expected);

    let mut time = |shape: &MatrixShape, tokens, schedule| {
        let most = Duration::ZERO;
        let error = engine.time_matrices(shape, 0, tokens, &schedule, most);
        error.unwrap_err().to_string()
    };
    let none = MatrixShape { cols: 17, ..plain.clone() };
    let usual = Schedule::default();
    assert!(time(&none, 1, usual).contains("no matrix of the model is Q4_0 512"));
    assert!(time(&plain, 0, usual).contains("no tokens"));
    assert!(time(&plain, 513, usual).contains("a step of 513 tokens exceeds the limit of 512"));
    assert!(time(&summed, 1, grid(1, 5)).contains("only 4 segments"));
    assert!(time(&plain, 1, grid(11, 1)).contains("11 parts of the tokens"));
    let head = shapes.iter().find(|used| used.name == "vocab").unwrap();
    assert!(time(&head.shape, 9, usual).contains("a step of 9 outputs exceeds the limit of 8"));
}
