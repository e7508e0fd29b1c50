//! Time to pick a token from a large vocabulary, for one request and for each of 16 in turn, whose logits and samplers
//! are not all in the cache: `cargo bench -p arclight-engine --bench sampler`.

use arclight_engine::{Sampler, SamplerParams};
use std::hint::black_box;
use std::time::Instant;

const VOCAB: usize = 152_000;
const ROUNDS: usize = 200;

fn main() {
    // Bell-shaped, as logits of trained models are, with some that stand out; and all alike, as high temperatures make
    // them.
    let mut rng = fastrand::Rng::with_seed(1);
    let mut bell = || (0..12).map(|_| rng.f32()).sum::<f32>() - 6.0;
    let mut peaked: Vec<f32> = (0..VOCAB).map(|_| 2.5 * bell()).collect();
    for (at, logit) in (0..20).map(|i| (i * 7001, 14.0 - 0.3 * i as f32)) {
        peaked[at] = logit;
    }
    let flat: Vec<f32> = (0..VOCAB).map(|_| 0.3 * bell()).collect();
    let off =
        SamplerParams { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0, ..Default::default() };
    let cases = [
        ("greedy", &peaked, SamplerParams::greedy()),
        ("default", &peaked, SamplerParams::default()),
        ("nothing cut", &peaked, off.clone()),
        ("top_p 0.95", &peaked, SamplerParams { top_p: 0.95, ..off.clone() }),
        ("top_p 0.95, flat", &flat, SamplerParams { top_p: 0.95, ..off.clone() }),
        ("min_p 0.05", &peaked, SamplerParams { min_p: 0.05, ..off.clone() }),
        (
            "presence_penalty 0.5",
            &peaked,
            SamplerParams { presence_penalty: 0.5, ..Default::default() },
        ),
    ];
    for (name, logits, params) in cases {
        print!("{name:<22}");
        for requests in [1, 16] {
            let samplers = vec![params.clone(); requests].into_iter().map(Sampler::new);
            let mut samplers: Vec<Sampler> =
                samplers.collect::<Result<_, _>>().expect("parameters within their ranges");
            let rows = vec![logits.clone(); requests];
            let mut times: Vec<f64> = (0..ROUNDS)
                .map(|round| {
                    let start = Instant::now();
                    let token =
                        samplers[round % requests].sample(black_box(&rows[round % requests]));
                    let time = start.elapsed().as_secs_f64();
                    assert!(token < VOCAB as u32);
                    time * 1e6
                })
                .collect();
            times.sort_unstable_by(f64::total_cmp);
            let at = |share: f64| times[(share * (ROUNDS - 1) as f64) as usize];
            print!("   of {requests:2}: {:8.1} us ({:.1}, {:.1})", at(0.5), at(0.25), at(0.75));
        }
        println!();
    }
}
