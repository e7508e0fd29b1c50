//! Chapter 5 of the tutorial: an architecture of its own, compiled, run and compared with plain Rust.
#![forbid(unsafe_code)]

mod letters;

use arclight_examples::{Ended, run};
use gguf::Gguf;
use graph::{Executor, KvType, Limits, Outputs, Plan, SeqInput};
use kernels::Kernels;
use letters::{EPS, LAYERS, LETTERS, N};
use std::process::ExitCode;
use topology::{CpuId, Group, Machine};

fn main() -> ExitCode {
    run(|| {
        let file = letters::write()?;
        let gguf = Gguf::parse(&file)?;
        for nodes in [1, 2] {
            let graph = letters::build(nodes, &gguf)?;
            let group = Group::unbound(vec![CpuId(0)]);
            let plan = Plan { pin: false, ..Plan::new(vec![group; nodes]) };
            let limits =
                Limits { kv: KvType::F32.into(), tokens: 1, outputs: 1, pages: [0; 4], ranges: 1 };
            let (kernels, machine) = (Kernels::detect()?, Machine::read()?);
            let executor =
                Executor::new(graph, plan, limits, kernels, &machine, &gguf, &mut |_| {});
            go_on(&mut executor?)?;
        }
        Ok(())
    })
}

/// Begins with `a`, and goes on with the likeliest letter.
fn go_on(executor: &mut Executor) -> Ended {
    let (mut token, mut off, mut text) = (0, 0.0, String::new());
    for past in 0..13 {
        text.push(char::from(LETTERS[token]));
        let (tokens, tables) = ([token as u32], []);
        let input = SeqInput::new(&tokens, past, &tables, Outputs::Last);
        let logits = executor.step([input].into_iter())?.row(0);
        let both = logits.iter().map(|&x| f64::from(x)).zip(plain(token));
        off = both.map(|(x, y)| (x - y).abs()).fold(off, f64::max);
        token = (0..N).max_by(|&i, &j| logits[i].total_cmp(&logits[j])).unwrap_or(0);
    }
    println!("on {} nodes: {text}, off by {off:.0e} at most", executor.graph().nodes());
    Ok(())
}

/// The logits behind a letter, in plain Rust.
fn plain(token: usize) -> Vec<f64> {
    let mut x: Vec<f64> = (0..N).map(|letter| f64::from(letter == token)).collect();
    for _ in 0..LAYERS {
        let mean = x.iter().map(|x| x * x).sum::<f64>() / N as f64;
        let norm = (mean + f64::from(EPS)).sqrt();
        let h: Vec<f64> = x.iter().map(|x| (x / norm).max(0.0)).collect();
        for (letter, h) in h.iter().enumerate() {
            x[letter] -= h;
            x[(letter + 1) % N] += h;
        }
    }
    x
}
