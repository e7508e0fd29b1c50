//! Time to pick a token from a large vocabulary: `cargo bench -p arclight-engine --bench sampler`.

use arclight_engine::{Sampler, SamplerParams};
use std::hint::black_box;
use std::time::Instant;

const VOCAB: usize = 152_000;
const ROUNDS: usize = 200;

fn main() {
    // Bell-shaped, as logits of trained models are, with some that stand out.
    let mut rng = fastrand::Rng::with_seed(1);
    let mut bell = || (0..12).map(|_| rng.f32()).sum::<f32>() - 6.0;
    let mut logits: Vec<f32> = (0..VOCAB).map(|_| 2.5 * bell()).collect();
    for (at, logit) in (0..20).map(|i| (i * 7001, 14.0 - 0.3 * i as f32)) {
        logits[at] = logit;
    }
    let off =
        SamplerParams { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0, ..Default::default() };
    let cases = [
        ("greedy", SamplerParams::greedy()),
        ("default", SamplerParams::default()),
        ("nothing cut", off.clone()),
        ("top_p 0.95", SamplerParams { top_p: 0.95, ..off.clone() }),
        ("min_p 0.05", SamplerParams { min_p: 0.05, ..off.clone() }),
        ("presence_penalty 0.5", SamplerParams { presence_penalty: 0.5, ..Default::default() }),
    ];
    for (name, params) in cases {
        let mut sampler = Sampler::new(params).expect("parameters within their ranges");
        let mut times: Vec<f64> = (0..ROUNDS)
            .map(|_| {
                let start = Instant::now();
                let token = sampler.sample(black_box(&logits));
                let time = start.elapsed().as_secs_f64();
                assert!(token < VOCAB as u32);
                time * 1e6
            })
            .collect();
        times.sort_unstable_by(f64::total_cmp);
        let at = |share: f64| times[(share * (ROUNDS - 1) as f64) as usize];
        println!("{name:<22} {:8.1} us (quartiles {:.1}, {:.1})", at(0.5), at(0.25), at(0.75));
    }
}
