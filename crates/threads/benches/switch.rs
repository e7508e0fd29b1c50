//! What it costs that jobs run on one thread and on all by turns, as an engine's steps do when it
//! switches plans.
//!
//! `cargo bench -p arclight-threads --bench switch`
//!
//! Jobs do nothing, so that a figure is hand-out and completion alone. In each round the ways run one
//! after the other, a block of jobs each, so that they meet the same weather, and then once more in
//! the opposite order (A B C, C B A). A figure is the median over the rounds of a block's time per
//! job, with quartiles; the extra of switching is taken within a round: a job on one thread and one on
//! all, by turns, less one of each in blocks of their own. It is that of two switches, down and up.
//!
//! Three pools. *Awake*: waits spin for long, so threads that are left out for a moment have not gone
//! to sleep. *Asleep*: waits do not spin, so every job on all has to wake the others, with or without
//! a switch. *Apart*: waits spin for as long as they do by default, and the job on one thread lasts
//! longer than that, as steps do: the wake-up is paid at the switch up, and only there.

use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use arclight_threads::{Pool, PoolSpec, Spin, Worker};
use topology::{CpuId, Group, Machine};

const ROUNDS: usize = 41;

/// Jobs on one thread, by turns, and on all: the levels of a pair of jobs.
const WAYS: [(&str, [usize; 2]); 3] =
    [("on one thread", [0, 0]), ("by turns", [0, 1]), ("on all", [1, 1])];

fn pool(cpus: &[CpuId], spin: Spin) -> Pool {
    let groups = vec![Group::unbound(cpus.to_vec())];
    let spec = PoolSpec { groups, spin, levels: vec![vec![1]], ..PoolSpec::default() };
    Pool::new(&spec).expect("a pool")
}

/// Microseconds per job of a block of pairs; `work` is what the first job of a pair does if it is for
/// one thread, and is not counted.
fn block(pool: &mut Pool, levels: [usize; 2], pairs: usize, work: Duration) -> f64 {
    let ran = AtomicUsize::new(0);
    let job = |_: &mut Worker| {
        ran.fetch_add(1, Relaxed);
    };
    let mut taken = Duration::ZERO;
    for _ in 0..pairs {
        if work > Duration::ZERO {
            // Before the pair, so that the job of the pair begins as it would after the work.
            let busy = |_: &mut Worker| {
                let start = Instant::now();
                while start.elapsed() < work {
                    black_box(0);
                }
            };
            pool.run_on(levels[0], &busy).expect("no panic");
        }
        let start = Instant::now();
        for level in levels {
            pool.run_on(level, &job).expect("no panic");
        }
        taken += start.elapsed();
    }
    let threads: usize = levels.iter().map(|&l| if l == 0 { 1 } else { pool.threads() }).sum();
    assert_eq!(ran.into_inner(), pairs * threads, "every job ran on its threads");
    taken.as_secs_f64() * 1e6 / (2 * pairs) as f64
}

fn quartiles(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_unstable_by(f64::total_cmp);
    [0.25, 0.5, 0.75].map(|share| values[(share * (values.len() - 1) as f64) as usize])
}

fn compare(name: &str, pool: &mut Pool, pairs: usize, work: Duration) {
    let mut times = WAYS.map(|_| Vec::new());
    let mut extra = Vec::new();
    // The first round warms up and does not count.
    for round in 0..=ROUNDS {
        let mut sums = [0.0; WAYS.len()];
        for way in (0..WAYS.len()).chain((0..WAYS.len()).rev()) {
            sums[way] += block(pool, WAYS[way].1, pairs, work) / 2.0;
        }
        if round > 0 {
            times.iter_mut().zip(sums).for_each(|(times, sum)| times.push(sum));
            let [one, turns, all] = sums;
            extra.push(2.0 * turns - one - all);
        }
    }
    println!(
        "{name}, {} threads, {ROUNDS} rounds of twice {} jobs each",
        pool.threads(),
        2 * pairs
    );
    for ((way, _), times) in WAYS.iter().zip(times) {
        let [low, median, high] = quartiles(times);
        println!("  {way:<20} {median:8.3} us a job ({low:.3} to {high:.3})");
    }
    let [low, median, high] = quartiles(extra);
    println!("  {:<20} {median:8.3} us ({low:.3} to {high:.3})", "down and up, extra");
}

fn main() {
    let machine = Machine::read().expect("the machine's description");
    let cpus: Vec<_> = machine.cpus().iter().map(|cpu| cpu.id).collect();
    if cpus.len() < 2 {
        println!("one cpu: nobody can be left out");
        return;
    }
    let long = Spin::For(Duration::from_millis(100));
    compare("awake", &mut pool(&cpus, long), 2000, Duration::ZERO);
    compare("asleep", &mut pool(&cpus, Spin::Never), 100, Duration::ZERO);
    compare("apart", &mut pool(&cpus, Spin::Auto), 50, Duration::from_micros(200));
}
