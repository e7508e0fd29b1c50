//! Prints what the model of time gives for the published figures: tables for ArcLight's figures 10 and
//! 11 and for Arm's text, which `docs/cost-model.md` quotes.
//!
//! `cargo run -p arclight-tune --example figures`. The plots are drawn by `arclight plan --plot`.

use arclight_tune as tune;
use tune::{Engine, Job, MachineModel, ModelGraphs, Pages, Prediction, Work, known, predict};

/// A prompt of 15 tokens and half of the 256 generated ones, as in the ArcLight paper.
const CONTEXT: usize = 15 + 128;

/// The prompt of ArcLight's figure 13.
const PROMPT: Job = Job { tokens: 300, context: 0, chunk: 512, sequences: 1 };

fn engines() -> [(&'static str, Engine); 5] {
    [
        ("this engine, Sync B", Engine::tensor_parallel()),
        ("this engine, Sync A", Engine::tensor_parallel_sync_a()),
        ("ArcLight (paper), Sync B", known::arclight(4)),
        ("ArcLight (paper), Sync A", known::arclight_sync_a(4)),
        ("llama.cpp, unplaced", known::llama_cpp()),
    ]
}

struct Case {
    machine: MachineModel,
    model: ModelGraphs<'static>,
}

impl Case {
    fn run(
        &self,
        engine: &Engine,
        nodes: usize,
        per_node: usize,
    ) -> Result<Prediction, tune::Error> {
        let threads = tune::threads_on(&self.machine, nodes, per_node);
        predict(&self.machine, &engine.step(&self.model, Work::decode(CONTEXT), &threads)?)
    }

    fn speed(&self, engine: &Engine, nodes: usize, per_node: usize) -> Result<f64, tune::Error> {
        Ok(self.run(engine, nodes, per_node)?.tokens_per_second())
    }

    fn table(&self, nodes: usize) -> Result<(), tune::Error> {
        println!("\n## {nodes} node(s), tokens/s\n");
        print!("| threads |");
        engines().iter().for_each(|(name, _)| print!(" {name} |"));
        println!(" ArcLight B / llama.cpp | ours B / llama.cpp |");
        println!("|---:|{}", "---:|".repeat(7));
        for per_node in (6..=48).step_by(6) {
            print!("| {} |", nodes * per_node);
            for (_, engine) in engines() {
                print!(" {:.1} |", self.speed(&engine, nodes, per_node)?);
            }
            let unplaced = self.speed(&known::llama_cpp(), nodes, per_node)?;
            let arclight = self.speed(&known::arclight(4), nodes, per_node)?;
            let ours = self.speed(&Engine::tensor_parallel(), nodes, per_node)?;
            println!(" {:.2} | {:.2} |", arclight / unplaced, ours / unplaced);
        }
        Ok(())
    }

    /// Where the time of a token goes with all threads of `nodes` nodes.
    fn breakdown(&self, name: &str, engine: &Engine, nodes: usize) -> Result<(), tune::Error> {
        let prediction = self.run(engine, nodes, 48)?;
        println!(
            "\n## {name}, {nodes} nodes x 48: {:.2} ms a token, most of it on {}\n",
            prediction.seconds * 1e3,
            prediction.bottleneck
        );
        println!(
            "| stage | working, ms | serial, ms | waiting, ms | limit |\n|---|---:|---:|---:|---|"
        );
        for stage in &prediction.stages {
            let limit = stage.limit.map_or("-".into(), |limit| limit.to_string());
            let ms = [stage.working, stage.alone, stage.waiting].map(|s| format!("{:.2}", s * 1e3));
            println!("| {} | {} | {limit} |", stage.name, ms.join(" | "));
        }
        Ok(())
    }

    /// What the fitted share of pages on node 0 decides.
    fn sensitivity(&self) -> Result<(), tune::Error> {
        println!("\n## All cores, by the share of the unplaced engine's pages on node 0\n");
        println!(
            "| share | llama.cpp 1, 2, 4 nodes, tokens/s | ArcLight B / llama.cpp | ours / llama.cpp |"
        );
        println!("|---:|---|---|---|");
        let fitted = known::MACHINES[0].home_share.value;
        for share in [0.25, 0.4, 0.5, fitted, 0.6, 0.8, 1.0] {
            let unplaced = Engine::unplaced(Pages::first_touch(0, share, self.machine.nodes())?);
            let mut columns = [const { Vec::new() }; 3];
            for nodes in [1, 2, 4] {
                let base = self.speed(&unplaced, nodes, 48)?;
                columns[0].push(format!("{base:.1}"));
                for (column, engine) in [(1, known::arclight(4)), (2, Engine::tensor_parallel())] {
                    columns[column].push(format!("{:.2}", self.speed(&engine, nodes, 48)? / base));
                }
            }
            println!("| {share:.3} | {} |", columns.map(|c| c.join(", ")).join(" | "));
        }
        Ok(())
    }

    /// All cores taking a prompt.
    fn prompts(&self) -> Result<(), tune::Error> {
        println!("\n## A prompt of 300, all cores, tokens/s\n");
        print!("| nodes x 48 |");
        engines().iter().for_each(|(name, _)| print!(" {name} |"));
        println!(" ArcLight B / llama.cpp |\n|---:|{}", "---:|".repeat(6));
        for nodes in [1, 2, 4] {
            print!("| {nodes} |");
            let threads = tune::threads_on(&self.machine, nodes, 48);
            let speed = |engine: &Engine| {
                let prediction = PROMPT.predict(&self.machine, engine, &self.model, &threads)?;
                Ok::<f64, tune::Error>(prediction.tokens_per_second())
            };
            for (_, engine) in engines() {
                print!(" {:.0} |", speed(&engine)?);
            }
            println!(" {:.2} |", speed(&known::arclight(4))? / speed(&known::llama_cpp())?);
        }
        Ok(())
    }
}

/// Speeds on Arm's machine, over threads.
fn arm() -> Result<(), tune::Error> {
    let (machine, model) = (known::neoverse_n2(), known::llama3_8b_q4_0());
    println!("\n## Llama 3 8B Q4_0 on 2 x 64 Neoverse N2, decoding, tokens/s\n");
    println!(
        "| threads | llama.cpp | with Arm's patch | this engine, Sync B |\n|---:|---:|---:|---:|"
    );
    let speed = |engine: &Engine, threads: &[usize]| {
        let prediction = predict(&machine, &engine.step(&model, Work::decode(192), threads)?)?;
        Ok::<f64, tune::Error>(prediction.tokens_per_second())
    };
    for threads in (8..=128_usize).step_by(8) {
        let filled = [threads.min(64), threads.saturating_sub(64)];
        let even = [threads / 2; 2];
        let base = speed(&known::llama_cpp_on_n2(), if threads > 64 { &even } else { &filled })?;
        let patched = speed(&known::llama_cpp_numa_aware(), &even)?;
        let ours = speed(&Engine::tensor_parallel(), &even)?;
        println!("| {threads} | {base:.1} | {patched:.1} | {ours:.1} |");
    }
    Ok(())
}

/// What Arm's text states beside what the model gives.
fn arm_stated() -> Result<(), tune::Error> {
    let (machine, model) = (known::neoverse_n2(), known::llama3_8b_q4_0());
    let (base, patched) = (known::llama_cpp_on_n2(), known::llama_cpp_numa_aware());
    let work = Work::decode(192);
    let decode = |engine: &Engine, threads: [usize; 2]| {
        let step = engine.step(&model, work, &threads)?;
        let seconds = predict(&machine, &step)?.seconds;
        let bytes: f64 = step.reads().iter().flatten().sum();
        Ok::<(f64, f64), tune::Error>((1.0 / seconds, bytes / seconds / 1e9))
    };
    let both = |engine: &Engine, threads: [usize; 2]| {
        let job = Job { tokens: 128, context: 0, chunk: 512, sequences: 1 };
        let prompt = job.predict(&machine, engine, &model, &threads)?;
        Ok::<f64, tune::Error>(256.0 / (prompt.seconds + 128.0 / decode(engine, threads)?.0))
    };
    println!("\n## Arm's text and the model\n\n| what | stated | model | |\n|---|---:|---:|---:|");
    for (what, stated, model) in [
        ("base, 32 threads, answers, tokens/s", 26.52, decode(&base, [32, 0])?.0),
        ("patched, 40 threads, answers", 41.15, decode(&patched, [20, 20])?.0),
        ("base, 36 threads, prompt and answers", 48.73, both(&base, [36, 0])?),
        ("patched, 54 threads, prompt and answers", 74.67, both(&patched, [27, 27])?),
        ("base, 64 threads on node 0, GB/s", 104.9, decode(&base, [64, 0])?.1),
        ("base, 128 threads", 70.8, decode(&base, [64, 64])?.1),
        ("patched, 128 threads", 146.6, decode(&patched, [64, 64])?.1),
        ("patched, 54 threads", 196.8, decode(&patched, [27, 27])?.1),
    ] {
        println!("| {what} | {stated} | {model:.1} | {:+.0} % |", 100.0 * (model / stated - 1.0));
    }
    Ok(())
}

fn main() -> Result<(), tune::Error> {
    let case = Case { machine: known::kunpeng_920(), model: known::qwen3_4b_q4_0() };
    for nodes in [1, 2, 4] {
        case.table(nodes)?;
    }
    for nodes in [2, 4] {
        for (name, engine) in engines().iter().step_by(2) {
            case.breakdown(name, engine, nodes)?;
        }
    }
    case.sensitivity()?;
    case.prompts()?;
    arm()?;
    arm_stated()
}
