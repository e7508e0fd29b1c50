//! How the products of a layer are scheduled by four searches that have the same micro-kernels: time and result, as
//! figure 7 of the Sandwich paper has it.
//!
//! `cargo bench -p arclight-tune --bench products -- [type bf16] [hidden 2048] [ffn 8192] [tokens 1,8,32,128,512]
//! [threads 2] [rounds 9] [seconds 60]`
//!
//! The ways of each product of one layer:
//!
//! | way | what it does |
//! |---|---|
//! | `default` | what the engine does without tuning: no search |
//! | `sandwich` | `tune::schedule`, which `arclight tune` uses: fast start, fine-tuning, prefetch, reuse over counts |
//! | `roller` | slices that fill caches, ranked by a model of time, the best of which are timed (see `rivals.rs`) |
//! | `model` | the same slices, and what the model says is taken |
//!
//! `seconds` is the most that `sandwich` may take for a matrix, of all its counts; otherwise it ends by itself.
//!
//! Then all of a product are timed in turns, `rounds` times. A line of JSON for each: the median seconds of a product,
//! its spread, what was searched and for how long. Weights come from memory as in a step. Nothing else may run.

mod rivals;

use arclight_tune::Error;
use arclight_tune::schedule::{Bench, Kernel, Problem, Schedule, Scheduler};
use arclight_tune::tuner::median;
use gguf::{Gguf, TensorType};
use graph::{Executor, KvType, Limits, Plan};
use kernels::Kernels;
use serde_json::json;
use std::time::{Duration, Instant};
use testkit::TinyModel;
use topology::{CpuId, Group, Machine};

/// Runs of products follow each other for so long, and the fastest counts: as in `arclight tune`.
const RUNS: Duration = Duration::from_millis(8);

/// What is measured.
struct Options {
    ty: TensorType,
    hidden: usize,
    ffn: usize,
    tokens: Vec<usize>,
    threads: usize,
    rounds: usize,
    seconds: f64,
}

impl Options {
    fn read() -> Result<Options, String> {
        let cores = Machine::read().map_err(|e| e.to_string())?.cpus().len();
        let mut options = Options {
            ty: TensorType::BF16,
            hidden: 2048,
            ffn: 8192,
            tokens: vec![1, 8, 32, 128, 512],
            threads: cores,
            rounds: 9,
            seconds: f64::INFINITY,
        };
        // Cargo adds a word of its own.
        let words: Vec<String> =
            std::env::args().skip(1).filter(|word| word != "--bench").collect();
        for pair in words.chunks(2) {
            let [name, value] = pair else { return Err(format!("{} has no value", pair[0])) };
            let number =
                |text: &str| text.parse::<usize>().map_err(|e| format!("{name} {text}: {e}"));
            match name.as_str() {
                "type" => {
                    let ty = TensorType::from_name(value);
                    options.ty = ty.ok_or_else(|| format!("no type {value}"))?;
                }
                "hidden" => options.hidden = number(value)?,
                "ffn" => options.ffn = number(value)?,
                "threads" => options.threads = number(value)?.clamp(1, cores),
                "rounds" => options.rounds = number(value)?.max(1),
                "seconds" => options.seconds = number(value)? as f64,
                "tokens" => {
                    options.tokens = value.split(',').map(number).collect::<Result<_, _>>()?;
                }
                _ => return Err(format!("no option {name}")),
            }
        }
        if !options.hidden.is_multiple_of(512)
            || !options.ffn.is_multiple_of(256)
            || options.tokens.contains(&0)
        {
            return Err("hidden must be a multiple of 512, ffn of 256, and tokens not 0".to_owned());
        }
        Ok(options)
    }
}

/// A layer's matrices on the machine.
struct Products {
    executor: Executor,
    kernels: &'static Kernels,
    timed: usize,
}

impl Products {
    fn new(gguf: &Gguf<'_>, machine: &Machine, options: &Options) -> Products {
        let graph = models::build(gguf, 1).expect("a graph").graph;
        let cpus: Vec<CpuId> = machine.cpus().iter().take(options.threads).map(|c| c.id).collect();
        let plan = Plan::new(vec![Group::unbound(cpus)]);
        let most = options.tokens.iter().copied().max().unwrap_or(1);
        let limits = Limits {
            kv: KvType::F16.into(),
            tokens: most,
            outputs: 1,
            pages: [1, 0, 0, 0],
            ranges: 0,
        };
        let kernels = Kernels::detect().expect("kernels");
        let executor = Executor::new(graph, plan, limits, kernels, machine, gguf, &mut |_| {});
        Products { executor: executor.expect("an executor"), kernels, timed: 0 }
    }
}

impl Bench for Products {
    type Error = graph::Error;

    fn kernels(&self, problem: &Problem, _tokens: usize) -> Vec<Kernel> {
        problem.candidates(self.kernels)
    }

    fn default(&self, problem: &Problem, tokens: usize) -> Schedule {
        problem.default_schedule(self.executor.plan(), self.kernels, tokens)
    }

    fn time(
        &mut self,
        problem: &Problem,
        tokens: usize,
        schedule: &Schedule,
    ) -> Result<f64, graph::Error> {
        self.timed += 1;
        let timed = self.executor.time_matrices(&problem.shape, 0, tokens, schedule, RUNS);
        // What cannot be run is no candidate.
        Ok(timed.unwrap_or(f64::INFINITY))
    }
}

/// What a search has come to.
struct Way {
    name: &'static str,
    /// By number of tokens, as the options have them.
    schedules: Vec<Schedule>,
    timed: usize,
    seconds: f64,
    /// Whether the search came to its end.
    complete: bool,
}

/// The searches for one matrix.
fn ways(bench: &mut Products, problem: &Problem, options: &Options) -> Result<Vec<Way>, Error> {
    let defaults: Vec<_> = options.tokens.iter().map(|&n| bench.default(problem, n)).collect();
    let none = Way {
        name: "default",
        schedules: defaults.clone(),
        timed: 0,
        seconds: 0.0,
        complete: true,
    };
    let (start, before) = (Instant::now(), bench.timed);
    let most = options.tokens.iter().copied().max().unwrap_or(1);
    let problems = [problem.clone()];
    let found = Scheduler::new(&problems, &[], most)
        .run(bench, &mut |_| options.seconds - start.elapsed().as_secs_f64())?;
    let tuned = |(&tokens, &default): (&usize, &Schedule)| {
        let table = found.schedules.matrices.first();
        table
            .and_then(|table| table.schedule(tokens))
            .map_or(default, |s| s.at(&problem.shape, tokens))
    };
    let sandwich = Way {
        name: "sandwich",
        schedules: options.tokens.iter().zip(&defaults).map(tuned).collect(),
        timed: bench.timed - before,
        seconds: start.elapsed().as_secs_f64(),
        complete: found.schedules.complete,
    };
    let mut all = vec![none, sandwich];
    for (name, most) in [("roller", rivals::TIMED), ("model", 0)] {
        let (start, before) = (Instant::now(), bench.timed);
        let rates = rivals::Rates::measure(bench, problem, options.threads);
        let schedules = options
            .tokens
            .iter()
            .map(|&n| rivals::choose(bench, problem, &rates, n, most))
            .collect();
        let (timed, seconds) = (bench.timed - before, start.elapsed().as_secs_f64());
        all.push(Way { name, schedules, timed, seconds, complete: true });
    }
    Ok(all)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = Options::read()?;
    let model = TinyModel {
        hidden: options.hidden,
        ffn: options.ffn,
        layers: 1,
        heads: options.hidden / 64,
        kv_heads: options.hidden / 256,
        head_dim: 64,
        ..TinyModel::qwen3(options.ty)
    };
    let bytes = model.gguf();
    let gguf = Gguf::parse(&bytes)?;
    let machine = Machine::read()?;
    let mut bench = Products::new(&gguf, &machine, &options);
    for shape in bench.executor.matrix_shapes().swap_remove(0) {
        let problem = Problem { shape: shape.shape, splits: vec![1], calls: shape.matrices };
        let most = options.tokens.iter().copied().max().unwrap_or(1);
        let default = bench.default(&problem, most);
        // Logits are made of one row at a time.
        if !bench.time(&problem, most, &default)?.is_finite() {
            continue;
        }
        let ways = ways(&mut bench, &problem, &options)?;
        for (at, &tokens) in options.tokens.iter().enumerate() {
            let mut times = vec![Vec::new(); ways.len()];
            for round in 0..options.rounds {
                for i in 0..ways.len() {
                    let turn = (i + round) % ways.len();
                    times[turn].push(bench.time(&problem, tokens, &ways[turn].schedules[at])?);
                }
            }
            for (way, mut times) in ways.iter().zip(times) {
                let middle = median(&times);
                times.sort_by(f64::total_cmp);
                let line = json!({
                    "matrix": shape.name,
                    "type": options.ty.to_string(),
                    "rows": problem.shape.parts.iter().map(|part| part.1).sum::<usize>(),
                    "cols": problem.shape.cols,
                    "tokens": tokens,
                    "threads": options.threads,
                    "way": way.name,
                    "seconds": middle,
                    "low": times[0],
                    "high": times[times.len() - 1],
                    "products_timed": way.timed,
                    "search_seconds": way.seconds,
                    "complete": way.complete,
                    "schedule": format!("{:?}", way.schedules[at]),
                });
                println!("{line}");
            }
        }
    }
    Ok(())
}
