//! Static deals against stealing, for the two kinds of work in a step whose pieces are unequal.
//!
//! `cargo bench -p arclight-threads --bench tasks`
//!
//! *Experts*: 128 tokens choose 8 of 64 experts, with a few favourites (Zipf). *Attention*: 16
//! sequences of 100 to 8000 tokens, 8 heads of keys and values each. A piece of work streams its bytes
//! from memory and multiplies them, an expert's once for every four tokens, as the kernels do.
//!
//! Every round runs all ways once, so that they meet the same weather; a figure is the median of a
//! way's time over the first way's time in the same round, with quartiles. Below stands what the same
//! pieces would come to with more threads than this machine has: a model, that charges each piece by
//! its bytes and nothing for stealing. The first way is what the engine does with matrices and with
//! long contexts: everything is cut evenly beforehand. In a second pass another thread keeps the last
//! CPU busy half of the time, as other programs do.

use std::hint::black_box;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use arclight_threads::{Homes, Policy, Pool, PoolSpec, Scope, TaskReport};
use topology::{CpuId, Group, Machine};

const ROUNDS: usize = 61;

/// Bytes that are gone through a number of times.
#[derive(Clone)]
struct Piece {
    bytes: Range<usize>,
    times: usize,
}

impl Piece {
    fn cost(&self) -> usize {
        self.bytes.len() * self.times
    }

    /// Consecutive parts of whole lines.
    fn cut(&self, parts: usize) -> Vec<Piece> {
        let lines = self.bytes.len() / 64;
        let at = |part| self.bytes.start + lines * part / parts * 64;
        let piece = |part| Piece { bytes: at(part)..at(part + 1), times: self.times };
        (0..parts).map(piece).collect()
    }

    fn run(&self, data: &[u8]) -> u64 {
        let mut sum = 0u64;
        for _ in 0..self.times {
            for line in black_box(&data[self.bytes.clone()]).chunks_exact(64) {
                let mut dot = 0u32;
                for &byte in line {
                    dot += u32::from(byte) * u32::from(byte);
                }
                sum += u64::from(dot);
            }
        }
        sum
    }
}

/// How pieces come to threads.
enum Way {
    /// As given.
    Static(fn(&[Piece], usize) -> Vec<Vec<Piece>>),
    /// From a queue.
    Stolen(fn(&[Piece]) -> Vec<Piece>),
}

fn even_cut(pieces: &[Piece], threads: usize) -> Vec<Vec<Piece>> {
    let parts: Vec<Vec<Piece>> = pieces.iter().map(|piece| piece.cut(threads)).collect();
    (0..threads).map(|t| parts.iter().map(|part| part[t].clone()).collect()).collect()
}

fn runs(pieces: &[Piece], threads: usize) -> Vec<Vec<Piece>> {
    let at = |thread| pieces.len() * thread / threads;
    (0..threads).map(|t| pieces[at(t)..at(t + 1)].to_vec()).collect()
}

fn in_turn(pieces: &[Piece], threads: usize) -> Vec<Vec<Piece>> {
    (0..threads).map(|t| pieces.iter().skip(t).step_by(threads).cloned().collect()).collect()
}

/// Runs of nearly equal cost: a piece goes where its middle falls.
fn by_cost(pieces: &[Piece], threads: usize) -> Vec<Vec<Piece>> {
    let all: usize = pieces.iter().map(Piece::cost).sum();
    let mut dealt = vec![Vec::new(); threads];
    let mut before = 0;
    for piece in pieces {
        let middle = before + piece.cost() / 2;
        dealt[(middle * threads / all).min(threads - 1)].push(piece.clone());
        before += piece.cost();
    }
    dealt
}

/// Ranges of 256 tokens of a head, 512 bytes each.
fn ranges(pieces: &[Piece]) -> Vec<Piece> {
    pieces.iter().flat_map(|p| p.cut(p.bytes.len().div_ceil(256 * 512))).collect()
}

fn even_ranges(pieces: &[Piece], threads: usize) -> Vec<Vec<Piece>> {
    runs(&ranges(pieces), threads)
}

fn longest_first(pieces: &[Piece]) -> Vec<Piece> {
    // Thread t of T begins with run t of the list: the longest of each run comes first there.
    let mut pieces = pieces.to_vec();
    pieces.sort_by_key(|piece| std::cmp::Reverse(piece.cost()));
    pieces
}

fn eighths(pieces: &[Piece]) -> Vec<Piece> {
    pieces.iter().flat_map(|piece| piece.cut(8)).collect()
}

/// Time that the last thread needs, by cost: those with tasks of their own take them from the front,
/// others from the back of the next queue.
fn model(way: &Way, policy: Policy, pieces: &[Piece], threads: usize) -> usize {
    let (mut queues, steals) = match way {
        Way::Static(deal) => (deal(pieces, threads), false),
        Way::Stolen(list) => match policy {
            Policy::Interleave => (in_turn(&list(pieces), threads), true),
            _ => (runs(&list(pieces), threads), true),
        },
    };
    queues.iter_mut().for_each(|queue| queue.reverse());
    let mut clocks = vec![(0, true); threads];
    while let Some(t) = (0..threads).filter(|&t| clocks[t].1).min_by_key(|&t| clocks[t].0) {
        let stolen = || (1..threads).map(|i| (t + i) % threads).find(|&v| !queues[v].is_empty());
        let piece = match queues[t].is_empty() {
            false => queues[t].pop(),
            true if steals => stolen().map(|victim| queues[victim].remove(0)),
            true => None,
        };
        match piece {
            Some(piece) => clocks[t].0 += piece.cost(),
            None => clocks[t].1 = false,
        }
    }
    clocks.iter().map(|clock| clock.0).max().expect("there are threads")
}

fn compare(
    name: &str,
    pool: &mut Pool,
    data: &[u8],
    pieces: &[Piece],
    ways: &[(&str, Policy, Way)],
) {
    let threads = pool.threads();
    let mut times = vec![Vec::new(); ways.len()];
    let mut reports = vec![TaskReport::default(); ways.len()];
    let mut sums = Vec::new();
    for _ in 0..ROUNDS {
        for (at, (_, policy, way)) in ways.iter().enumerate() {
            let sum = AtomicU64::new(0);
            let (lists, tasks) = match way {
                Way::Static(deal) => (deal(pieces, threads), Vec::new()),
                Way::Stolen(list) => (Vec::new(), list(pieces)),
            };
            pool.reset_stats();
            let start = Instant::now();
            pool.run(&|w| {
                let mut own = 0;
                match lists.get(w.thread()) {
                    Some(list) => list.iter().for_each(|piece| own += piece.run(data)),
                    None => w.tasks(*policy, Homes::None(tasks.len()), |task| {
                        own += tasks[task].run(data);
                    }),
                }
                w.wait(Scope::Global);
                sum.fetch_add(own, Relaxed);
            })
            .expect("no panic");
            times[at].push(start.elapsed().as_secs_f64());
            reports[at] = TaskReport::of(&pool.stats());
            sums.push(sum.into_inner());
        }
    }
    assert!(sums.windows(2).all(|two| two[0] == two[1]), "every way does the same work");
    let quartiles = |mut values: Vec<f64>| {
        values.sort_unstable_by(f64::total_cmp);
        [0.25, 0.5, 0.75].map(|share| values[(share * (values.len() - 1) as f64) as usize])
    };
    println!("  {name}, {threads} threads");
    for (at, (way, policy, kind)) in ways.iter().enumerate() {
        let ratios = times[at].iter().zip(&times[0]).map(|(a, b)| a / b).collect();
        let [low, ratio, high] = quartiles(ratios);
        let millis = quartiles(times[at].clone())[1] * 1e3;
        let base = |threads| model(&ways[0].2, ways[0].1, pieces, threads) as f64;
        let [few, many] = [16, 64].map(|t| model(kind, *policy, pieces, t) as f64 / base(t));
        let stolen = reports[at].stolen().map_or_else(String::new, |share| {
            format!(", {:.0} % stolen in the last round", share * 100.0)
        });
        println!(
            "    {way:<32} {ratio:.2} ({low:.2} to {high:.2}), {millis:.1} ms{stolen}; \
             model: {few:.2} with 16 threads, {many:.2} with 64"
        );
    }
}

/// Works for 2 ms and sleeps for 2 ms on a CPU, until it is told to stop.
fn pest(stop: &AtomicBool, cpu: CpuId) {
    let groups = vec![Group::unbound(vec![cpu])];
    let mut pool = Pool::new(&PoolSpec { groups, ..PoolSpec::default() }).expect("a pool of one");
    while !stop.load(Relaxed) {
        pool.run(&|_| {
            let start = Instant::now();
            while start.elapsed() < Duration::from_millis(2) {
                std::hint::spin_loop();
            }
        })
        .expect("no panic");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn main() {
    let machine = Machine::read().expect("the machine's description");
    let cpus: Vec<_> = machine.cpus().iter().take(2).map(|cpu| cpu.id).collect();
    let last = cpus[cpus.len() - 1];
    let groups = vec![Group::unbound(cpus)];
    let spec = PoolSpec { groups, stats: true, ..PoolSpec::default() };
    let mut pool = Pool::new(&spec).expect("a pool");
    let mut seed = 1u64;
    let mut random = |below: usize| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) as usize % below
    };
    let data: Vec<u8> = (0..96 << 20).map(|i| (i % 251) as u8).collect();

    // Experts: 64 of 768 KiB, in no order of favour. 1024 choices are dealt by 1 / rank.
    const EXPERTS: usize = 64;
    let mut order: Vec<usize> = (0..EXPERTS).collect();
    (1..EXPERTS).for_each(|i| order.swap(i, random(i + 1)));
    let harmonic: f64 = (1..=EXPERTS).map(|rank| 1.0 / rank as f64).sum();
    let experts: Vec<Piece> = (0..EXPERTS)
        .map(|expert| {
            let tokens = 1024.0 / harmonic / (order[expert] + 1) as f64;
            let start = expert * (768 << 10);
            Piece { bytes: start..start + (768 << 10), times: (tokens / 4.0).ceil() as usize }
        })
        .collect();
    let expert_ways = [
        ("rows of every expert by thread", Policy::Disabled, Way::Static(even_cut)),
        ("experts in equal runs", Policy::Disabled, Way::Static(runs)),
        ("experts in runs of equal cost", Policy::Disabled, Way::Static(by_cost)),
        ("experts, stolen", Policy::Balanced, Way::Stolen(<[Piece]>::to_vec)),
        ("experts in turn, longest first", Policy::Interleave, Way::Stolen(longest_first)),
        ("eighths of experts, stolen", Policy::Balanced, Way::Stolen(eighths)),
    ];

    // Attention: (sequence, head) with 512 bytes a token, lengths even on a scale of logarithms.
    let mut at = 0;
    let mut heads: Vec<Piece> = Vec::new();
    for _ in 0..16 {
        let tokens = (100.0 * 80f64.powf(random(1000) as f64 / 1000.0)) as usize;
        for _ in 0..8 {
            heads.push(Piece { bytes: at..at + tokens * 512, times: 1 });
            at = (at + tokens * 512) % (90 << 20) / 64 * 64;
        }
    }
    let fits = |piece: &Piece| piece.bytes.end <= data.len();
    assert!(heads.iter().all(fits), "the data are long enough");
    let head_ways = [
        ("ranges of 256 in equal runs", Policy::Disabled, Way::Static(even_ranges)),
        ("heads in equal runs", Policy::Disabled, Way::Static(runs)),
        ("heads in turn", Policy::Disabled, Way::Static(in_turn)),
        ("heads in runs of equal cost", Policy::Disabled, Way::Static(by_cost)),
        ("heads, stolen", Policy::Balanced, Way::Stolen(<[Piece]>::to_vec)),
        ("heads in turn, longest first", Policy::Interleave, Way::Stolen(longest_first)),
        ("ranges of 256, stolen", Policy::Balanced, Way::Stolen(ranges)),
    ];
    let mut both = || {
        compare("experts", &mut pool, &data, &experts, &expert_ways);
        compare("attention at mixed depths", &mut pool, &data, &heads, &head_ways);
    };
    println!("alone");
    both();
    println!("with another busy thread");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| pest(&stop, last));
        both();
        stop.store(true, Relaxed);
    });
}
