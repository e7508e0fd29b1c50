//! Requests of all kinds over several hosts, many at once.

use crate::hosts::{Hosts, options};
use arclight_engine::{
    LoadOptions, ModelFile, Pooling, ReplicaOptions, Replicas, Request, Rows, SamplerParams,
    Speculation,
};
use gguf::TensorType;
use std::sync::Arc;
use testkit::{Rng, TinyModel};

/// Texts that begin alike, and repeat themselves.
fn text(seed: u64, len: usize) -> Vec<u32> {
    let mut rng = Rng::new(seed);
    let verse: Vec<u32> = (0..9).map(|_| rng.below(200) as u32).collect();
    let chorus = [7, 8, 9, 10, 11, 12, 13, 14];
    verse.into_iter().chain(chorus).cycle().take(len).collect()
}

fn sampler(seed: u64) -> SamplerParams {
    match seed.is_multiple_of(2) {
        true => SamplerParams::greedy(),
        false => SamplerParams { seed, ..SamplerParams::default() },
    }
}

/// Everything that is told of many requests, in words.
fn told(replicas: &Replicas) -> Vec<String> {
    let mut told = Vec::new();
    let ask = |seed, len| Request {
        limit: Some(60),
        sampler: sampler(seed),
        logprobs: Some(2),
        ..Request::new(text(seed, len))
    };
    let mut tickets = Vec::new();
    for seed in 0..6 {
        tickets.push(replicas.submit(ask(seed, 30 + 20 * seed as usize)).unwrap());
    }
    // Several answers to one prompt.
    let several = (0..3).map(|seed| Request { sampler: sampler(2 * seed + 1), ..ask(9, 70) });
    tickets.extend(replicas.submit_all(several.collect()).unwrap());
    let whole = Request { prompt_logprobs: Some(1), ..ask(4, 90) };
    tickets.push(replicas.submit(whole).unwrap());
    for mut ticket in tickets {
        let tokens: Vec<_> = ticket.by_ref().map(Result::unwrap).collect();
        let (prompt, outcome) = (ticket.prompt_logprobs(), ticket.outcome().unwrap());
        told.push(format!("{prompt:?} {tokens:?} {:?}", outcome.stopped));
    }
    for (seed, pooling) in [(1, Pooling::Last), (2, Pooling::Mean), (3, Pooling::First)] {
        let request = Request { pooling: Some(pooling), ..Request::new(text(seed, 100)) };
        let mut ticket = replicas.submit(request).unwrap();
        assert!(ticket.next().is_none());
        told.push(format!("{:?}", ticket.pooled()));
    }
    let rows = Request { rows: Some(Rows::Logits), ..Request::new(text(5, 20)) };
    let mut ticket = replicas.submit(rows).unwrap();
    assert!(ticket.next().is_none());
    told.push(format!("{:?}", ticket.take_rows()));
    told
}

fn check(name: &str, model: Vec<u8>, options: &LoadOptions, speculation: Speculation) {
    let file = Arc::new(ModelFile::from_bytes("tiny", model.clone()));
    let load = |file: &Arc<ModelFile>, options: &LoadOptions, speculation: Speculation| {
        let always_speculate = true;
        let serving = ReplicaOptions { speculation, always_speculate, ..ReplicaOptions::default() };
        Replicas::load(file, options, &serving, &mut |_| {}).unwrap()
    };
    let one = load(&file, options, Speculation::Off);
    let want = told(&one);
    drop(one);
    let hosts = Hosts::run(model, 3, options);
    let several = load(&hosts.file, &hosts.front(options), speculation.clone());
    for round in 0..2 {
        let got = told(&several);
        for (got, want) in got.iter().zip(&want) {
            assert!(got == want, "{name}, round {round}: {got} is not {want}");
        }
    }
    let counters = several.counters();
    let guesses = matches!(speculation, Speculation::Lookup(_));
    assert_eq!(counters.drafted_tokens > 0, guesses, "{name}: {counters:?}");
    assert!(counters.cached_tokens > 0);
}

#[test]
fn all_kinds_of_requests_are_answered_as_by_one_machine() {
    let options = LoadOptions { sequences: Some(6), ..options() };
    let dense = TinyModel { layers: 6, ..TinyModel::qwen3(TensorType::Q4_0) }.gguf();
    let hybrid = TinyModel { layers: 8, ..TinyModel::qwen35(TensorType::Q4_0) }.gguf();
    check("dense", dense.clone(), &options, Speculation::Off);
    check("dense, with guesses", dense, &options, Speculation::Lookup(4));
    check("states", hybrid.clone(), &options, Speculation::Off);
    check("states, with guesses", hybrid, &options, Speculation::Lookup(4));
}
