//! Chapter 3 of the tutorial: where weights, keys and values, and activations lie on two memory nodes.
#![forbid(unsafe_code)]

use arclight_engine::{BatchEntry, Engine, LoadOptions, ModelFile, Outputs};
use arclight_examples::{model_path, run};
use std::process::ExitCode;
use tokenizer::{EncodeOptions, Tokenizer};

fn main() -> ExitCode {
    run(|| {
        let file = ModelFile::open(model_path())?;
        let tokenizer = Tokenizer::from_gguf(file.gguf()?.metadata())?;
        let prompt = tokenizer.encode("Once upon a time", EncodeOptions::default())?;
        let mut answers: Vec<Vec<f32>> = Vec::new();
        for nodes in [1, 2] {
            let options = LoadOptions {
                nodes: Some(nodes),
                threads: Some(2),
                context: Some(256),
                ..LoadOptions::default()
            };
            let mut engine = Engine::load(&file, &options, &mut |_| {})?;
            println!("with {nodes} of them, {}:", engine.report().mode);

            let sequence = engine.new_sequence()?;
            let entry = BatchEntry { sequence, tokens: &prompt, outputs: Outputs::Last };
            answers.push(engine.step(&[entry])?.row(0).to_vec());
            sizes(&engine);
            pages(&mut engine);
            moved(&mut engine);
        }
        let bits = |answer: &[f32]| answer.iter().map(|x| x.to_bits()).collect::<Vec<u32>>();
        let same = bits(&answers[0]) == bits(&answers[1]);
        println!("{} logits, the same bits: {same}", answers[0].len());
        Ok(())
    })
}

/// What each node has, as it was planned.
fn sizes(engine: &Engine) {
    for (node, of) in engine.report().nodes.iter().enumerate() {
        let [weights, kv, activations] = [of.weights, of.kv, of.activations].map(|b| b / 1024);
        println!(
            "  node {node}: {weights} KiB of weights, {kv} of KV pages, {activations} of activations"
        );
    }
}

/// Where the pages of memory are, as the kernel says; in a container it may refuse to.
fn pages(engine: &mut Engine) {
    let placement = match engine.placement() {
        Ok(placement) => placement,
        Err(error) => return println!("  where pages are: {error}"),
    };
    for arena in &placement.arenas {
        let of = arena.group.map_or("all".to_owned(), |group| format!("group {group}"));
        let on: Vec<String> = (arena.pages.by_node.iter())
            .map(|(node, pages)| format!("{pages} on node {node}"))
            .collect();
        let (on, absent) = (on.join(", "), arena.pages.absent);
        println!("  {} of {of}, {}: {on}, {absent} never written", arena.name, arena.policy);
    }
}

/// What the threads of each group have read and sent in the step.
fn moved(engine: &mut Engine) {
    for (group, of) in engine.activity().counts.places.iter().enumerate() {
        let [weights, kv, exchanged] = [of.weights, of.kv, of.exchanged].map(|b| b / 1024);
        println!(
            "  group {group} read {weights} KiB of weights, {kv} of keys and values; \
             {exchanged} KiB went between nodes"
        );
    }
}
