//! Trees of machines: what they look like, what the transformations make of them, when they are
//! equal, and that the search finds what looking at everything finds.

use arclight_topology::fake::FakeMachine;
use arclight_topology::topotree::{
    Configuration, LevelKind, LineTimes, SEPARATED, Search, TopoTree, groupings,
};
use arclight_topology::{CpuId, Error, Machine, NodeId};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

fn tree(synthetic: &str) -> TopoTree {
    TopoTree::of(&Machine::from_synthetic(synthetic).unwrap())
}

/// The paper's machine: four Kunpeng 920, of whose clusters nothing is known.
fn kunpeng() -> TopoTree {
    tree("pack:4 numa:2 core:24")
}

fn ids(cpus: &[CpuId]) -> Vec<u32> {
    cpus.iter().map(|cpu| cpu.0).collect()
}

fn groups(configuration: &Configuration) -> Vec<Vec<u32>> {
    configuration.groups().iter().map(|part| ids(&part.cpus)).collect()
}

#[test]
fn levels_are_what_cpus_share() {
    assert_eq!(kunpeng().to_string(), "machine ×1, package ×4, node ×2, core ×24");
    let epyc = FakeMachine::uniform(2, 16).smt(2).cores_per_l3(4).machine().unwrap();
    let epyc = TopoTree::of(&epyc);
    // A package is a node here, and an L2 a core.
    assert_eq!(epyc.to_string(), "machine ×1, node ×2, l3 ×4, core ×4, pu ×2");
    assert_eq!(epyc.levels()[1], [LevelKind::Package, LevelKind::Node, LevelKind::Die]);
    assert_eq!(epyc.levels()[3], [LevelKind::L2, LevelKind::Core]);
    assert_eq!(epyc.depth_of(LevelKind::L3), Some(2));
    assert_eq!(epyc.depth_of(LevelKind::Group), None);
    // The second hardware threads are numbered after all the first.
    assert_eq!(ids(&epyc.parts(2)[1]), [4, 36, 5, 37, 6, 38, 7, 39]);
    // With nodes within an L3, as of a socket in sub-NUMA clusters, the L3 is the outer level.
    let clustered = tree("pack:2 l3:1 numa:2 core:4");
    assert_eq!(clustered.to_string(), "machine ×1, l3 ×2, node ×2, core ×4");
    assert_eq!(tree("core:1").to_string(), "machine ×1");
}

#[test]
fn uneven_machines_have_trees_and_can_be_evened_out() {
    let machine = FakeMachine::uniform(2, 8).cores_per_l3(4).affinity("0-2,4-7,8-15").machine();
    let tree = TopoTree::of(&machine.unwrap());
    assert_eq!(tree.to_string(), "machine ×1, node ×2, l3 ×2, core ×3–4");
    for result in [tree.remove(1, 2), tree.group(2, 1, 1)] {
        let error = result.unwrap_err().to_string();
        assert!(error.contains("a l3 has from 3 to 4 parts"), "{error}");
    }
    let even = tree.evened();
    assert_eq!(even.arities().unwrap(), [2, 2, 3]);
    assert_eq!(ids(&even.cpus()), [0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14]);
    // CPUs without memory work on the nearest node that has some.
    let machine = FakeMachine::empty().node(0, 2, 64).node(1, 2, 0).machine().unwrap();
    assert_eq!(TopoTree::of(&machine).cross_section(0).groups()[0].nodes, [NodeId(0)]);
}

/// The configurations that section 4.3 of the paper names: three of four cores of every cluster,
/// cut at the nodes and at the clusters. (It writes that 48 groups on 8 nodes are 8 on each, and
/// that 144 cores over 8 groups are 16 in each: they are 6 and 18.)
#[test]
fn the_papers_example() {
    let grouped = kunpeng().group(4, 1, 3).unwrap();
    assert_eq!(grouped.to_string(), "machine ×1, package ×4, node ×2, group ×6, core ×4");
    let left = grouped.remove(1, 3).unwrap();
    assert_eq!(left.to_string(), "machine ×1, package ×4, node ×2, group ×6, core ×3");
    assert_eq!(left.cpus().len(), 144);

    let by_node = left.cross_section(left.depth_of(LevelKind::Node).unwrap());
    assert_eq!(by_node.groups().len(), 8);
    let nodes: Vec<u32> = by_node.groups().iter().map(|part| part.nodes[0].0).collect();
    assert_eq!(nodes, [0, 1, 2, 3, 4, 5, 6, 7]);
    let first = [0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, 16, 17, 18, 20, 21, 22];
    assert_eq!(ids(&by_node.groups()[0].cpus), first);
    assert!(by_node.groups().iter().all(|part| part.cpus.len() == 18));

    let by_cluster = left.cross_section(left.depth_of(LevelKind::Group).unwrap());
    assert_eq!(by_cluster.groups().len(), 48);
    let mut per_node: BTreeMap<u32, usize> = BTreeMap::new();
    for (i, part) in by_cluster.groups().iter().enumerate() {
        assert_eq!(ids(&part.cpus), [0, 1, 2].map(|core| core + 4 * i as u32));
        *per_node.entry(part.nodes[0].0).or_default() += 1;
    }
    assert_eq!(per_node, (0..8).map(|node| (node, 6)).collect());

    // Whole clusters can be left idle too, and a thread pool takes what comes of it.
    let fewer = left.remove(2, 2).unwrap();
    assert_eq!(fewer.cpus().len(), 96);
    let layout = fewer.cross_section(2).layout().unwrap();
    assert_eq!((layout.groups.len(), layout.threads()), (8, 96));
    assert_eq!(layout.groups[7].node, Some(NodeId(7)));
    // Packages hold two nodes each, which no group of a pool does.
    assert_eq!(left.cross_section(1).groups()[3].nodes, [NodeId(6), NodeId(7)]);
    assert_eq!(left.cross_section(1).layout(), None);
}

#[test]
fn groups_are_equally_spaced() {
    let eight = tree("numa:1 core:8");
    let members = |n, stride| groups(&eight.group(n, stride, 1).unwrap().cross_section(1));
    assert_eq!(members(2, 1), [[0, 1], [2, 3], [4, 5], [6, 7]]);
    assert_eq!(members(2, 2), [[0, 2], [1, 3], [4, 6], [5, 7]]);
    assert_eq!(members(4, 2), [[0, 2, 4, 6], [1, 3, 5, 7]]);
    for (n, stride) in [(1, 1), (8, 1), (3, 1), (2, 3), (2, 8), (2, 0), (0, 1), (usize::MAX, 2)] {
        let error = eight.group(n, stride, 1).unwrap_err();
        assert!(matches!(error, Error::CannotGroup { children: 8, .. }), "{n} {stride}: {error}");
    }
    assert!(matches!(eight.group(2, 1, 0).unwrap_err(), Error::NoLevel { first: 1, last: 1, .. }));
    assert!(matches!(eight.group(2, 1, 2).unwrap_err(), Error::NoLevel { .. }));
    assert!(matches!(eight.remove(1, 1).unwrap_err(), Error::NoLevel { .. }));
    assert!(matches!(eight.remove(8, 0).unwrap_err(), Error::CannotRemove { children: 8, .. }));
    assert_eq!(ids(&eight.remove(7, 0).unwrap().cpus()), [0]);
}

#[test]
fn the_space_is_as_large_as_counted() {
    let complexity = kunpeng().complexity().unwrap();
    // 4 packages, 2 nodes, 24 cores: 3 · 1 · 286.
    assert_eq!(complexity.groupings(), 858);
    assert_eq!((complexity.removals(), complexity.trees()), (192, 858 * 192));
    assert_eq!(complexity.transformations(), 192 * (3 + 1 + 23) / 2);
    assert!(complexity.transformations() < 192 * 192);
    let table = complexity.to_string();
    assert!(table.contains("node         8        24         286"), "{table}");
}

/// What a tree is whatever the order of children: the sets of CPUs on each level.
fn canonical(tree: &TopoTree) -> (Vec<Vec<LevelKind>>, Vec<BTreeSet<BTreeSet<u32>>>) {
    let parts = |depth| tree.parts(depth).into_iter().map(|cpus| ids(&cpus).into_iter().collect());
    (tree.levels().to_vec(), (0..=tree.height()).map(|depth| parts(depth).collect()).collect())
}

/// All trees by any transformations in any order, from a machine of one node.
fn reachable(cores: usize) -> Vec<TopoTree> {
    let mut all = vec![tree(&format!("core:{cores}"))];
    let mut at = 0;
    while at < all.len() {
        let arities = all[at].arities().unwrap();
        for depth in 1..=arities.len() {
            for n in 2..arities[depth - 1] {
                for stride in 1..arities[depth - 1] {
                    let Ok(new) = all[at].group(n, stride, depth) else { continue };
                    if all.iter().all(|old| canonical(old) != canonical(&new)) {
                        all.push(new);
                    }
                }
            }
        }
        at += 1;
    }
    all
}

#[test]
fn grouping_in_any_order_gives_as_many_trees_as_counted() {
    for cores in [1, 2, 4, 6, 8, 12, 16, 18] {
        assert_eq!(reachable(cores).len() as u128, groupings(cores), "{cores} cores");
    }
}

#[test]
fn equal_digests_are_equal_trees() {
    let mut trees = reachable(12);
    for whole in trees.clone() {
        for (depth, children) in whole.arities().unwrap().into_iter().enumerate() {
            trees.extend((1..children).map(|k| whole.remove(k, depth).unwrap()));
        }
    }
    // The same shapes on other CPUs, on other nodes, and under other names.
    trees.extend(
        [
            "numa:2 core:6",
            "pack:2 core:6",
            "numa:3 core:4",
            "numa:2(indexes=1,0) core:6",
            "core:12 pu:1",
            "core:6 pu:2",
            "core:6 pu:2(indexes=6*2:1*6)",
        ]
        .map(tree),
    );
    for a in &trees {
        for b in &trees {
            let homes = |tree: &TopoTree| {
                let cpus = tree.cross_section(tree.height());
                cpus.groups()
                    .iter()
                    .map(|g| (ids(&g.cpus), g.nodes.clone()))
                    .collect::<BTreeMap<_, _>>()
            };
            let equal = canonical(a) == canonical(b) && homes(a) == homes(b);
            assert_eq!(a.digest() == b.digest(), equal, "{a}\n{b}");
        }
    }
}

#[test]
fn digests_do_not_change() {
    // They may be in files.
    let digests = [kunpeng().digest(), kunpeng().cross_section(2).digest()];
    let expected = ["c82255bb12206f4a6e67922cacb77efa", "f2f7a3815f367d6933c3867aa98a0237"];
    assert_eq!(digests.map(|digest| digest.to_string()), expected);
}

proptest! {
    /// The same removals in another order are the same tree, and no others are.
    #[test]
    fn removals_commute(
        steps in prop::collection::vec(0usize..3, 0..6),
        order in prop::collection::vec(any::<prop::sample::Index>(), 6),
        other in prop::collection::vec(0usize..3, 0..6),
    ) {
        let apply = |steps: &[usize]| {
            let start = tree("numa:3 l3:4 core:5");
            steps.iter().try_fold(start, |tree, &depth| tree.remove(1, depth))
        };
        let mut shuffled = steps.clone();
        for (i, index) in order.iter().enumerate().take(steps.len()) {
            shuffled.swap(i, index.index(steps.len()));
        }
        let (one, two) = (apply(&steps), apply(&shuffled));
        prop_assert_eq!(one.is_ok(), two.is_ok());
        let Ok(one) = one else { return Ok(()) };
        prop_assert_eq!(&one, &two.unwrap());
        let count = |steps: &[usize], depth| steps.iter().filter(|&&d| d == depth).count();
        let same = (0..3).all(|depth| count(&steps, depth) == count(&other, depth));
        if let Ok(other) = apply(&other) {
            prop_assert_eq!(one.digest() == other.digest(), same);
        }
    }
}

/// Time of a step on a machine where CPUs of `clusters`, which nobody sees, are in each other's way
/// beyond `free` of them, and groups wait for each other.
fn planted(configuration: &Configuration, clusters: &[Vec<u32>], free: usize) -> f64 {
    let parts = configuration.groups();
    let used: BTreeSet<u32> = parts.iter().flat_map(|part| ids(&part.cpus)).collect();
    let crowd = clusters.iter().map(|c| c.iter().filter(|cpu| used.contains(cpu)).count());
    let over = crowd.map(|n| n.saturating_sub(free)).max().unwrap_or(0);
    let slowest = parts.iter().map(|part| part.cpus.len()).min().unwrap_or(1);
    let remote = if parts.iter().any(|part| part.nodes.len() > 1) { 2.0 } else { 1.0 };
    let work = 100.0 / (parts.len() * slowest) as f64 * (1.0 + 0.8 * over as f64);
    remote * (work + 0.003 * parts.len() as f64)
}

/// The least cost over everything the transformations reach, by no means but themselves.
fn brute_force(tree: &TopoTree, cost: &dyn Fn(&Configuration) -> f64) -> (f64, usize) {
    let mut best = f64::INFINITY;
    let mut seen = BTreeSet::new();
    let arities = tree.arities().unwrap();
    let mut grouped = vec![tree.clone()];
    for depth in 1..=arities.len() {
        for (n, stride) in (2..arities[depth - 1]).flat_map(|n| (1..=n * 8).map(move |s| (n, s))) {
            grouped.extend(tree.group(n, stride, depth));
        }
    }
    for tree in grouped {
        let arities = tree.arities().unwrap();
        let mut left = vec![tree];
        for (depth, &children) in arities.iter().enumerate() {
            left = left
                .iter()
                .flat_map(|tree| (0..children).map(move |k| tree.remove(k, depth).unwrap()))
                .collect();
        }
        for tree in left {
            for depth in 0..=tree.height() {
                let configuration = tree.cross_section(depth);
                seen.insert(configuration.digest());
                best = best.min(cost(&configuration));
            }
        }
    }
    (best, seen.len())
}

#[test]
fn the_search_finds_what_brute_force_finds() {
    for (machine, size, stride, free) in [
        ("numa:2 core:8", 4, 1, 2),
        ("numa:2 core:8", 2, 4, 1),
        ("numa:2 core:12", 4, 1, 3),
        ("numa:2 core:12", 3, 4, 2),
        ("pack:2 numa:2 core:8", 4, 2, 3),
        ("numa:2 l3:2 core:6", 3, 1, 1),
        ("numa:2 core:8 pu:2", 2, 1, 1),
    ] {
        let tree = tree(machine);
        let level = tree.height() - usize::from(machine.contains("pu:"));
        let clusters = tree.group(size, stride, level).unwrap().parts(level);
        let clusters: Vec<Vec<u32>> = clusters.iter().map(|cpus| ids(cpus)).collect();
        let cost = |c: &Configuration| planted(c, &clusters, free);
        let (best, all) = brute_force(&tree, &cost);

        let everything = Search { prune: false, ..Search::default() };
        let found = everything.run(&tree, |c| ControlFlow::Continue(cost(c))).unwrap();
        assert_eq!((found.best[0].1, found.counts.evaluated), (best, all), "{machine}");

        let mut asked = vec![];
        let pruned = Search::default();
        let found = pruned.run(&tree, |c| {
            asked.push(c.digest());
            ControlFlow::Continue(cost(c))
        });
        let found = found.unwrap();
        assert!(found.complete && found.counts.evaluated < all, "{machine}: {:?}", found.counts);
        assert_eq!(found.best[0].1, best, "{machine}: {:?}", found.best[0].0);
        assert!(found.best.is_sorted_by(|(_, a), (_, b)| a <= b));
        // Equal configurations are evaluated once.
        assert_eq!(asked.iter().collect::<BTreeSet<_>>().len(), asked.len());
        assert_eq!(found.counts.evaluated, asked.len());
    }
}

/// The table of `docs/topology.md`.
#[test]
fn a_tenth_of_the_space_is_enough() {
    for (machine, free, all, pruned) in [
        ("pack:4 numa:2 core:24", 3, 7094, 252),
        ("pack:2 numa:4 core:16", 2, 2092, 122),
        ("numa:2 core:64", 2, 4227, 175),
        ("numa:2 core:20 pu:2", 3, 1412, 138),
        ("numa:4 core:48", 3, 11_316, 306),
    ] {
        let tree = tree(machine);
        let level = tree.depth_of(LevelKind::Core).unwrap();
        let shared = tree.group(4, 1, level).unwrap().parts(level);
        let clusters: Vec<Vec<u32>> = shared.iter().map(|cpus| ids(cpus)).collect();
        let run = |prune| {
            let search = Search { prune, ..Search::default() };
            search.run(&tree, |c| ControlFlow::Continue(planted(c, &clusters, free))).unwrap()
        };
        let (exhaustive, found) = (run(false), run(true));
        assert_eq!(found.best[0], exhaustive.best[0], "{machine}");
        assert_eq!((exhaustive.counts.evaluated, found.counts.evaluated), (all, pruned));
        assert!(10 * pruned <= all, "{machine}");
    }
}

#[test]
fn what_does_not_help_has_no_descendants() {
    // Each CPU less costs: only the whole tree and its nearest descendants are looked at.
    let whole = tree("numa:4 core:16");
    let search = Search { latent_levels: 0, ..Search::default() };
    let cost = |c: &Configuration| 1.0 / c.threads() as f64;
    let found = search.run(&whole, |c| ControlFlow::Continue(cost(c))).unwrap();
    assert_eq!((found.counts.trees, found.counts.discarded), (3, 2));
    // No tie helps either.
    let found = search.run(&whole, |_| ControlFlow::Continue(1.0)).unwrap();
    assert_eq!((found.counts.trees, found.counts.discarded), (3, 2));
    // Each CPU less helps: all of them are.
    let found = search.run(&whole, |c| ControlFlow::Continue(c.threads() as f64)).unwrap();
    assert_eq!((found.counts.trees, found.counts.discarded), (64, 0));
    assert_eq!(found.best[0].0.threads(), 1);
}

#[test]
fn forbidden_configurations_are_not_evaluated_and_hide_nothing() {
    // Eight KV heads: three, five, six and seven groups are not asked for, but four are found
    // beyond them.
    let whole = tree("numa:8 core:2");
    let heads = |c: &Configuration| 8 % c.groups().len() == 0 && c.groups().len() > 1;
    let cost = |c: &Configuration| {
        assert_eq!(8 % c.groups().len(), 0);
        (c.groups().len() as f64 - 4.0).abs() + 1.0 / c.threads() as f64
    };
    let search = Search { latent_levels: 0, permit: &heads, ..Search::default() };
    let found = search.run(&whole, |c| ControlFlow::Continue(cost(c))).unwrap();
    assert_eq!((found.best[0].0.groups().len(), found.best[0].0.threads()), (4, 8));
    assert!(found.counts.forbidden > 0);
}

#[test]
fn a_family_that_goes_nowhere_is_given_up() {
    let whole = tree("numa:2 core:8");
    let all = Search { prune: false, latent_levels: 0, ..Search::default() };
    let patient = Search { patience: Some(3), ..all };
    let mut asked: BTreeMap<_, usize> = BTreeMap::new();
    // The first of each family is its best.
    let found = patient.run(&whole, |c| {
        *asked.entry(c.family()).or_default() += 1;
        ControlFlow::Continue(1.0)
    });
    let found = found.unwrap();
    assert!(asked.values().all(|&n| n <= 4), "{asked:?}");
    assert!(asked.values().any(|&n| n == 4) && found.counts.impatient > 0);
    let met = found.counts.configurations;
    assert_eq!(met, found.counts.evaluated + found.counts.impatient);
}

#[test]
fn a_search_that_is_stopped_keeps_what_it_found() {
    let mut left = 10;
    let found = Search { prune: false, keep: 3, ..Search::default() }.run(&kunpeng(), |c| {
        left -= 1;
        if left < 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(-(c.threads() as f64)) }
    });
    let found = found.unwrap();
    assert!(!found.complete);
    assert_eq!((found.counts.evaluated, found.best.len()), (10, 3));
    assert_eq!(found.best[0].0.threads(), 192);
}

/// Times of a tree whose CPUs are `near[0]` ns apart below the lowest inner vertex, `near[1]` below the one
/// above it, and so on; each off by up to a twelfth, and one in fifty three times as long.
fn times(of: &TopoTree, near: &[f64], seed: u64) -> LineTimes {
    let parts: Vec<_> = (0..of.height()).rev().map(|depth| of.parts(depth)).collect();
    let mut state = seed;
    let mut random = move || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 40) as f64 / f64::from(1 << 24)
    };
    let mut cpus = of.cpus();
    cpus.sort_unstable();
    let measured = LineTimes::measure(cpus, |a, b| {
        let holds = |parts: &Vec<Vec<CpuId>>| {
            parts.iter().any(|part| part.contains(&a) && part.contains(&b))
        };
        let level = parts.iter().position(holds).unwrap();
        let disturbed = if random() < 0.02 { 3.0 } else { 1.0 };
        Ok::<f64, Error>(near[level] * disturbed * (1.0 + (random() - 0.5) / 6.0))
    });
    measured.unwrap()
}

proptest! {
    // The same cases each time: once in a great many, noise looks like what is not there.
    #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(1), ..ProptestConfig::with_cases(24) })]

    #[test]
    fn planted_groups_are_proposed_and_no_others(
        which in 0..4_usize,
        seed in any::<u64>(),
    ) {
        let (machine, n, stride, near) = [
            ("pack:4 numa:2 core:24", 4, 1, &[45.0, 70.0, 120.0, 230.0][..]),
            ("numa:2 core:16", 2, 4, &[30.0, 60.0, 150.0]),
            ("numa:2 core:16", 8, 2, &[50.0, 75.0, 150.0]),
            ("core:32", 4, 1, &[25.0, 90.0]),
        ][which];
        let known = tree(machine);
        let depth = known.height();
        let planted = known.group(n, stride, depth).unwrap();
        let times = times(&planted, near, seed);
        let found = known.latent(&times);
        let as_planted = |p: &_| {
            let arclight_topology::topotree::Proposal { n, stride, depth, .. } = p;
            (*n, *stride, *depth)
        };
        prop_assert_eq!(found.iter().map(as_planted).collect::<Vec<_>>(), [(n, stride, depth)]);
        prop_assert!(found[0].separation >= SEPARATED);
        // Who knows the groups finds that they are real, and proposes nothing more.
        prop_assert!(planted.latent(&times).is_empty());
        let levels = planted.measured_levels(&times);
        let lowest = levels.last().unwrap();
        prop_assert!(lowest.separation.unwrap() >= SEPARATED, "{levels:?}");
        let median = lowest.nanoseconds.unwrap();
        prop_assert!((median - near[0]).abs() < near[0] / 10.0, "{levels:?}");
    }

    #[test]
    fn where_nothing_is_planted_nothing_is_found(seed in any::<u64>()) {
        let known = tree("pack:2 numa:2 core:12");
        let times = times(&known, &[60.0, 110.0, 200.0], seed);
        prop_assert!(known.latent(&times).is_empty());
        let levels = known.measured_levels(&times);
        prop_assert!(levels[2].separation.unwrap() >= SEPARATED);
        // A level that only seems to be one: the nodes of this machine are as far apart as its packages.
        let flat = LineTimes::measure(known.cpus(), |a, b| {
            Ok::<f64, Error>(if a.0 / 12 == b.0 / 12 { 60.0 } else { 200.0 })
        });
        let levels = known.measured_levels(&flat.unwrap());
        prop_assert_eq!(levels[1].separation, Some(1.0));
    }
}

#[test]
fn what_was_not_measured_says_nothing() {
    let known = tree("numa:2 core:4 pu:2");
    let one = LineTimes::measure(vec![CpuId(0)], |_, _| Ok::<f64, Error>(1.0)).unwrap();
    assert!(known.latent(&one).is_empty());
    assert!(known.measured_levels(&one).iter().all(|l| l.nanoseconds.is_none()));
    // One thread of each core: cores have no two, nodes have.
    let cpus = known.parts(2).iter().map(|core| core[0]).collect();
    let times = LineTimes::measure(cpus, |a, b| {
        Ok::<f64, Error>(if a.0 / 8 == b.0 / 8 { 50.0 } else { 150.0 })
    });
    let levels = known.measured_levels(&times.unwrap());
    let told: Vec<_> = levels.iter().map(|l| (l.nanoseconds, l.separation)).collect();
    assert_eq!(told, [(Some(150.0), None), (Some(50.0), Some(3.0)), (None, None)]);
    let fault = LineTimes::measure(known.cpus(), |_, _| Err("no"));
    assert_eq!(fault, Err("no"));
}
