//! The search against machines of which the best configuration is known: planted, or by brute force.

mod common;

use arclight_tune as tune;
use common::{Planted, by_node, everything, never_stop, on_nodes, sets, tree};
use std::collections::BTreeSet;
use topology::CpuId;
use topology::topotree::{Configuration, TopoTree};
use tune::tuner::{Scheme, StepKind, Trace, Tuner};

const TWO_BY_16: &str = "numa:2 core:16";

fn tuner<'a>(tree: &'a TopoTree, default: &'a Scheme, kinds: &'a [StepKind]) -> Tuner<'a> {
    Tuner {
        tree,
        default,
        kinds,
        permit: &|configuration| on_nodes(configuration),
        families: 3,
        finalists: 2,
        repetitions: 5,
    }
}

/// Chats, eight at a time: 1, 2, 4 … 512 tokens in a step.
fn chats() -> Vec<StepKind> {
    let kinds = Trace::chat(64).steps(8, 512);
    assert_eq!(kinds.len(), 10);
    kinds
}

/// The planted optimum, and what it takes to find it: `docs/tuning.md` has the table of this test.
#[test]
fn the_planted_optimum_is_found_in_a_tenth_of_the_evaluations() {
    let (tree, default, kinds) = (tree(TWO_BY_16), by_node(TWO_BY_16), chats());
    let all = everything(&tree);
    for (size, stride, cap) in
        [(4, 1, 2), (4, 1, 3), (4, 1, 1), (4, 2, 2), (4, 4, 2), (4, 4, 3), (2, 8, 1), (8, 2, 4)]
    {
        let mut machine = Planted::new(&tree, size, stride, cap);
        let found = tuner(&tree, &default, &kinds).run(&mut machine, &mut never_stop).unwrap();
        assert!(found.complete);
        assert_eq!((found.evaluations, found.loads), (machine.calls, machine.loads));

        // So many CPUs of each cluster decode, and all of them take a prompt.
        let decode: BTreeSet<CpuId> =
            found.scheme.cpus(found.table.level(8)).flatten().copied().collect();
        for cluster in &machine.clusters {
            let used = cluster.iter().filter(|cpu| decode.contains(cpu)).count();
            assert_eq!(used, cap, "{size} {stride} {cap}: {cluster:?} of {decode:?}");
        }
        assert_eq!(found.table.level(512).threads(), 32);

        // Nothing that an exhaustive search would look at is faster.
        for tokens in [8, 512] {
            let least = all.iter().map(|c| machine.of(c, tokens)).fold(f64::INFINITY, f64::min);
            let ratio = machine.step(&found, tokens) / least;
            // Sums of the same numbers in another order differ in the last bits.
            assert!(ratio < 1.0 + 1e-9, "{size} {stride} {cap}, {tokens} tokens: {ratio}");
        }
        let exhaustive = all.len() * kinds.len();
        println!(
            "| {cap} of {size}, stride {stride} | {} | {exhaustive} | {} | {} |",
            all.len(),
            found.evaluations,
            found.loads
        );
        assert!(
            found.evaluations * 10 <= exhaustive,
            "{size} {stride} {cap}: {} of {exhaustive}",
            found.evaluations
        );
    }
}

#[test]
fn with_noise_it_ends_within_the_noise_of_the_optimum() {
    let (tree, default, kinds) = (tree(TWO_BY_16), by_node(TWO_BY_16), chats());
    for (size, stride, cap) in [(4, 1, 2), (4, 4, 2), (4, 2, 3)] {
        let mut exact = Planted::new(&tree, size, stride, cap);
        let best = tuner(&tree, &default, &kinds).run(&mut exact, &mut never_stop).unwrap();
        let best = exact.serves(&best, &kinds);
        for random in 1..=8 {
            let mut machine =
                Planted { noise: 0.03, random, ..Planted::new(&tree, size, stride, cap) };
            let found = tuner(&tree, &default, &kinds).run(&mut machine, &mut never_stop).unwrap();
            let ratio = machine.serves(&found, &kinds) / best;
            assert!(ratio < 1.03, "{size} {stride} {cap}, seed {random}: {ratio}");
        }
    }
}

/// The best there is for two kinds of steps: every pair of configurations of which one can be a level
/// of the other.
fn brute_force(machine: &Planted, all: &[Configuration], kinds: &[StepKind]) -> f64 {
    let cost = |c: &Configuration, kind: &StepKind| kind.weight * machine.of(c, kind.tokens);
    let layouts: Vec<_> = all.iter().map(|c| c.layout().unwrap().groups).collect();
    let nested = |few: usize, many: usize| {
        let same = layouts[few].len() == layouts[many].len();
        let (few_sets, many_sets) = (sets(&layouts[few]), sets(&layouts[many]));
        let inside = |set: &BTreeSet<CpuId>| many_sets.iter().filter(|m| set.is_subset(m)).count();
        same && few_sets.iter().all(|set| inside(set) == 1)
            && many_sets.iter().all(|m| few_sets.iter().any(|set| set.is_subset(m)))
    };
    let mut best = f64::INFINITY;
    for (many, prompt) in all.iter().enumerate() {
        for (few, decode) in all.iter().enumerate().filter(|&(few, _)| nested(few, many)) {
            assert_eq!(layouts[few].len(), layouts[many].len());
            best = best.min(cost(decode, &kinds[0]) + cost(prompt, &kinds[1]));
        }
    }
    best
}

#[test]
fn brute_force_finds_nothing_better_on_small_machines() {
    for (synthetic, size, stride, cap) in [
        ("numa:1 core:4", 2, 1, 1),
        ("numa:1 core:8", 4, 1, 2),
        ("numa:1 core:8", 4, 2, 3),
        ("numa:1 core:8", 2, 4, 1),
        ("numa:1 core:6", 3, 2, 2),
        ("numa:2 core:4", 2, 2, 1),
        ("numa:2 core:4", 2, 1, 1),
        ("numa:2 l3:2 core:2", 2, 1, 1),
        ("numa:1 core:4 pu:2", 2, 1, 1),
        ("numa:2 core:2 pu:2", 2, 1, 1),
    ] {
        let (tree, default) = (tree(synthetic), by_node(synthetic));
        let all = everything(&tree);
        for weight in [1.0, 20.0, 500.0] {
            let kinds = [(1, weight), (512, 1.0)].map(|(tokens, weight)| StepKind {
                tokens,
                depth: 0,
                weight,
            });
            let mut machine = Planted::new(&tree, size, stride, cap);
            let best = brute_force(&machine, &all, &kinds);
            let found = tuner(&tree, &default, &kinds).run(&mut machine, &mut never_stop).unwrap();
            let ratio = machine.serves(&found, &kinds) / best;
            // Sums of the same numbers in another order differ in the last bits.
            assert!(
                (1.0 - 1e-9..1.0 + 1e-9).contains(&ratio),
                "{synthetic} {size} {stride} {cap}, weight {weight}: {ratio}"
            );
        }
    }
}
