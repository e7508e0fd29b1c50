//! `count`: a prompt and decode steps between the marks of the access-counting plugin.

use crate::error::Error;
use crate::load::LoadArgs;
use crate::marker::{self, Mark};
use crate::script;
use arclight_engine::{BatchEntry, Outputs};
use clap::Args;
use std::fs;

/// Steps before the count begins: first use of buffers and KV pages.
const WARM_UP: usize = 2;

#[derive(Args, Debug)]
pub(crate) struct CountArgs {
    #[command(flatten)]
    load: LoadArgs,
    /// Threads [default: the engine's choice]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Tokens to decode between the marks
    #[arg(long, value_name = "N", default_value_t = 8)]
    tokens: usize,
    /// Count a prompt of so many tokens first, which is computed twice: the second time counts
    #[arg(long, value_name = "N")]
    prompt: Option<usize>,
    /// Print this process's memory map at the end, to name the plugin's pages (its `top=N`)
    #[arg(long)]
    maps: bool,
}

/// Runs the command. Tokens are pseudo-random: nothing is sampled, as in `llama-bench`.
pub(crate) fn run(args: &CountArgs) -> Result<(), Error> {
    let mut engine = args.load.load(args.threads)?;
    let plan = engine.plan();
    println!("threads {} nodes {}", plan.threads(), plan.groups.len());
    if let Some(count) = args.prompt {
        let prompt = script::tokens(count, engine.hparams().vocab);
        for counts in [false, true] {
            let sequence = engine.new_sequence()?;
            if counts {
                marker::send(Mark::Start);
            }
            engine.step(&[BatchEntry { sequence, tokens: &prompt, outputs: Outputs::Last }])?;
            engine.free(sequence)?;
        }
        marker::send(Mark::Stop);
        marker::send(Mark::Report);
        println!("counted a prompt of {count} tokens");
    }
    let sequence = engine.new_sequence()?;
    let tokens = script::tokens(WARM_UP + args.tokens, engine.hparams().vocab);
    for (i, token) in tokens.iter().enumerate() {
        // From the first mark on the plugin's cache model takes accesses, and keeps them.
        if i == WARM_UP - 1 || i == WARM_UP {
            marker::send(Mark::Start);
        }
        let tokens = std::slice::from_ref(token);
        engine.step(&[BatchEntry { sequence, tokens, outputs: Outputs::Last }])?;
    }
    marker::send(Mark::Stop);
    marker::send(Mark::Report);
    println!("counted {} tokens", args.tokens);
    if args.maps {
        let path = "/proc/self/maps";
        let maps = fs::read_to_string(path);
        print!("{}", maps.map_err(|source| Error::Io { verb: "read", path: path.into(), source })?);
    }
    Ok(())
}
