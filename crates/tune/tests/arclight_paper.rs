//! The model of time against every number and claim that the ArcLight paper's text makes about its
//! figures 10 to 12. The curves themselves are images: what the text does not say is not tested.

use arclight_tune as tune;
use tune::known::{self, KnownMachine};
use tune::{Engine, Job, Pages, Prediction, Resource, Work, predict};

/// Threads per node, as the paper's 6 to 48 on one node.
const COUNTS: [usize; 8] = [6, 12, 18, 24, 30, 36, 42, 48];

/// A prompt of 15 tokens and half of the 256 generated ones.
const CONTEXT: usize = 15 + 128;

fn run(engine: &Engine, context: usize, nodes: usize, per_node: usize) -> Prediction {
    let mut threads = [0; 4];
    threads[..nodes].fill(per_node);
    let step = engine.step(&known::qwen3_4b_q4_0(), Work::decode(context), &threads).unwrap();
    predict(&known::kunpeng_920(), &step).unwrap()
}

fn speed(engine: &Engine, nodes: usize, per_node: usize) -> f64 {
    run(engine, CONTEXT, nodes, per_node).tokens_per_second()
}

fn best(engine: &Engine, nodes: usize) -> f64 {
    COUNTS.map(|n| speed(engine, nodes, n)).into_iter().fold(0.0, f64::max)
}

/// How many times as fast `a` is as `b`, by threads per node.
fn ratios(a: &Engine, b: &Engine, nodes: usize) -> [f64; 8] {
    COUNTS.map(|n| speed(a, nodes, n) / speed(b, nodes, n))
}

fn largest(ratios: &[f64]) -> f64 {
    ratios.iter().copied().fold(0.0, f64::max)
}

/// "As the number of inference threads increases from 6 to 48, the decoding throughput of both
/// frameworks improves" (section 4). The core's rate was fitted to this.
#[test]
fn one_node_scales_to_all_of_its_cores() {
    for engine in [known::llama_cpp(), known::arclight(4), Engine::tensor_parallel()] {
        let speeds = COUNTS.map(|n| speed(&engine, 1, n));
        for pair in speeds.windows(2) {
            // 42 to 48 threads is 14 % more; saturation may eat half of the gain, not all of it.
            assert!(pair[1] > 1.05 * pair[0], "{engine:?}: {speeds:?}");
        }
        // Eight times the threads; saturation at 46 of 48 and longer waits take less than 10 %.
        assert!((7.2..8.0).contains(&(speeds[7] / speeds[0])), "{speeds:?}");
    }
}

/// "ArcLight achieves slightly higher throughput" on one node (section 4). The remote rate of a
/// core was fitted to it, but not the size at 48 threads, where memory decides.
#[test]
fn one_node_arclight_is_slightly_ahead() {
    for ratio in ratios(&known::arclight(4), &known::llama_cpp(), 1) {
        // "Slightly" in a bar chart: visible, but no more than an eighth.
        assert!((1.02..1.125).contains(&ratio), "{ratio}");
    }
}

/// "ArcLight with TP outperforms llama.cpp" on 2 and on 4 nodes (section 4), by "up to 46 %"
/// (abstract). One number, the share of pages on node 0, was fitted to the larger of the two.
#[test]
fn many_nodes_arclight_leads_by_up_to_46_percent() {
    let gains = [2, 4].map(|nodes| {
        let ratios = ratios(&known::arclight(4), &known::llama_cpp(), nodes);
        assert!(ratios.iter().all(|&r| r > 1.0), "{nodes} nodes: {ratios:?}");
        largest(&ratios)
    });
    // The fit, with a share rounded to half a percent.
    assert!((largest(&gains) - 1.46).abs() < 0.02, "{gains:?}");
    // Not fitted: the other node count gains as much, to within a tenth.
    assert!((gains[0] / gains[1] - 1.0).abs() < 0.1, "{gains:?}");
}

/// "Asynchronous subgraph execution contributes an additional gain of about 5 token/s" (section 4).
/// The time of an arrival was fitted to the mean of the two node counts.
#[test]
fn sync_b_gains_about_five_tokens_a_second() {
    let gains = [2, 4]
        .map(|n| speed(&known::arclight(4), n, 48) - speed(&known::arclight_sync_a(4), n, 48));
    let mean = (gains[0] + gains[1]) / 2.0;
    // "About 5", read from bars of 50 to 100: to one token.
    assert!((mean - 5.0).abs() < 1.0, "{gains:?}");
    // Neither is negligible nor dominates: a factor of 2.5 around 5.
    assert!(gains.iter().all(|g| (2.0..12.5).contains(g)), "{gains:?}");
    for nodes in [2, 4] {
        let never_slower = ratios(&known::arclight(4), &known::arclight_sync_a(4), nodes);
        assert!(never_slower.iter().all(|&r| r >= 1.0), "{never_slower:?}");
    }
}

/// The improvement "comes from breaking the single-node memory access wall" (section 4): the
/// unplaced engine does not break it with the second node, the placed one does. That it gains
/// nothing at all is not in the paper; users of two-socket machines report it. Nothing fitted.
#[test]
fn the_unplaced_engine_gains_nothing_from_a_second_node() {
    let unplaced = best(&known::llama_cpp(), 2) / best(&known::llama_cpp(), 1);
    assert!((0.8..1.1).contains(&unplaced), "{unplaced}");
    let arclight = best(&known::arclight(4), 2) / best(&known::arclight(4), 1);
    // Its layers take half the time, its head twice: node 1 fetches half of it over a link.
    assert!((1.25..1.6).contains(&arclight), "{arclight}");
    let limit = run(&known::llama_cpp(), CONTEXT, 4, 48).bottleneck;
    assert!(matches!(limit, Resource::Link { memory: 0, .. }), "{limit}");
}

/// With a prompt of 300 "decoding throughput is slightly lower" (appendix A.2). Nothing fitted.
#[test]
fn a_longer_prompt_is_slightly_slower() {
    for engine in [known::llama_cpp(), known::arclight(4), Engine::tensor_parallel()] {
        for nodes in [2, 4] {
            let long = run(&engine, 300 + 128, nodes, 48).tokens_per_second();
            let loss = 1.0 - long / speed(&engine, nodes, 48);
            // 285 tokens more of 1152 bytes x 36 layers are 11.8 MB, 0.5 % of what a token reads.
            assert!((0.001..0.02).contains(&loss), "{nodes} nodes: {loss}");
        }
    }
}

/// In prefill ArcLight's "advantage is less pronounced", since it "is predominantly compute-bound"
/// (appendix A.2). Nothing fitted. That there still is one the model does not say: see the limits in
/// docs/cost-model.md.
#[test]
fn a_prompt_is_bound_by_multipliers_and_placement_hardly_matters() {
    let prompt = |engine: &Engine, nodes| {
        let job = Job { tokens: 300, context: 0, chunk: 512, sequences: 1 };
        let machine = known::kunpeng_920();
        let threads = tune::threads_on(&machine, nodes, 48);
        job.predict(&machine, engine, &known::qwen3_4b_q4_0(), &threads).unwrap()
    };
    for nodes in [2, 4] {
        let all = [known::arclight(4), known::llama_cpp(), Engine::tensor_parallel()];
        let [arclight, unplaced, ours] = all.each_ref().map(|engine| prompt(engine, nodes));
        for prediction in [&arclight, &unplaced, &ours] {
            let limit = prediction.bottleneck;
            assert!(matches!(limit, Resource::Multiply(_)), "{nodes} nodes: {limit}");
        }
        let gain = unplaced.seconds / arclight.seconds;
        let decoding = speed(&all[0], nodes, 48) / speed(&all[1], nodes, 48);
        // Within a tenth of none, where decoding gains more than a third.
        assert!((0.9..1.1).contains(&gain) && decoding > 1.33, "{gain}, {decoding}");
        // Twice the nodes, twice the speed but for what is not shared: within a tenth.
        let more = prompt(&all[2], 1).seconds / ours.seconds / nodes as f64;
        assert!((0.9..1.0).contains(&more), "{more}");
    }
}

/// This project's placement is bound by the memories of all nodes and, to a tenth, nothing else.
#[test]
fn ours_stays_near_the_floor_on_every_number_of_nodes() {
    let (weights, _) = known::qwen3_4b_q4_0().bytes(1, CONTEXT).unwrap();
    for nodes in [1, 2, 4] {
        let ours = run(&Engine::tensor_parallel(), CONTEXT, nodes, 48);
        // The slowest memory, 101 GB/s of node 3, decides only where it is used.
        let slowest = if nodes == 4 { 101e9 } else { 102e9 };
        let floor = weights / (nodes as f64 * slowest);
        let over = (ours.seconds - ours.alone()) / floor;
        // KV is 0.1 %; waits and sums are below 4 % of the shortest step.
        assert!((1.0..1.04).contains(&over), "{nodes}: {over}");
        // What every thread does for itself costs as much on four nodes as on one: Amdahl.
        let serial = ours.alone() / ours.seconds;
        assert!((0.01..0.1).contains(&serial), "{nodes}: {serial}");
        assert!(matches!(ours.bottleneck, Resource::Memory(_)), "{}", ours.bottleneck);
    }
    for nodes in [2, 4] {
        let lead = ratios(&Engine::tensor_parallel(), &known::arclight(4), nodes);
        assert!(lead.iter().all(|&r| r > 1.0), "{lead:?}");
    }
}

/// Why the unplaced engine's pages cannot lie evenly in this model: ArcLight's whole head would lose
/// more than the paper's figure 11 shows it to win.
#[test]
fn even_pages_would_contradict_the_paper() {
    let even = Engine::unplaced(Pages::interleaved(4).unwrap());
    let ratio = speed(&known::arclight(4), 4, 48) / speed(&even, 4, 48);
    assert!(ratio < 1.0, "{ratio}");
    // With everything on one node, which Arm measured elsewhere, the gain would be far above 46 %.
    let home = Engine::unplaced(Pages::first_touch(0, 1.0, 4).unwrap());
    let ratio = speed(&known::arclight(4), 4, 48) / speed(&home, 4, 48);
    assert!(ratio > 2.0, "{ratio}");
}

/// Why an arrival cannot cost a transfer of the line on this machine: both engines would spend four
/// fifths of a token in barriers, and placing memory could not gain 46 %.
#[test]
fn travelling_lines_would_contradict_the_paper() {
    let published = known::MACHINES[0].clone();
    let machine = KnownMachine { remote_arrival: published.remote_line, ..published }.model();
    let speeds = [known::arclight(4), known::llama_cpp()].map(|engine| {
        let step = engine.step(&known::qwen3_4b_q4_0(), Work::decode(CONTEXT), &[48; 4]).unwrap();
        let prediction = predict(&machine, &step).unwrap();
        assert_eq!(prediction.bottleneck, Resource::Waits);
        assert!(prediction.tokens_per_second() < 20.0, "{}", prediction.tokens_per_second());
        prediction.tokens_per_second()
    });
    assert!(speeds[0] / speeds[1] < 1.1, "{speeds:?}");
}

/// A pipeline of one sequence is as fast as one node: its nodes work in turn.
#[test]
fn a_pipeline_does_not_speed_up_one_sequence() {
    let one = speed(&Engine::tensor_parallel(), 1, 48);
    let four = speed(&Engine::pipeline(), 4, 48);
    // Hand-overs and slightly different memories: within 2 %.
    assert!((four / one - 1.0).abs() < 0.02, "{four} {one}");
}
