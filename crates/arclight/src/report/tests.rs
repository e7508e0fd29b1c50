//! The arithmetic on made-up numbers.

use super::counters::Counted;
use super::facts::Facts;
use super::figures::NodesReport;
use super::phase::Phase;
use super::reads::Reads;
use super::tasks::Tasks;
use arclight_engine::{Activity, ArenaPlacement, GroupPlacement, Mode, NodeBytes, Placement, Plan};
use graph::{Counts, PlaceCounts, WaitCounts};
use memory::{Pages, Policy};
use std::time::Duration;
use threads::{Jobs, TaskCounts, ThreadStats, Waits};
use topology::{CpuId, Group, NodeId};
use why::NoShare;

const PAGE: usize = 4096;

/// Two nodes, one thread each, ten steps of a token in 10 ms.
struct Case {
    plan: Plan,
    placement: Result<Placement, String>,
    phase: Phase,
    reads: Reads,
    caches: u64,
}

fn pages(by_node: &[(u32, usize)], absent: usize) -> Pages {
    let by_node = by_node.iter().map(|(node, n)| (NodeId(*node), *n)).collect();
    Pages { by_node, absent, ..Pages::default() }
}

fn arena(name: &'static str, group: Option<usize>, policy: Policy, pages: Pages) -> ArenaPlacement {
    let bytes = pages.total() * PAGE;
    ArenaPlacement { name, group, policy, bytes, pages, huge_bytes: 0 }
}

fn plan(mode: Mode, nodes: &[u32]) -> Plan {
    let group =
        |(at, id): (usize, &u32)| Group { node: Some(NodeId(*id)), cpus: vec![CpuId(at as u32)] };
    Plan { mode, ..Plan::new(nodes.iter().enumerate().map(group).collect()) }
}

/// A thread that works and waits so many microseconds in ten steps.
fn thread(busy: u64, local: u64, global: u64) -> ThreadStats {
    ThreadStats {
        jobs: Jobs { count: 10, nanos: (busy + local + global) * 1000 },
        local: Waits { count: 30, nanos: local * 1000 },
        global: Waits { count: 20, nanos: global * 1000 },
        crossings: 20,
        last: Waits { count: 10, nanos: local * 100 },
        ..ThreadStats::default()
    }
}

impl Case {
    /// Node 0 is 3, node 1 is 5; one of ten pages of node 3's weights is on node 5.
    fn tensor_parallel() -> Case {
        let bind = |id| Policy::Bind(NodeId(id));
        let place = PlaceCounts { weights: 10_000_000, kv: 1_000_000, exchanged: 500_000 };
        let waits = vec![WaitCounts { local: 30, global: 20 }; 2];
        let counts = Counts { steps: 10, tokens: 10, places: vec![place; 2], ..Counts::default() };
        let mut huge = arena("KV pages", Some(1), bind(5), pages(&[(5, 4)], 12));
        huge.huge_bytes = 3 * PAGE as u64;
        let streamed = [pages(&[(3, 9), (5, 1)], 0), pages(&[(5, 10)], 0)];
        let groups = [3, 5].into_iter().zip(streamed).map(|(id, streamed)| GroupPlacement {
            node: Some(NodeId(id)),
            threads: 1,
            streamed,
        });
        Case {
            plan: plan(Mode::TensorParallel, &[3, 5]),
            placement: Ok(Placement {
                arenas: vec![
                    arena("weights", Some(0), bind(3), pages(&[(3, 9), (5, 1)], 0)),
                    arena("weights", Some(1), bind(5), pages(&[(5, 10)], 0)),
                    arena("KV pages", Some(0), bind(3), pages(&[(3, 3), (5, 1)], 0)),
                    huge,
                    arena("activations", Some(0), bind(3), pages(&[(3, 2)], 0)),
                ],
                groups: groups.collect(),
            }),
            phase: Phase {
                counted: Counted::default(),
                decoding: true,
                time: Duration::from_millis(10),
                activity: Activity {
                    counts,
                    waits,
                    threads: vec![thread(6000, 1000, 2000), thread(8000, 500, 500)],
                    experts: Vec::new(),
                },
            },
            reads: Reads { all: 3e9, groups: vec![2.2e9, 1.1e9], slowest: 3e9 },
            caches: 1000,
        }
    }

    /// The same nodes with one copy of everything, three of four pages on node 3.
    fn interleaved(nodes: &[u32]) -> Case {
        let mut case = Case::tensor_parallel();
        let both = Policy::Interleave(vec![NodeId(3), NodeId(5)]);
        let placement = case.placement.as_mut().unwrap();
        placement.arenas = vec![
            arena("weights", None, both.clone(), pages(&[(3, 30), (5, 10)], 0)),
            arena("KV pages", None, both, pages(&[(3, 6), (5, 2)], 8)),
        ];
        for (group, id) in placement.groups.iter_mut().zip(nodes) {
            group.node = Some(NodeId(*id));
            group.streamed = pages(&[(3, 15), (5, 5)], 0);
        }
        case.phase.activity.counts.places.truncate(1);
        case.plan = plan(Mode::Interleave, nodes);
        case
    }

    fn report(&self) -> NodesReport {
        let loaded = vec![NodeBytes { weights: 7, kv: 8, activations: 9 }; self.plan.places()];
        NodesReport::of(&Facts {
            plan: &self.plan,
            loaded: &loaded,
            placement: self.placement.as_ref().map_err(String::as_str),
            phase: &self.phase,
            weights: &[],
            of_peak: None,
            causes: &[],
            tasks: Tasks::of(&self.phase.activity.threads),
            reads: &self.reads,
            caches: self.caches,
        })
    }

    fn verdict(&self) -> String {
        let verdict = self.report().verdict;
        let texts: Vec<&str> = verdict.iter().map(|cause| cause.text.as_str()).collect();
        texts.join(" ")
    }
}

/// Equal up to the rounding of a few divisions.
#[track_caller]
fn same(got: f64, expected: f64) {
    assert!((got - expected).abs() <= expected.abs() * 1e-12, "{got} is not {expected}");
}

#[test]
fn pages_are_counted_where_they_are_and_bytes_by_owner() {
    let report = Case::tensor_parallel().report();
    let bytes = |pages: usize| (pages * PAGE) as u64;
    let memory = |at: usize| report.nodes[at].memory;
    assert_eq!(memory(0).weights_bytes, bytes(10));
    assert_eq!((memory(0).kv_bytes, memory(1).kv_bytes), (bytes(4), bytes(16)));
    assert_eq!((memory(0).activation_bytes, memory(1).activation_bytes), (bytes(2), 0));
    let pages = |at: usize| memory(at).pages.unwrap();
    assert_eq!((pages(0).right, pages(0).wrong, pages(0).absent), (14, 2, 0));
    assert_eq!((pages(1).right, pages(1).wrong, pages(1).absent), (14, 0, 12));
    same(pages(1).huge_share, 3.0 / 14.0);
    let all = report.all.memory;
    assert_eq!((all.weights_bytes, all.kv_bytes, all.activation_bytes), {
        (bytes(20), bytes(20), bytes(2))
    });
    assert_eq!(all.pages.map(|p| (p.right, p.wrong)), Some((28, 2)));
}

#[test]
fn what_lies_elsewhere_makes_its_share_of_reads_remote() {
    let report = Case::tensor_parallel().report();
    let traffic = |at: usize| report.nodes[at].traffic;
    same(traffic(0).weights_bytes_per_token, 1e6);
    same(traffic(0).kv_bytes_per_token, 1e5);
    // A tenth of the weights, a quarter of the KV pages, and what is exchanged.
    same(traffic(0).remote_bytes_per_token.unwrap(), 1e5 + 2.5e4 + 5e4);
    same(traffic(0).remote_share.unwrap(), 1.75e5 / 1.15e6);
    same(traffic(1).remote_bytes_per_token.unwrap(), 5e4);
    same(report.all.traffic.remote_bytes_per_token.unwrap(), 2.25e5);
    same(report.all.traffic.remote_share.unwrap(), 2.25e5 / 2.3e6);
    // 11 MB in 10 ms.
    same(traffic(0).read_bytes_per_second, 1.1e9);
    same(traffic(0).of_limit.unwrap(), 0.5);
    same(traffic(1).of_limit.unwrap(), 1.0);
    same(report.all.traffic.of_limit.unwrap(), 2.2 / 3.0);
    assert!(!report.beats_a_limit());
}

#[test]
fn what_beats_its_limit_has_no_share_and_says_why() {
    let mut case = Case::tensor_parallel();
    case.reads = Reads { all: 2.5e9, groups: vec![1.5e9, 1.0e9], slowest: 2e9 };
    let report = case.report();
    let of = |at: usize| (report.nodes[at].traffic.of_limit, report.nodes[at].traffic.no_share);
    assert_eq!(of(1), (None, Some(NoShare::Memory)));
    same(of(0).0.unwrap(), 1.1 / 1.5);
    assert!(report.beats_a_limit());
    let text = report.lines().join("\n");
    let row = text.lines().find(|line| line.starts_with("of limit")).unwrap();
    assert!(row.contains("no share") && row.ends_with("88 %"), "{text}");
    assert!(text.contains("node 5: faster than the probe of the memory"), "{text}");
    assert!(!case.verdict().contains("Memory bounds"), "{}", case.verdict());
    // A step reads 2.2 MB.
    case.caches = 3_000_000;
    assert_eq!(case.report().nodes[1].traffic.no_share, Some(NoShare::Cached));
    assert!(!case.report().beats_a_limit());
}

#[test]
fn a_shared_copy_is_divided_by_where_its_pages_are() {
    let report = Case::interleaved(&[3, 5]).report();
    let memory = |at: usize| report.nodes[at].memory;
    assert_eq!((memory(0).weights_bytes, memory(1).weights_bytes), (30 * 4096, 10 * 4096));
    assert_eq!((memory(0).kv_bytes, memory(1).kv_bytes), (12 * 4096, 4 * 4096));
    assert_eq!(memory(0).pages.map(|p| (p.right, p.wrong)), Some((36, 0)));
    assert_eq!(report.all.memory.pages.map(|p| (p.right, p.absent)), Some((48, 8)));
    // Half of the products each; a quarter of the pages are not on node 3, three not on node 5.
    let traffic = |at: usize| report.nodes[at].traffic;
    same(traffic(0).weights_bytes_per_token, 5e5);
    same(traffic(0).remote_bytes_per_token.unwrap(), 0.25 * 5.5e5 + 2.5e4);
    same(traffic(1).remote_bytes_per_token.unwrap(), 0.75 * 5.5e5 + 2.5e4);
    let lines = report.lines().join("\n");
    assert!(lines.contains("activations that nodes share are not counted"), "{lines}");
}

#[test]
fn virtual_nodes_cannot_tell_apart_what_they_share() {
    let report = Case::interleaved(&[3, 3]).report();
    assert!(report.virtual_nodes);
    assert_eq!(report.nodes[0].memory, super::figures::Memory::default());
    assert_eq!(report.all.memory.weights_bytes, 40 * 4096);
    let lines = report.lines();
    let row = |name: &str| lines.iter().find(|l| l.starts_with(name)).unwrap().clone();
    assert_eq!(row("weights").split_whitespace().collect::<Vec<_>>()[1..3], ["shared", "shared"]);
    assert_eq!(row("on memory node").split_whitespace().skip(3).collect::<String>(), "33-");
    assert!(lines[0].contains("interleaved on 2 virtual nodes"), "{}", lines[0]);
}

#[test]
fn without_the_kernels_answer_there_are_sizes_and_the_reason() {
    let mut case = Case::tensor_parallel();
    case.placement = Err("move_pages: not implemented".to_owned());
    let report = case.report();
    assert_eq!(report.nodes[1].memory.kv_bytes, 8);
    assert_eq!(report.all.memory.kv_bytes, 16);
    assert_eq!((report.all.memory.pages, report.all.traffic.remote_bytes_per_token), (None, None));
    let lines = report.lines().join("\n");
    assert!(lines.contains("where pages are is not known: move_pages: not implemented"), "{lines}");
    assert!(!lines.contains("pages in place") && lines.contains("exchanged"), "{lines}");
    case.plan = plan(Mode::Mirror, &[3, 5]);
    case.phase.activity.counts.places.truncate(1);
    assert_eq!(case.report().nodes[0].memory.weights_bytes, 0);
    assert_eq!(case.report().all.memory.weights_bytes, 7);
}

#[test]
fn time_is_work_waits_and_what_lies_between_steps() {
    let report = Case::tensor_parallel().report();
    let time = |at: usize| report.nodes[at].time;
    same(time(0).slowest.us_per_token, 600.0);
    assert_eq!((report.all.time.fastest.thread, report.all.time.slowest.thread), (0, 1));
    same(report.all.time.local.us_per_token, 75.0);
    same(report.all.time.local.most_us_per_token, 100.0);
    same(report.all.time.global.per_step, 2.0);
    // Both are in steps for 9 of 10 ms.
    same(report.all.time.between_steps, 0.1);
    same(report.all.time.working, 0.7);
    same(report.all.time.waiting, 0.2);
    // A thread that is through with its steps early waits for the others.
    let mut case = Case::tensor_parallel();
    case.phase.activity.threads[0] = thread(4000, 0, 0);
    let report = case.report();
    same(report.nodes[0].time.step_ends_us_per_token, 500.0);
    same(report.nodes[0].time.waiting, 0.5);
    same(report.nodes[0].time.between_steps, 0.1);
}

#[test]
fn waits_are_held_against_the_compiled_ones() {
    let mut case = Case::tensor_parallel();
    let lines = |case: &Case| case.report().lines().join("\n");
    assert!(case.report().waits_as_compiled);
    assert!(lines(&case).contains("every thread has waited as often as compiled"));
    case.phase.activity.threads[1].global.count = 21;
    assert!(!case.report().waits_as_compiled);
    let text = lines(&case);
    let said = "thread 1 has waited 30 times locally and 21 globally, its program says 30 and 20";
    assert!(text.replace('\n', " ").contains(said), "{text}");
    // A pool of one group knows no global waits.
    let mut case = Case::tensor_parallel();
    case.plan = plan(Mode::TensorParallel, &[3]);
    case.placement = Err(String::new());
    case.phase.activity.threads.truncate(1);
    case.phase.activity.counts.places.truncate(1);
    assert!(!case.report().waits_as_compiled);
    case.phase.activity.threads[0].local.count = 50;
    case.phase.activity.threads[0].global.count = 0;
    assert!(case.report().waits_as_compiled);
}

#[test]
fn the_verdict_names_what_the_figures_show() {
    // Node 5 at its limit all the time: 100 % of it, 125 % while its thread works.
    let case = Case::tensor_parallel();
    let verdict = case.verdict();
    assert!(verdict.starts_with("Memory bounds the work: node 5 "), "{verdict}");
    let elsewhere =
        "12 % of the pages meant for node 3 lie on others (2 of 16), and are read from there.";
    assert!(verdict.contains(elsewhere), "{verdict}");
    // Node 3 hurries to its limit only to wait for node 5, which is far from its own.
    let mut case = Case::tensor_parallel();
    case.reads.groups = vec![1.2e9, 3e9];
    case.phase.activity.threads[0] = thread(3000, 1000, 5000);
    let verdict = case.verdict();
    assert!(
        verdict.starts_with("Waiting takes ") && verdict.contains("node 5: its threads"),
        "{verdict}"
    );
    // What fits into the caches is not read from memory.
    let mut cached = Case::tensor_parallel();
    cached.caches = 1 << 30;
    assert!(!cached.verdict().contains("Memory bounds"), "{}", cached.verdict());
    // Thread 1 works 8 ms of 10, thread 0 only 1.
    let mut slow = Case::tensor_parallel();
    slow.placement = Err(String::new());
    slow.caches = 1 << 30;
    slow.phase.activity.threads[0] = thread(1000, 1000, 7000);
    let verdict = slow.verdict();
    assert!(
        verdict.contains("most of it for node 5: its threads work 80 % of the time"),
        "{verdict}"
    );
    // A thread that was left out of a step has not worked less for being faster.
    slow.phase.activity.threads[0].jobs.count = 9;
    let verdict = slow.verdict();
    assert!(!verdict.contains("its threads work 80 %"), "{verdict}");
    // Both wait equally: the waits are at fault, 5 of them a step, 80 µs each.
    slow.phase.activity.threads = vec![thread(5000, 2000, 2000); 2];
    let verdict = slow.verdict();
    assert!(verdict.contains("in 5 waits a step of 80 µs on average"), "{verdict}");
    // Nobody waits.
    slow.phase.activity.threads = vec![thread(9500, 100, 100); 2];
    assert!(slow.verdict().starts_with("Computing bounds it: "), "{}", slow.verdict());
    slow.phase.activity.threads = vec![thread(7800, 900, 900); 2];
    assert!(slow.verdict().starts_with("Nothing stands out: "), "{}", slow.verdict());
    // Somewhere between memory and arithmetic: 1.1 of 2 GB/s.
    slow.phase.activity.threads = vec![thread(9500, 100, 100); 2];
    (slow.caches, slow.reads.groups) = (0, vec![2e9; 2]);
    assert!(slow.verdict().starts_with("Nothing stands out: "), "{}", slow.verdict());
    slow.caches = 1 << 30;
    // Idle between steps.
    slow.phase.activity.threads = vec![thread(5000, 100, 100); 2];
    assert!(slow.verdict().starts_with("48 % of the time passes between"), "{}", slow.verdict());
    // Other nodes' memory, if they are nodes.
    let remote = Case::interleaved(&[3, 5]);
    assert!(remote.verdict().contains("of the bytes are in another node"), "{}", remote.verdict());
}

#[test]
fn stretches_of_work_add_up() {
    let mut sum = Case::tensor_parallel().phase;
    let tasks =
        |count| TaskCounts { count, stealable: count, deepest: count, ..TaskCounts::default() };
    sum.activity.threads[1].tasks = tasks(7);
    let mut other = Case::tensor_parallel().phase;
    other.activity.threads[1].tasks = tasks(5);
    sum.add(other);
    let mut twice = Case::tensor_parallel();
    twice.phase = sum;
    assert_eq!(twice.phase.time, Duration::from_millis(20));
    let (one, two) = (Case::tensor_parallel().report(), twice.report());
    assert_eq!((two.tokens, two.steps), (20, 20));
    assert_eq!((two.threads[0].crossings, two.threads[0].last_waits), (40, 20));
    assert_eq!(two.threads[0].last_us, 2.0 * one.threads[0].last_us);
    let shared = two.tasks.as_ref().unwrap();
    assert_eq!((shared.tasks, shared.deepest), (12, 7));
    assert!(one.tasks.is_none() && !one.lines().concat().contains("shared tasks"));
    assert_eq!(two.lines().iter().filter(|l| l.starts_with("shared tasks")).count(), 1);
    assert!(two.lines().iter().any(|l| l.starts_with("note: few tiles were stolen")));
    // Whatever is per token, per step or a share stays.
    assert_eq!(one.nodes, two.nodes);
    assert!(two.waits_as_compiled);
}

#[test]
fn eight_nodes_stand_beside_each_other_in_a_hundred_columns() {
    let mut case = Case::tensor_parallel();
    case.plan = plan(Mode::TensorParallel, &[0, 1, 2, 3, 4, 5, 6, 7]);
    let activity = &mut case.phase.activity;
    activity.counts.places = vec![activity.counts.places[0]; 8];
    activity.waits = vec![activity.waits[0]; 8];
    activity.threads = vec![activity.threads[0]; 8];
    case.reads.groups = vec![1e9; 8];
    // As wide as sizes are.
    let bytes = 1_320_000_000;
    case.placement.as_mut().unwrap().arenas = (0..8)
        .map(|g| ArenaPlacement {
            bytes,
            ..arena("weights", Some(g), Policy::Default, pages(&[(g as u32, 322_266)], 0))
        })
        .collect();
    let group = &case.placement.as_ref().unwrap().groups[0];
    let groups = vec![group.clone(); 8];
    case.placement.as_mut().unwrap().groups = groups;
    let lines = case.report().lines();
    assert!(lines.iter().all(|l| l.chars().count() <= 100), "{lines:#?}");
    assert_eq!(lines.iter().filter(|l| l.starts_with("weights")).count(), 1, "{lines:#?}");
    assert!(lines[2].contains("node 7") && lines[2].ends_with("all"), "{lines:#?}");
}

#[test]
fn the_process_knows_what_memory_it_has() {
    let before = super::resident().unwrap();
    let more = vec![1u8; 64 << 20];
    assert!(super::resident().unwrap() >= before + (32 << 20), "{before} bytes and {}", more.len());
}
