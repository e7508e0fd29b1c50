//! What the sampler picks.

use super::*;

const LOGITS: [f32; 6] = [1.0, 3.0, 2.0, f32::NAN, 0.0, -1.0];

fn params() -> SamplerParams {
    SamplerParams { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0, ..SamplerParams::default() }
}

fn histogram(params: SamplerParams, draws: u32) -> Vec<f64> {
    let mut sampler = Sampler::new(params).unwrap();
    let mut counts = vec![0.0; LOGITS.len()];
    for _ in 0..draws {
        counts[sampler.sample(&LOGITS) as usize] += 1.0 / f64::from(draws);
    }
    counts
}

#[test]
fn greedy_takes_the_likeliest_and_lowest_id() {
    let mut s = Sampler::new(SamplerParams::greedy()).unwrap();
    assert_eq!(s.sample(&LOGITS), 1);
    assert_eq!(s.sample(&[5.0, 5.0]), 0);
    assert_eq!(s.sample(&[f32::NAN, f32::NEG_INFINITY]), 0);
}

#[test]
fn draws_follow_the_softmax() {
    // Probabilities of e^1, e^3, e^2, e^0, e^-1 over their sum.
    let want = [0.0861, 0.6364, 0.2341, 0.0, 0.0317, 0.0117];
    for (got, want) in histogram(params(), 100_000).iter().zip(want) {
        // Five standard deviations of a proportion over 100,000 draws are at most 0.008.
        assert!((got - want).abs() < 0.008, "{got} against {want}");
    }
}

#[test]
fn temperature_sharpens_before_the_cuts() {
    // At 0.5 the likeliest has 0.8647 of the total: top_p of 0.86 keeps it alone.
    let cold = SamplerParams { temperature: 0.5, top_p: 0.86, ..params() };
    assert_eq!(histogram(cold, 1000)[2], 0.0);
    let warm = SamplerParams { top_p: 0.86, ..params() };
    assert!(histogram(warm, 1000)[2] > 0.0);
}

#[test]
fn each_cut_keeps_what_it_should() {
    let support = |p| histogram(p, 3000).iter().map(|&c| c > 0.0).collect::<Vec<_>>();
    assert_eq!(
        support(SamplerParams { top_k: 2, ..params() }),
        [false, true, true, false, false, false]
    );
    // 0.6364 is below 0.7, so the second is needed.
    assert_eq!(
        support(SamplerParams { top_p: 0.7, ..params() }),
        [false, true, true, false, false, false]
    );
    // e^-2 = 0.135 of the likeliest is kept, e^-3 is not.
    assert_eq!(
        support(SamplerParams { min_p: 0.13, ..params() }),
        [true, true, true, false, false, false]
    );
    assert_eq!(
        support(SamplerParams { min_p: 0.13, top_p: 0.99, ..params() }),
        [true, true, true, false, false, false]
    );
}

#[test]
fn penalties_count_prompt_and_answer_as_documented() {
    let mut s = Sampler::new(SamplerParams {
        repetition_penalty: 2.0,
        presence_penalty: 0.25,
        frequency_penalty: 0.5,
        ..SamplerParams::greedy()
    })
    .unwrap();
    s.observe_prompt(&[1]);
    // 3 / 2 = 1.5 against 2: the token of the prompt loses.
    assert_eq!(s.sample(&[0.0, 3.0, 2.0]), 2);
    // 2 / 2 - 0.25 - 0.5 = 0.25 against 1.5.
    assert_eq!(s.sample(&[0.0, 3.0, 2.0]), 1);
    // Negative logits are multiplied: -1 * 2 - 0.75 against -2.
    assert_eq!(s.sample(&[-2.0, -1.0, -9.0]), 0);
}

#[test]
fn seeds_repeat_and_differ() {
    let run = |seed| {
        let mut s = Sampler::new(SamplerParams { seed, ..params() }).unwrap();
        (0..50).map(|_| s.sample(&LOGITS)).collect::<Vec<_>>()
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
}

#[test]
fn biases_are_added_and_bar_tokens() {
    let biased =
        |bias: &[(u32, f32)], params| SamplerParams { logit_bias: bias.to_vec(), ..params };
    let greedy = |bias: &[(u32, f32)]| {
        Sampler::new(biased(bias, SamplerParams::greedy())).unwrap().sample(&LOGITS)
    };
    assert_eq!(greedy(&[(4, 3.5)]), 4);
    assert_eq!(greedy(&[(1, -100.0)]), 2);
    let barred = histogram(biased(&[(1, f32::NEG_INFINITY)], params()), 2000);
    assert!(barred[1] == 0.0 && barred[2] > 0.0, "{barred:?}");
    let odd = biased(&[(1, f32::NAN)], params());
    assert!(Sampler::new(odd).unwrap_err().to_string().contains("logit_bias"));
}

#[test]
fn a_mask_leaves_nothing_else() {
    for params in [SamplerParams::greedy(), params()] {
        let mut s = Sampler::new(params).unwrap();
        let mut among = |mask: u32| s.sample_among(&LOGITS, Some(&[mask]));
        for _ in 0..50 {
            assert!(matches!(among(0b110101), Some(0 | 2 | 4 | 5)));
            assert_eq!(among(0b100000), Some(5));
            // Not a number, but the only one.
            assert_eq!(among(0b001000), Some(3));
            assert_eq!(among(0), None);
        }
    }
}

#[test]
fn logprobs_are_those_of_the_softmax() {
    let logits = [1.0f32, 3.0, 2.0, 0.0];
    let total = logits.iter().map(|l| l.exp()).sum::<f32>().ln();
    let sampler = Sampler::new(params()).unwrap();
    let got = sampler.logprobs(&logits, 3, 2);
    let close = |a: f32, b: f32| (a - b).abs() < 1e-6; // some ulps of numbers below 4
    assert!(close(got.chosen, 0.0 - total), "{got:?}");
    assert_eq!(got.top.iter().map(|t| t.0).collect::<Vec<_>>(), [1, 2]);
    assert!(close(got.top[0].1, 3.0 - total) && close(got.top[1].1, 2.0 - total), "{got:?}");
    assert!(sampler.logprobs(&logits, 1, 0).top.is_empty());
    assert_eq!(sampler.logprobs(&logits, 1, 9).top.len(), 4);
}

#[test]
fn bad_parameters_are_named() {
    for (params, name) in [
        (SamplerParams { temperature: -1.0, ..params() }, "temperature"),
        (SamplerParams { top_p: 0.0, ..params() }, "top_p"),
        (SamplerParams { min_p: 1.5, ..params() }, "min_p"),
        (SamplerParams { repetition_penalty: f32::NAN, ..params() }, "repetition_penalty"),
    ] {
        assert!(Sampler::new(params).unwrap_err().to_string().contains(name));
    }
}

/// A row of `len` logits in which some are equal, and one is NaN.
fn row(len: usize, seed: u64) -> Vec<f32> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut row: Vec<f32> = (0..len).map(|_| (rng.f32() * 40.0).round() * 0.5 - 8.0).collect();
    row[len / 2] = f32::NAN;
    row
}

#[test]
fn the_likeliest_are_those_of_a_sorted_vocabulary() {
    for (len, seed) in [(1000, 1), (5000, 2), (20_001, 3)] {
        let row = row(len, seed);
        let mut sorted: Vec<u32> = (0..len as u32).filter(|t| !row[*t as usize].is_nan()).collect();
        sorted.sort_by(|&a, &b| row[b as usize].total_cmp(&row[a as usize]).then(a.cmp(&b)));
        let mut room = Room::default();
        for k in [1, 2, 40, 157, 999, len - 1, len] {
            let best: Vec<u32> = room.best(&row, k).iter().map(|c| c.1).collect();
            assert_eq!(best, sorted[..k.min(len - 1)], "{k} of {len}");
        }
    }
}

#[test]
fn shares_of_a_large_vocabulary_are_cut_where_they_should_be() {
    let row = row(20_000, 4);
    let max = greatest(&row);
    let weight = |l: f32| if l.is_nan() { 0.0 } else { f64::from(l - max).exp() };
    let mut weights: Vec<f64> = row.iter().map(|&l| weight(l)).collect();
    weights.sort_by(|a, b| b.total_cmp(a));
    let total: f64 = weights.iter().sum();
    for top_p in [0.1, 0.5, 0.9] {
        let mut sampler = Sampler::new(SamplerParams { top_p, ..params() }).unwrap();
        let drawn: std::collections::HashSet<u32> =
            (0..4000).map(|_| sampler.sample(&row)).collect();
        let (mut sum, mut least, mut cut) = (0.0, 0.0, 0);
        for weight in &weights {
            (sum, least, cut) = (sum + weight, *weight, cut + 1);
            if sum >= total * f64::from(top_p) {
                break;
            }
        }
        // All drawn are among the cut, and of thousands of draws most or many are of its own tokens.
        assert!(drawn.iter().all(|t| weight(row[*t as usize]) >= least * 0.999), "{top_p}");
        assert!(drawn.len() * 2 > cut.min(1000), "{top_p}: {} of {cut}", drawn.len());
    }
}

#[test]
fn a_window_forgives_what_was_long_ago() {
    // Twice the penalty takes token 1 below token 2; a window of one token forgets it when 2 has come.
    let of = |repetition_window| {
        let params =
            SamplerParams { repetition_penalty: 2.0, repetition_window, ..SamplerParams::greedy() };
        let mut sampler = Sampler::new(params).unwrap();
        sampler.observe_prompt(&[1]);
        (0..4).map(|_| sampler.sample(&[0.0, 3.0, 2.0, 1.2])).collect::<Vec<_>>()
    };
    assert_eq!(of(Some(1)), [2, 1, 2, 1]);
    assert_eq!(of(Some(0)), [1, 1, 1, 1]);
    assert_eq!(of(Some(2)), [2, 1, 1, 2]);
    assert_eq!(of(None), [2, 1, 1, 1]);
}

/// The definition of a cut by `top_p` and `min_p`, and of the order in which tokens are laid out for the draw.
fn laid_out(logits: &[f32], scale: f32, top_p: f32, min_p: f32) -> Vec<Candidate> {
    let max = greatest(logits);
    let mut weights: Vec<f32> = logits
        .iter()
        .map(|&l| if l <= max { (l - max) * scale } else { f32::NEG_INFINITY })
        .collect();
    Kernels::detect().unwrap().exp(&mut weights);
    if top_p >= 1.0 && min_p == 0.0 {
        return weights.into_iter().zip(0..).collect();
    }
    let eighth = |l: f32| (((max - l) * scale * 8.0) as usize).min(255);
    let mut sorted: Vec<u32> =
        (0..logits.len() as u32).filter(|t| !logits[*t as usize].is_nan()).collect();
    sorted.sort_by(|&a, &b| logits[b as usize].total_cmp(&logits[a as usize]).then(a.cmp(&b)));
    let limit = f64::from(top_p) * weights.iter().map(|w| f64::from(*w)).sum::<f64>();
    let mut sum = 0.0;
    let count = sorted.iter().position(|t| {
        sum += f64::from(weights[*t as usize]);
        sum >= limit
    });
    sorted.truncate(count.map_or(sorted.len(), |at| at + 1));
    let cut = eighth(logits[*sorted.last().unwrap() as usize]);
    // Whole eighths by their ids, the eighth of the cut from the likeliest on.
    let whole = sorted.iter().filter(|t| eighth(logits[**t as usize]) < cut).count();
    sorted[..whole].sort_unstable();
    let all = sorted.iter().map(|t| (weights[*t as usize], *t));
    all.filter(|c| c.0 >= min_p).collect()
}

#[test]
fn draws_are_those_of_the_definition() {
    let mut rng = fastrand::Rng::with_seed(5);
    let mut bell = || (0..12).map(|_| rng.f32()).sum::<f32>() - 6.0;
    let flat: Vec<f32> = (0..3001).map(|_| 0.3 * bell()).collect();
    let mut peaked: Vec<f32> = (0..5000).map(|_| 2.5 * bell()).collect();
    (0..20).for_each(|i| peaked[i * 211] = 9.0 - 0.3 * i as f32);
    let equal = row(4000, 6);
    for (logits, temperature) in [(&flat, 1.0), (&peaked, 1.0), (&peaked, 0.6), (&equal, 2.0)] {
        for (top_p, min_p) in [(0.95, 0.0), (0.5, 0.0), (0.05, 0.0), (0.99, 0.02), (1.0, 0.0)] {
            let kept = laid_out(logits, f32::recip(temperature), top_p, min_p);
            let sum: f64 = kept.iter().map(|c| f64::from(c.0)).sum();
            let mut own = fastrand::Rng::with_seed(9);
            let params = SamplerParams { temperature, top_p, min_p, seed: 9, ..params() };
            let mut sampler = Sampler::new(params).unwrap();
            for at in 0..300 {
                // Sums that are rounded otherwise move a border by some 1e-13 of the whole: of a few thousand draws
                // none falls between.
                let want = draw(kept.iter().copied(), own.f64() * sum);
                assert_eq!(
                    Some(sampler.sample(logits)),
                    want,
                    "{temperature} {top_p} {min_p} {at}"
                );
            }
        }
    }
}
