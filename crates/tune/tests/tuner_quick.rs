//! The quick search: each question against a machine on which its answer is known.

mod common;

use arclight_tune as tune;
use common::{Planted, by_node, tree};
use tune::tuner::{Candidate, Choice, Measure, Outcome, Quick, Start, StepKind};

const KINDS: [StepKind; 2] = [
    StepKind { tokens: 1, depth: 100, weight: 100.0 },
    StepKind { tokens: 512, depth: 0, weight: 1.0 },
];

fn start(synthetic: &str) -> Start {
    let scheme = by_node(synthetic);
    Start { level: scheme.all(), scheme }
}

fn quick<'a>(default: &'a Start, others: &'a [Start], choices: &'a [Choice]) -> Quick<'a> {
    Quick { default, others, decode: KINDS[0], prompt: KINDS[1], choices }
}

/// Seconds by threads of the first group, tokens, groups and choices.
struct Known<F>(F);

impl<F: FnMut(usize, u32, usize, &[(String, String)]) -> f64> Measure for Known<F> {
    fn seconds(&mut self, candidate: &Candidate<'_>, kind: &StepKind) -> Option<f64> {
        let threads = candidate.level.cpus();
        Some(self.0(threads[0], kind.tokens, threads.len(), candidate.choices))
    }

    fn load_seconds(&self) -> f64 {
        10.0
    }
}

fn threads(outcome: &Outcome) -> [usize; 2] {
    KINDS.map(|kind| outcome.table.level(kind.tokens).cpus()[0])
}

#[test]
fn decoding_gets_the_cores_that_read_all_there_is() {
    // The clusters show, so a prefix of a group's list takes from each in turn.
    let synthetic = "numa:2 l3:4 core:4";
    let (tree, default) = (tree(synthetic), start(synthetic));
    for cap in 1..=3 {
        let mut machine = Planted::new(&tree, 4, 1, cap);
        let found = quick(&default, &[], &[]).run(&mut machine, &mut |_| 1e9).unwrap();
        assert!(found.complete);
        assert_eq!(threads(&found), [4 * cap, 16], "{cap}");
        assert_eq!((found.loads, found.evaluations), (1, machine.calls));
        // Five of each twice, at most nine to find it, five of two levels to prove it, one core free.
        assert!(found.evaluations <= 10 + 9 + 10 + 10, "{}", found.evaluations);
    }
}

#[test]
fn halving_and_bisection_find_any_number_of_threads() {
    let default = start("numa:1 core:48");
    for best in 1..=48usize {
        let away = |n: usize| 1.0 + n.abs_diff(best) as f64;
        let mut machine =
            Known(|n, tokens, _, _: &[_]| if tokens == 1 { away(n) } else { 99.0 / n as f64 });
        let found = quick(&default, &[], &[]).run(&mut machine, &mut |_| 1e9).unwrap();
        assert_eq!(threads(&found), [best, 48]);
        // Five of each twice, at most eleven to find it (a count of the algorithm over all 48), five of
        // two levels to prove it, and as many for a core left free.
        assert!(found.evaluations <= 10 + 11 + 10 + 10, "{best}: {}", found.evaluations);
    }
}

#[test]
fn a_core_is_left_free_where_somebody_else_needs_it() {
    let default = start("numa:2 core:8");
    let mut machine = Known(|n, _, _, _: &[_]| if n == 8 { 3.0 } else { 8.0 / n as f64 });
    let found = quick(&default, &[], &[]).run(&mut machine, &mut |_| 1e9).unwrap();
    assert_eq!(threads(&found), [7, 7]);
    assert_eq!(found.scheme.groups()[0].cpus.len(), 7);
}

#[test]
fn second_hardware_threads_are_used_where_they_help() {
    let scheme = by_node("numa:1 core:16");
    let default = Start { level: scheme.level(vec![8]).unwrap(), scheme };
    let mut machine = Known(|n, tokens, _, _: &[_]| match (tokens, n) {
        (512, 16) => 0.8,
        (1, 16) => 1.5,
        _ => 8.0 / n as f64,
    });
    let found = quick(&default, &[], &[]).run(&mut machine, &mut |_| 1e9).unwrap();
    assert_eq!(threads(&found), [8, 16]);
}

#[test]
fn settings_and_groups_are_tried_one_after_the_other() {
    let (default, others) = (start("numa:1 core:4"), [start("numa:4 core:4")]);
    let choices = [("pages", ["huge", "small"]), ("ahead", ["0", "8"])].map(|(name, options)| {
        Choice { name: name.into(), options: options.map(String::from).to_vec() }
    });
    let time = |groups_help: bool| {
        move |n: usize, _: u32, groups: usize, choices: &[(String, String)]| {
            let worse = if choices[0].1 == "small" { 1.5 } else { 1.0 };
            let better = if choices[1].1 == "8" { 0.7 } else { 1.0 };
            let grouped = if groups > 1 && groups_help { 0.5 } else { 1.0 };
            worse * better * grouped * (4.0 / n as f64)
        }
    };
    for helps in [false, true] {
        let mut machine = Known(time(helps));
        let found = quick(&default, &others, &choices).run(&mut machine, &mut |_| 1e9).unwrap();
        let values: Vec<&str> = found.choices.iter().map(|(_, value)| value.as_str()).collect();
        assert_eq!(values, ["huge", "8"]);
        assert_eq!(found.scheme.groups().len(), if helps { 4 } else { 1 });
        assert_eq!((found.complete, found.loads), (true, 2));
        let gain = found.measured[0].after / found.measured[0].before;
        let true_gain = if helps { 1.0 / 0.35 } else { 1.0 / 0.7 };
        // Quotients of a few products.
        assert!((gain / true_gain - 1.0).abs() < 1e-9, "{gain}");
    }
}

#[test]
fn time_that_is_short_goes_into_the_first_questions() {
    let (default, others) = (start("numa:1 core:16"), [start("numa:4 core:4")]);
    let best_at_4 = |n: usize, tokens, groups: usize, _: &[_]| match (groups, tokens) {
        (1, 1) => 1.0 + n.abs_diff(4) as f64,
        (1, _) => 16.0 / n as f64,
        _ => 0.01,
    };
    let run = |seconds: f64| {
        let mut machine = Known(best_at_4);
        let left = |p: &tune::tuner::TuneProgress| seconds - p.evaluations as f64;
        quick(&default, &others, &[]).run(&mut machine, &mut { left }).unwrap()
    };
    // Ten steps of the default; then nothing more was known to fit.
    let none = run(12.0);
    assert_eq!((threads(&none), none.complete, none.evaluations), ([16, 16], false, 10));
    // Threads of decoding are found; loading takes ten more than there is.
    let some = run(50.0);
    assert_eq!((threads(&some), some.complete, some.loads), ([4, 16], false, 1));
    let all = run(90.0);
    assert_eq!((all.scheme.groups().len(), all.complete), (4, true));
    // Stopped amid the first.
    let nothing = run(3.0);
    assert_eq!((nothing.evaluations, nothing.complete), (3, false));
    assert!(nothing.measured.is_empty());
}

#[test]
fn what_cannot_be_asked_is_refused() {
    let default = start("numa:1 core:4");
    let mut machine = Known(|_, _, _, _: &[_]| f64::NAN);
    let error = quick(&default, &[], &[]).run(&mut machine, &mut |_| 1e9).unwrap_err();
    assert_eq!(error, tune::Error::NotMeasured { tokens: 1 });
    let none = [Choice { name: "pages".into(), options: vec![] }];
    let error = quick(&default, &[], &none).run(&mut machine, &mut |_| 1e9).unwrap_err();
    assert!(error.to_string().contains("\"pages\" has no options"), "{error}");
    let turned = Quick { decode: KINDS[1], prompt: KINDS[0], ..quick(&default, &[], &[]) };
    assert_eq!(turned.run(&mut machine, &mut |_| 1e9), Err(tune::Error::BadKinds));
}
