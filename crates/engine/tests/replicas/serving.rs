//! What requests share, wait for and give up.

use super::*;
use arclight_engine::{
    BatchEntry, Constraint, Counters, KvSize, Outputs, Pooling, Rows, Speculation,
};

fn one(options: LoadOptions, serving: ReplicaOptions) -> Replicas {
    Replicas::load_on(&file(), &one_node(2), &options, &serving, &mut |_| {}).unwrap()
}

/// What was done since `before`.
fn since(replicas: &Replicas, before: Counters) -> Counters {
    let now = replicas.counters();
    Counters {
        prompt_tokens: now.prompt_tokens - before.prompt_tokens,
        cached_tokens: now.cached_tokens - before.cached_tokens,
        computed_tokens: now.computed_tokens - before.computed_tokens,
        generated_tokens: now.generated_tokens - before.generated_tokens,
        ..now
    }
}

#[test]
fn the_second_turn_of_a_chat_computes_only_what_is_new() {
    let replicas = one(options(2), ReplicaOptions::default());
    let first = Request { end_tokens: Vec::new(), ..request(100, 1) };
    let (answer, outcome) = replicas.submit(first).unwrap().wait().unwrap();
    assert_eq!((answer.len(), outcome.cached, outcome.timings.prompt_tokens), (12, 0, 100));
    let before = replicas.counters();
    assert_eq!((before.prompt_tokens, before.computed_tokens), (100, 100));
    assert_eq!(before.generated_tokens, 12);

    let second = [prompt(100, 1), answer, prompt(9, 77)].concat();
    let (want, _) = alone(&mut single(), &Request { prompt: second.clone(), ..request(1, 1) });
    let second = Request { prompt: second, ..request(1, 1) };
    let (answer, outcome) = replicas.submit(second).unwrap().wait().unwrap();
    // The last token of the first answer was sampled but never computed.
    assert_eq!((outcome.cached, outcome.timings.prompt_tokens), (111, 10));
    let done = since(&replicas, before);
    assert_eq!((done.prompt_tokens, done.cached_tokens, done.computed_tokens), (121, 111, 10));
    assert_eq!(answer, want);
}

#[test]
fn without_a_prefix_cache_all_is_computed() {
    let replicas = one(options(1), ReplicaOptions { prefix_cache: false, ..copies(1) });
    for _ in 0..2 {
        assert_eq!(serve(&replicas, request(70, 2)).cached, 0);
    }
    assert_eq!(replicas.counters().computed_tokens, 140);
    assert_eq!(replicas.status()[0].pages.cached, 0);
}

#[test]
fn answers_to_one_prompt_share_it() {
    let mut engine = single();
    let of = |seed| {
        let request = Request { prompt: prompt(75, 5), ..request(1, seed) };
        Request { limit: Some(40), end_tokens: Vec::new(), ..request }
    };
    // Seven answers, of which four can be given at once; odd seeds are sampled.
    let want: Vec<_> = (0..7).map(|seed| alone(&mut engine, &of(seed)).0).collect();
    for prefix_cache in [true, false] {
        let replicas = one(options(4), ReplicaOptions { prefix_cache, ..copies(1) });
        let tickets = replicas.submit_all((0..7).map(of).collect()).unwrap();
        let got: Vec<_> = tickets.into_iter().map(|t| t.wait().unwrap().0).collect();
        assert_eq!(got, want);
        let counters = replicas.counters();
        assert_eq!(counters.generated_tokens, 7 * 40);
        // The second three find all but the last token of the prompt.
        assert_eq!(counters.computed_tokens, if prefix_cache { 76 } else { 150 });
    }
}

#[test]
fn who_gives_up_pages_answers_as_if_it_had_not() {
    let mut engine = single();
    // Pages for 512 tokens in all; the requests want some 2,000.
    let of = |seed: u64| {
        let common = if seed.is_multiple_of(3) { prompt(64, 1000) } else { Vec::new() };
        let tokens = [common, prompt(20 + 13 * seed as usize, seed)].concat();
        Request { limit: Some(90), end_tokens: Vec::new(), prompt: tokens, ..request(1, seed) }
    };
    let want: Vec<_> = (0..10).map(|seed| alone(&mut engine, &of(seed)).0).collect();
    for prefix_cache in [true, false] {
        let options = LoadOptions { kv_size: KvSize::Tokens(512), ..options(6) };
        let replicas = one(options, ReplicaOptions { prefix_cache, ..copies(1) });
        let total = replicas.status()[0].pages.total;
        assert_eq!(total, 512 / 32 + 1);
        let priority = |seed: u64| (seed % 2) as i8;
        let submit = |seed| Request { priority: priority(seed), ..of(seed) };
        let tickets: Vec<_> = (0..10).map(|s| replicas.submit(submit(s)).unwrap()).collect();
        for (seed, ticket) in tickets.into_iter().enumerate() {
            assert_eq!(ticket.wait().unwrap().0, want[seed], "{seed}, prefix cache {prefix_cache}");
        }
        let status = replicas.status().remove(0);
        assert!(status.counters.preemptions > 0, "{status:?}");
        assert_eq!(usable(&status), total);
    }
}

#[test]
fn many_different_prompts_take_no_more_memory() {
    // A single thread waits for nobody; a whole page a prompt, so that something is kept of each.
    let options = LoadOptions {
        context: Some(64),
        step_tokens: Some(8 * 33),
        threads: Some(1),
        ..options(8)
    };
    let replicas = one(options, ReplicaOptions::default());
    let total = replicas.status()[0].pages.total;
    let short = |seed| Request { limit: Some(1), ..request(33, seed) };
    for first in (0..10_000).step_by(8) {
        let tickets = replicas.submit_all((first..first + 8).map(short).collect()).unwrap();
        tickets.into_iter().for_each(|t| drop(t.wait().unwrap()));
    }
    // Some begin with the same few tokens.
    let counters = replicas.counters();
    assert!(counters.cached_tokens < 33 * 10_000 / 100, "{counters:?}");
    let again = serve(&replicas, short(1));
    assert_eq!(again.cached, 0, "the oldest are gone");
    let status = replicas.status().remove(0);
    assert_eq!((status.pages.total, usable(&status)), (total, total));
}

#[test]
fn higher_priorities_go_first_and_late_requests_end() {
    let replicas = one(options(1), ReplicaOptions { queue: Some(2), ..copies(1) });
    let (first, go) = hold(&replicas, 30);
    let (order, ended) = channel();
    let tell = |name: &'static str, priority| {
        let (order, mut said) = (order.clone(), false);
        let stop: arclight_engine::StopHook = Box::new(move |_| {
            if !std::mem::replace(&mut said, true) {
                order.send(name).unwrap();
            }
            false
        });
        Request { stop: Some(stop), priority, end_tokens: Vec::new(), ..request(5, 0) }
    };
    let low = replicas.submit(tell("low", 0)).unwrap();
    let high = replicas.submit(tell("high", 1)).unwrap();
    let full = replicas.submit(request(5, 0)).err().unwrap();
    assert!(matches!(full, Error::QueueFull { waiting: 2 }), "{full}");
    drop(go);
    [first, low, high].into_iter().for_each(|t| drop(t.wait().unwrap()));
    assert_eq!(ended.try_iter().collect::<Vec<_>>(), ["high", "low"]);

    let now = Some(std::time::Instant::now());
    let late = replicas.submit(Request { deadline: now, ..request(5, 0) }).unwrap();
    assert!(matches!(late.wait(), Err(Error::Deadline)));
    // One that runs keeps what it has.
    let soon = std::time::Instant::now() + std::time::Duration::from_millis(100);
    let (request, go, began) = held(400);
    let ticket = replicas.submit(Request { deadline: Some(soon), ..request }).unwrap();
    began.recv().unwrap();
    std::thread::sleep(soon.saturating_duration_since(std::time::Instant::now()));
    drop(go);
    let (tokens, outcome) = ticket.wait().unwrap();
    assert_eq!((tokens.len(), outcome.stopped), (1, StopReason::Deadline));
}

/// Only multiples of a number, so many of them, then a token that ends.
struct Multiples {
    of: u32,
    left: usize,
    end: u32,
}

impl Constraint for Multiples {
    fn allow(&mut self, mask: &mut [u32]) -> Result<(), String> {
        for token in 0..mask.len() as u32 * 32 {
            let fits = if self.left > 0 { token % self.of == 0 } else { token == self.end };
            if !fits {
                mask[token as usize / 32] &= !(1 << (token % 32));
            }
        }
        Ok(())
    }

    fn accept(&mut self, token: u32) -> Result<(), String> {
        assert!(token.is_multiple_of(self.of));
        self.left = self.left.checked_sub(1).ok_or("too many")?;
        Ok(())
    }
}

#[test]
fn constraints_hold_end_and_fail_alone() {
    let replicas = one(options(3), ReplicaOptions::default());
    for seed in 0..4 {
        let with = |constraint| Request {
            constraint: Some(Box::new(constraint) as Box<dyn Constraint>),
            end_tokens: vec![7],
            ..request(20, seed)
        };
        let fits = replicas.submit(with(Multiples { of: 11, left: 5, end: 7 })).unwrap();
        // Nothing may come at the end.
        let stuck = replicas.submit(with(Multiples { of: 11, left: 5, end: 1 << 20 })).unwrap();
        let free = replicas.submit(request(20, seed)).unwrap();
        let (tokens, outcome) = fits.wait().unwrap();
        assert_eq!((tokens.len(), outcome.stopped), (5, StopReason::EndToken(7)));
        assert!(tokens.iter().all(|t| t % 11 == 0), "{tokens:?}");
        assert!(matches!(stuck.wait(), Err(Error::Constraint(why)) if why.contains("no token")));
        free.wait().unwrap();
    }
    assert!(replicas.status()[0].failure.is_none());
}

#[test]
fn answers_have_their_least_length() {
    let replicas = one(options(1), ReplicaOptions::default());
    let all: Vec<u32> = (0..300).collect();
    let request =
        |min_tokens| Request { min_tokens, end_tokens: all[50..].to_vec(), ..request(9, 4) };
    let (tokens, outcome) = replicas.submit(request(6)).unwrap().wait().unwrap();
    assert!(tokens.len() >= 6 && tokens.iter().all(|t| *t < 50), "{tokens:?}");
    assert_eq!(
        replicas.submit(request(0)).unwrap().wait().unwrap().0.len().min(6),
        0,
        "{outcome:?}"
    );
}

#[test]
fn log_probabilities_are_those_of_the_logits() {
    let (replicas, mut engine) = (one(options(2), ReplicaOptions::default()), single());
    let request = || Request {
        logprobs: Some(3),
        prompt_logprobs: Some(2),
        limit: Some(4),
        ..request(70, 1)
    };
    // Twice: what the prefix cache has must not be missed.
    for _ in 0..2 {
        let mut ticket = replicas.submit(request()).unwrap();
        let tokens: Vec<_> = ticket.by_ref().map(|t| t.unwrap()).collect();
        let ids: Vec<u32> = tokens.iter().map(|t| t.id).collect();
        let all = [request().prompt, ids].concat();
        let sequence = engine.new_sequence().unwrap();
        let told: Vec<_> = ticket.prompt_logprobs().iter().collect();
        assert_eq!(told.len(), 69);
        let told = told.into_iter().chain(tokens.iter().filter_map(|t| t.logprobs.as_ref()));
        for (at, told) in told.enumerate() {
            let outputs = arclight_engine::Outputs::Last;
            let entry = arclight_engine::BatchEntry { sequence, tokens: &all[at..=at], outputs };
            let logits = engine.step(&[entry]).unwrap().row(0).to_vec();
            let sum: f64 = logits.iter().map(|&l| f64::from(l).exp()).sum();
            let want = |token: u32| f64::from(logits[token as usize]) - sum.ln();
            assert_eq!(told.token, all[at + 1]);
            // Logits are below 32, so an f32 of their size is off by 2e-6 at most.
            assert!((f64::from(told.chosen) - want(told.token)).abs() < 4e-6);
            assert_eq!(told.top.len(), if at < 69 { 2 } else { 3 });
            let best = logits.iter().copied().fold(f32::MIN, f32::max);
            assert_eq!(logits[told.top[0].0 as usize], best);
            assert!(told.top.windows(2).all(|two| two[0].1 >= two[1].1));
        }
        engine.free(sequence).unwrap();
    }
}

#[test]
fn tickets_can_be_awaited() {
    use std::future::Future;
    use std::task::{Context, Poll, Wake, Waker};
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let replicas = one(options(1), ReplicaOptions::default());
    let mut ticket = replicas.submit(request(40, 2)).unwrap();
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut got = Vec::new();
    loop {
        let mut next = std::pin::pin!(ticket.recv());
        match next.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(Some(token)) => got.push(token.unwrap().id),
            Poll::Ready(None) => break,
            Poll::Pending => std::thread::park(),
        }
    }
    assert_eq!(got, alone(&mut single(), &request(40, 2)).0);
    assert!(ticket.outcome().is_some());
}

/// A model whose answers repeat themselves, so that some guesses come true.
fn of_habit(seed: u64) -> Request {
    let request = Request { end_tokens: Vec::new(), limit: Some(120), ..request(30, seed) };
    match seed % 2 {
        0 => request,
        // Cold enough to repeat itself, and to be surprised now and then.
        _ => {
            let sampler = SamplerParams { temperature: 0.7, seed, ..SamplerParams::default() };
            Request { sampler, ..request }
        }
    }
}

#[test]
fn guesses_change_no_token() {
    let mut engine = single();
    let want: Vec<_> = (0..8).map(|seed| alone(&mut engine, &of_habit(seed)).0).collect();
    let draft = || {
        // Other weights: it guesses wrong most of the time.
        let bytes = TinyModel::qwen3(TensorType::Q8_0).gguf();
        Arc::new(ModelFile::from_bytes("draft", bytes))
    };
    let sources =
        [Speculation::Lookup(6), Speculation::Draft(file(), 5), Speculation::Draft(draft(), 3)];
    for speculation in sources {
        for kv_size in [KvSize::Each, KvSize::Tokens(512)] {
            let serving = ReplicaOptions { speculation: speculation.clone(), ..copies(1) };
            let replicas = one(LoadOptions { kv_size, ..options(5) }, serving);
            let tickets: Vec<_> =
                (0..8).map(|seed| replicas.submit(of_habit(seed)).unwrap()).collect();
            for (seed, ticket) in tickets.into_iter().enumerate() {
                assert_eq!(ticket.wait().unwrap().0, want[seed], "{seed}, {speculation:?}");
            }
            let status = replicas.status().remove(0);
            let Counters { drafted_tokens, accepted_tokens, generated_tokens, .. } =
                status.counters;
            assert_eq!(generated_tokens, 8 * 120);
            assert!(0 < accepted_tokens && accepted_tokens <= drafted_tokens, "{status:?}");
            assert_eq!(usable(&status), status.pages.total);
        }
    }
}

#[test]
fn the_same_model_guesses_right_and_saves_steps() {
    let run = |speculation| {
        let replicas = one(options(1), ReplicaOptions { speculation, ..copies(1) });
        for seed in [2, 3] {
            serve(&replicas, of_habit(seed));
        }
        replicas.counters()
    };
    let (without, with) = (run(Speculation::Off), run(Speculation::Draft(file(), 4)));
    assert_eq!(with.accepted_tokens, with.drafted_tokens);
    // Five tokens a step instead of one.
    assert!(with.steps * 9 < without.steps * 2, "{} and {} steps", with.steps, without.steps);
}

#[test]
fn a_model_of_another_vocabulary_cannot_guess() {
    let other = testkit::golden("llama3_tied");
    let other = Arc::new(ModelFile::from_bytes("other", other));
    let serving = ReplicaOptions { speculation: Speculation::Draft(other, 4), ..copies(1) };
    let loaded = Replicas::load_on(&file(), &one_node(1), &options(1), &serving, &mut |_| {});
    let error = loaded.err().unwrap().to_string();
    assert!(error.contains("vocabulary"), "{error}");
}

#[test]
fn pooled_states_are_the_same_however_they_are_computed() {
    let mut engine = single();
    // All hidden states of a prompt, in one engine.
    let mut states = |tokens: &[u32]| -> Vec<Vec<f32>> {
        let sequence = engine.new_sequence().unwrap();
        let states = tokens.iter().map(|token| {
            let tokens = std::slice::from_ref(token);
            let entry = BatchEntry { sequence, tokens, outputs: Outputs::AllHidden };
            engine.step(&[entry]).unwrap().hidden(0).to_vec()
        });
        let states = states.collect();
        engine.free(sequence).unwrap();
        states
    };
    // Longer than a step, than a page, and one token; the second begins like the first.
    let texts = [prompt(150, 3), [prompt(100, 3), prompt(40, 4)].concat(), prompt(1, 5)];
    let want: Vec<[Vec<f32>; 2]> = texts
        .iter()
        .map(|text| {
            let states = states(text);
            let mean = |i: usize| {
                let sum: f64 = states.iter().map(|state| f64::from(state[i])).sum();
                (sum / states.len() as f64) as f32
            };
            [states.last().unwrap().clone(), (0..states[0].len()).map(mean).collect()]
        })
        .collect();
    let small = LoadOptions { kv_size: KvSize::Tokens(512), ..options(4) };
    for options in [options(4), small] {
        let replicas = one(options, ReplicaOptions::default());
        // Beside answers, twice: the second time the beginning is cached.
        for _ in 0..2 {
            let mut requests: Vec<Request> = (0..3).map(|seed| request(60, seed)).collect();
            for (text, pooling) in
                texts.iter().flat_map(|t| [Pooling::Last, Pooling::Mean].map(|p| (t, p)))
            {
                let limit = Some(9);
                let pooling = Some(pooling);
                requests.push(Request { pooling, limit, ..Request::new(text.clone()) });
            }
            let mut tickets = replicas.submit_all(requests).unwrap();
            let pooled = tickets.split_off(3);
            for (at, mut ticket) in pooled.into_iter().enumerate() {
                assert!(ticket.next().is_none(), "there is no answer");
                let got: Vec<u32> = ticket.pooled().iter().map(|x| x.to_bits()).collect();
                let want: Vec<u32> = want[at / 2][at % 2].iter().map(|x| x.to_bits()).collect();
                assert_eq!(got, want, "text {}, {}", at / 2, at % 2);
                assert_eq!(ticket.outcome().unwrap().tokens, 0);
            }
            for ticket in tickets {
                assert!(!ticket.wait().unwrap().0.is_empty());
            }
        }
        assert!(replicas.counters().cached_tokens > 0);
    }
}

#[test]
fn a_prompt_gives_a_row_for_each_of_its_tokens() {
    let mut engine = single();
    let mut rows = |tokens: &[u32], rows: Rows| -> Vec<u32> {
        let sequence = engine.new_sequence().unwrap();
        let outputs = if rows == Rows::Logits { Outputs::All } else { Outputs::AllHidden };
        let row = |token| {
            let entry = BatchEntry { sequence, tokens: std::slice::from_ref(token), outputs };
            let given = engine.step(&[entry]).unwrap();
            let row = if rows == Rows::Logits { given.row(0) } else { given.hidden(0) };
            row.iter().map(|x| x.to_bits()).collect::<Vec<u32>>()
        };
        let all = tokens.iter().flat_map(row).collect();
        engine.free(sequence).unwrap();
        all
    };
    // Longer than a step, and one that begins alike.
    let texts = [prompt(150, 3), [prompt(100, 3), prompt(7, 4)].concat(), prompt(1, 5)];
    // With less room for pages than all have, some are computed anew.
    let small = LoadOptions { kv_size: KvSize::Tokens(512), ..options(4) };
    let replicas = one(small, ReplicaOptions::default());
    for _ in 0..2 {
        let mut requests: Vec<Request> = (0..3).map(|seed| request(60, seed)).collect();
        let asked = texts.iter().flat_map(|t| [Rows::Logits, Rows::Hidden].map(|rows| (t, rows)));
        let asked: Vec<(&Vec<u32>, Rows)> = asked.collect();
        let more = asked.iter().map(|&(text, rows)| (text.clone(), Some(rows)));
        requests.extend(more.map(|(text, rows)| Request { rows, ..Request::new(text) }));
        let mut tickets = replicas.submit_all(requests).unwrap();
        for (mut ticket, (text, of)) in tickets.split_off(3).into_iter().zip(asked) {
            assert!(ticket.next().is_none(), "there is no answer");
            let got: Vec<u32> = ticket.take_rows().iter().map(|x| x.to_bits()).collect();
            assert!(got == rows(text, of), "{of:?} of {} tokens", text.len());
            assert!(ticket.take_rows().is_empty());
        }
        tickets.into_iter().for_each(|ticket| assert!(!ticket.wait().unwrap().0.is_empty()));
    }
    assert!(replicas.counters().cached_tokens > 0);
}

#[test]
fn a_prompt_is_found_again_though_an_answer_went_far_beyond_the_window() {
    let model =
        TinyModel { window: Some(40), context: 2048, ..TinyModel::gemma3(TensorType::Q8_0) };
    let file = Arc::new(ModelFile::from_bytes("windows", model.gguf()));
    let options = LoadOptions { context: Some(2048), ..options(1) };
    let replicas =
        Replicas::load_on(&file, &one_node(2), &options, &copies(1), &mut |_| {}).unwrap();
    let mut engine = Engine::load_on(&file, &one_node(1), &options, &mut |_| {}).unwrap();
    let long = |seed| Request { end_tokens: Vec::new(), limit: Some(1500), ..request(330, seed) };
    let want = alone(&mut engine, &long(2)).0;
    for round in 0..2 {
        let (tokens, outcome) = replicas.submit(long(2)).unwrap().wait().unwrap();
        assert!(tokens == want, "round {round}");
        assert_eq!(outcome.cached >= 320, round == 1, "round {round}: {}", outcome.cached);
    }
}
