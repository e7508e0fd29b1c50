//! Random mixes of requests under random limits, paces and memory: each ends, within steps that a bound gives, and
//! answers are those of a request alone. Times of steps are made up, so nothing depends on the machine.

use super::{Batch, Helpers};
use crate::adapter::{Adapter, AdapterUse};
use crate::decode::{Asked, Constraint, Counters, Event, Pace, Request, Rows, Running, StopReason};
use crate::encoder::{Encoder, processor};
use crate::engine::Engine;
use crate::error::Error;
use crate::file::ModelFile;
use crate::images::Prompt;
use crate::options::{KvSize, LoadOptions};
use crate::sampler::SamplerParams;
use crate::speculate::{Speculation, Speculator};
use async_channel::Receiver;
use gguf::TensorType;
use graph::Adapted;
use models::Pooling;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use testkit::{Rng, TinyModel, WHOLE, lora, whole_encoder};
use vision::{Picture, Piece};

const CONTEXT: usize = 192;
const VOCAB: usize = 100;
const WIDTH: usize = 64;

/// A model, and what it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    /// With images of [`WHOLE`] outputs that attend to each other, and a window.
    Images,
    /// With adapters.
    Adapters,
    /// With states of fixed size.
    Hybrid,
    /// Of texts that are read whole.
    Reader,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Text,
    Images(usize),
    PromptLogprobs,
    Rows(Rows),
    Pooled(Pooling),
    Guided,
    Adapted(u32),
    Twice,
    Late,
}

/// A request of a mix.
#[derive(Clone, Debug)]
struct Asks {
    kind: Kind,
    prompt: usize,
    answer: usize,
    seed: u64,
    priority: i8,
    /// The step before which it comes, and after how many it is cancelled.
    comes: usize,
    leaves: Option<usize>,
}

/// What it is served under.
#[derive(Clone, Debug)]
struct Conditions {
    family: Family,
    sequences: usize,
    step_tokens: usize,
    /// Beyond one for each sequence.
    more_outputs: usize,
    /// Of the KV cache, beyond a context.
    more_tokens: usize,
    max_step: Option<Duration>,
    times: usize,
    speculates: bool,
    prefix_cache: bool,
}

/// Seconds of a step with rows of answers and tokens of prompts.
const TIMES: [fn(usize, usize) -> f64; 5] = [
    |rows, prompt| 0.01 + rows as f64 * 1e-4 + prompt as f64 * 1e-3,
    |_, _| 0.0,
    |rows, prompt| 1.0 + rows as f64 + prompt as f64 * 5.0,
    |rows, prompt| if (rows + prompt).is_multiple_of(3) { 3.0 } else { 1e-4 },
    |_, prompt| prompt as f64 * 1e-7,
];

/// Multiples of three.
struct Threes;

impl Constraint for Threes {
    fn allow(&mut self, mask: &mut [u32]) -> Result<(), String> {
        for token in (0..mask.len() as u32 * 32).filter(|token| !token.is_multiple_of(3)) {
            mask[token as usize / 32] &= !(1 << (token % 32));
        }
        Ok(())
    }

    fn accept(&mut self, token: u32) -> Result<(), String> {
        if token.is_multiple_of(3) { Ok(()) } else { Err(format!("{token} may not come")) }
    }
}

fn tiny(model: TinyModel) -> Vec<u8> {
    TinyModel { vocab: VOCAB, hidden: WIDTH, ffn: 96, heads: 2, kv_heads: 1, head_dim: 32, ..model }
        .gguf()
}

/// The file of a family's model, its encoder and its adapters.
struct Files {
    model: ModelFile,
    encoder: Option<ModelFile>,
    adapters: Vec<AdapterUse>,
}

impl Family {
    fn files(self) -> Files {
        let (f32, mut encoder, mut adapters) = (TensorType::F32, None, Vec::new());
        let bytes = match self {
            Family::Images => {
                encoder = Some(ModelFile::from_bytes("encoder", whole_encoder(WIDTH)));
                tiny(TinyModel { window: Some(40), ..TinyModel::gemma3(f32) })
            }
            Family::Adapters => {
                let model = tiny(TinyModel::qwen3(f32));
                for seed in 0..2 {
                    let bytes = lora(&model, f32, 4, 4.0, seed);
                    let adapter = Adapter::read(&ModelFile::from_bytes("adapter", bytes));
                    let adapter = Arc::new(adapter.unwrap());
                    adapters.push(AdapterUse { name: seed.to_string(), adapter, scale: 0.0 });
                }
                model
            }
            Family::Hybrid => TinyModel::qwen35(f32).gguf(),
            Family::Reader => testkit::golden("bert"),
        };
        Files { model: ModelFile::from_bytes("tiny", bytes), encoder, adapters }
    }
}

/// What serves.
struct Served {
    engine: Engine,
    encoder: Option<Encoder>,
    speculator: Option<Speculator>,
}

impl Served {
    fn load(files: &Files, options: LoadOptions, speculation: &Speculation) -> Served {
        let adapters = files.adapters.clone();
        let options = LoadOptions {
            no_pin: true,
            threads: Some(1),
            adapters,
            context: Some(CONTEXT),
            ..options
        };
        let engine = Engine::load(&files.model, &options, &mut |_| {}).unwrap();
        let encoder = files.encoder.as_ref();
        let encoder =
            encoder.map(|file| Encoder::load(file, &engine, &options, &mut |_| {}).unwrap());
        let speculator = Speculator::load(&engine, speculation, &options).unwrap();
        Served { engine, encoder, speculator: speculator.map(Speculator::always) }
    }

    fn parts(&mut self) -> (&mut Engine, Helpers<'_>) {
        let Served { engine, encoder, speculator } = self;
        (engine, Helpers { speculator: speculator.as_mut(), encoder: encoder.as_mut() })
    }
}

impl Asks {
    fn request(&self, family: Family) -> Request {
        let mut rng = Rng::new(self.seed);
        let mut prompt = Prompt::default();
        // Some begin alike.
        let common = if self.seed.is_multiple_of(3) { self.prompt / 2 } else { 0 };
        prompt.tokens.extend((0..self.prompt).map(|at| match at < common {
            true => at as u32 % 50,
            false => rng.below(VOCAB) as u32,
        }));
        if let Kind::Images(images) = self.kind {
            prompt = with_images(prompt, images, self.seed);
        }
        let sampler = match self.seed % 2 {
            0 => SamplerParams::greedy(),
            _ => SamplerParams { temperature: 1.2, seed: self.seed, ..SamplerParams::default() },
        };
        let mut request = Request {
            images: prompt.images,
            sampler,
            limit: Some(self.answer),
            priority: self.priority,
            adapters: Some(Vec::new()),
            ..Request::new(prompt.tokens)
        };
        match self.kind {
            Kind::Text | Kind::Images(_) | Kind::Twice => {}
            Kind::PromptLogprobs => request.prompt_logprobs = Some(1),
            Kind::Rows(rows) => request.rows = Some(rows),
            Kind::Pooled(pooling) => request.pooling = Some(pooling),
            Kind::Guided => request.constraint = Some(Box::new(Threes)),
            Kind::Adapted(adapter) => {
                request.adapters = Some(vec![Adapted { adapter, scale: 0.5 }]);
            }
            Kind::Late => request.deadline = Some(Instant::now()),
        }
        if family == Family::Reader && request.rows.is_none() && request.pooling.is_none() {
            request.pooling = Some(Pooling::Mean);
        }
        request
    }

    /// Rounds of the loop that it takes alone, at most: one for each token and image, one to begin and one to end.
    fn work(&self) -> usize {
        let images = if let Kind::Images(images) = self.kind { images } else { 0 };
        self.prompt + images * (WHOLE + 1) + 2 * self.answer + 2
    }

    /// Whether it has an answer that can be compared.
    fn is_answered(&self, family: Family) -> bool {
        let other = matches!(self.kind, Kind::Rows(_) | Kind::Pooled(_) | Kind::Late);
        family != Family::Reader && !other && self.leaves.is_none()
    }
}

/// A prompt with `images` images in its middle.
fn with_images(text: Prompt, images: usize, seed: u64) -> Prompt {
    let file = ModelFile::from_bytes("encoder", whole_encoder(WIDTH));
    let processor = processor(&file).unwrap();
    let mut pieces = Vec::new();
    for image in 0..images as u64 {
        // Few different ones, so that some come again.
        let colour = ((seed + image) % 3 * 80) as u8;
        let rgb = testkit::picture(64, 48).iter().map(|x| x ^ colour).collect();
        let outputs = processor.pieces(&Picture::from_rgb(64, 48, rgb)).unwrap().into_iter();
        pieces.extend(outputs.filter(|piece| matches!(piece, Piece::Outputs(..))));
    }
    let middle = text.tokens.len() / 2;
    let [before, after] = [&text.tokens[..middle], &text.tokens[middle..]].map(<[u32]>::to_vec);
    let pieces = [vec![Piece::Text("before".into())], pieces, vec![Piece::Text("after".into())]];
    let encode = |text: &str, _| {
        Ok::<_, Error>(match text {
            "before" => before.clone(),
            "after" => after.clone(),
            _ => Vec::new(),
        })
    };
    Prompt::of(&pieces.concat(), encode).unwrap()
}

/// A request that is served or waits.
struct Job {
    asks: usize,
    events: Vec<Receiver<Event>>,
    cancelled: Vec<Arc<AtomicBool>>,
    asked: Option<Asked>,
}

/// Takes a round, as a replica does.
fn round(batch: &mut Batch, served: &mut Served) {
    let (engine, mut helpers) = served.parts();
    batch.drop_cancelled(engine, &mut helpers).unwrap();
    batch.encode(&mut helpers);
    batch.step(engine, &mut helpers).unwrap();
    let ended = batch.take_ended(engine, &mut helpers).unwrap();
    ended.into_iter().for_each(|request| request.finish(0));
}

/// The tokens of an answer that has ended, or why it was refused.
fn heard(events: &Receiver<Event>) -> Result<(Vec<u32>, StopReason), Error> {
    let mut tokens = Vec::new();
    loop {
        match events.try_recv().expect("it has ended with a word") {
            Event::Token(token) => tokens.push(token.id),
            Event::Done(summary) => return Ok((tokens, summary.stopped)),
            Event::Failed(error) => return Err(error),
            Event::Begun { .. } | Event::Prompt(_) | Event::Pooled(_) => {}
        }
    }
}

/// Serves a mix. The counters, and what became of each request: `None` if it was refused or cancelled.
fn serve(conditions: &Conditions, mix: &[Asks]) -> (Counters, Vec<Option<Vec<Vec<u32>>>>) {
    let Conditions { family, sequences, prefix_cache, .. } = *conditions;
    let files = family.files();
    let speculation = match (conditions.speculates, family) {
        (true, Family::Adapters | Family::Hybrid) => Speculation::Lookup(4),
        _ => Speculation::Off,
    };
    let options = LoadOptions {
        sequences: Some(sequences),
        step_tokens: Some(conditions.step_tokens.max(sequences)),
        step_outputs: Some(sequences + conditions.more_outputs),
        kv_size: KvSize::Tokens(CONTEXT + conditions.more_tokens),
        ..LoadOptions::default()
    };
    let mut served = Served::load(&files, options, &speculation);
    let mut pace = Pace::new(served.engine.limits().outputs, conditions.max_step);
    pace.times = Some(TIMES[conditions.times]);
    let bounds = served.engine.bounds(files.encoder.is_some());
    let mut batch = Batch::new(Some(pace), prefix_cache, bounds.ids.tokens);
    let mut waiting: VecDeque<Job> = VecDeque::new();
    let mut jobs: Vec<Job> = Vec::new();
    let mut refused = vec![false; mix.len()];
    for (asks, one) in mix.iter().enumerate() {
        let answers = if matches!(one.kind, Kind::Twice) { sequences.min(2) } else { 1 };
        let mut job = Job { asks, events: Vec::new(), cancelled: Vec::new(), asked: None };
        for _ in 0..answers {
            let request = one.request(family);
            let adapters = request.adapters.clone().unwrap_or_default();
            match bounds.accept(request, adapters) {
                Ok((mut asked, events)) => {
                    job.events.push(events);
                    job.cancelled.push(asked.answers[0].cancelled.clone());
                    match &mut job.asked {
                        Some(first) => first.answers.append(&mut asked.answers),
                        None => job.asked = Some(asked),
                    }
                }
                Err(error) => {
                    let named = matches!(
                        error,
                        Error::ImageStep { .. } | Error::ImageOutputs { .. } | Error::ImageLogprobs
                    );
                    assert!(named, "{error}");
                    refused[asks] = true;
                }
            }
        }
        if !refused[asks] {
            waiting.push_back(job);
        }
    }
    let work: usize = mix
        .iter()
        .map(|one| one.work() * if matches!(one.kind, Kind::Twice) { 2 } else { 1 })
        .sum();
    // Every round computes a token, encodes an image, or ends a request, and each request can have its work undone by
    // those that rank higher.
    let (mut rounds, bound) = (0, work * (mix.len() + 1));
    let mut now = 0;
    while !(waiting.is_empty() && batch.running.is_empty()) {
        let free = |batch: &Batch| {
            sequences - batch.running.iter().map(|r| r.answers.len()).sum::<usize>()
        };
        let next = |waiting: &VecDeque<Job>| {
            let come = waiting.iter().enumerate().filter(|(_, job)| mix[job.asks].comes <= now);
            come.max_by_key(|(at, job)| (mix[job.asks].priority, std::cmp::Reverse(*at)))
                .map(|(at, _)| at)
        };
        while let Some(at) = next(&waiting).filter(|&at| waiting[at].events.len() <= free(&batch)) {
            let mut job = waiting.remove(at).unwrap();
            batch.add(job.asked.take().map(|asked| (job.asks as u64, asked)));
            jobs.push(job);
        }
        for job in &jobs {
            if mix[job.asks].leaves.is_some_and(|after| mix[job.asks].comes + after <= now) {
                job.cancelled.iter().for_each(|cancelled| cancelled.store(true, Relaxed));
            }
        }
        let before = (batch.done.steps, batch.running.len(), standing(&batch));
        round(&mut batch, &mut served);
        now += 1;
        let after = (batch.done.steps, batch.running.len(), standing(&batch));
        // A mask comes when it comes, and before the first request comes nothing is done.
        let held = batch.running.iter().any(Running::is_held);
        rounds += usize::from(!held && before.1 > 0);
        let idle = before == after && before.1 > 0;
        assert!(
            !idle || held || batch.running.iter().any(|r| r.waits_for_image().is_some()),
            "nothing was done"
        );
        assert_eq!(batch.done.empty_steps, 0, "a step had nothing to compute");
        assert!(rounds <= bound, "{rounds} rounds, at most {bound}");
    }
    let mut answers = vec![None; mix.len()];
    for job in &jobs {
        if mix[job.asks].leaves.is_some() {
            continue;
        }
        let all = job.events.iter().map(heard).collect::<Result<Vec<_>, Error>>();
        let all = all.unwrap_or_else(|error| panic!("request {}: {error}", job.asks));
        answers[job.asks] = Some(all.into_iter().map(|(tokens, _)| tokens).collect());
    }
    let pages = served.engine.pages();
    assert_eq!(pages.free + pages.cached, pages.total, "pages that no sequence holds");
    (batch.done, answers)
}

/// What was done for all requests that run.
fn standing(batch: &Batch) -> u64 {
    batch.running.iter().map(|request| request.standing().progress).sum()
}

fn kind(family: Family) -> BoxedStrategy<Kind> {
    let pooling = prop_oneof![Just(Pooling::First), Just(Pooling::Last), Just(Pooling::Mean)];
    let pooled = pooling.prop_map(Kind::Pooled);
    let hidden = Just(Kind::Rows(Rows::Hidden));
    if family == Family::Reader {
        return prop_oneof![pooled, hidden, Just(Kind::Late)].boxed();
    }
    let own = match family {
        Family::Images => (1..=3usize).prop_map(Kind::Images).boxed(),
        Family::Adapters => (0..2u32).prop_map(Kind::Adapted).boxed(),
        Family::Hybrid | Family::Reader => Just(Kind::Text).boxed(),
    };
    prop_oneof![
        4 => own,
        2 => Just(Kind::Text),
        1 => Just(Kind::PromptLogprobs),
        1 => prop_oneof![hidden, Just(Kind::Rows(Rows::Logits))],
        1 => pooled,
        2 => Just(Kind::Guided),
        1 => Just(Kind::Twice),
        1 => Just(Kind::Late),
    ]
    .boxed()
}

prop_compose! {
    fn asks(family: Family)(
        kind in kind(family),
        prompt in 2..60usize,
        answer in 0..16usize,
        seed in 0..1000u64,
        priority in 0..3i8,
        comes in prop_oneof![Just(0), 0..40usize],
        leaves in prop_oneof![6 => Just(None), 1 => (0..20usize).prop_map(Some)],
    ) -> Asks {
        Asks { kind, prompt, answer, seed, priority, comes, leaves }
    }
}

prop_compose! {
    fn conditions()(
        family in prop_oneof![
            3 => Just(Family::Images), 2 => Just(Family::Adapters), 1 => Just(Family::Hybrid), 1 => Just(Family::Reader)
        ],
        sequences in 1..5usize,
        step_tokens in prop_oneof![1..60usize, Just(WHOLE), Just(128)],
        more_outputs in prop_oneof![0..4usize, Just(WHOLE), Just(60)],
        more_tokens in prop_oneof![Just(0), 0..400usize],
        max_step in prop_oneof![2 => Just(None), 1 => Just(Some(Duration::from_millis(20)))],
        times in 0..TIMES.len(),
        speculates: bool,
        prefix_cache: bool,
    ) -> Conditions {
        Conditions {
            family, sequences, step_tokens, more_outputs, more_tokens, max_step, times, speculates, prefix_cache,
        }
    }
}

fn mixes() -> impl Strategy<Value = (Conditions, Vec<Asks>)> {
    conditions().prop_flat_map(|conditions| {
        let mix = prop::collection::vec(asks(conditions.family), 1..9);
        (Just(conditions), mix)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(60) })]
    #[test]
    fn every_request_of_a_mix_ends((conditions, mix) in mixes()) {
        let (_, answers) = serve(&conditions, &mix);
        let family = conditions.family;
        let files = family.files();
        let roomy = LoadOptions { step_outputs: Some(256), ..LoadOptions::default() };
        let mut roomy = Served::load(&files, roomy, &Speculation::Off);
        for (one, answers) in mix.iter().zip(answers) {
            let Some(answers) = answers.filter(|_| one.is_answered(family)) else { continue };
            let (engine, helpers) = roomy.parts();
            let (want, _) = engine.generate(one.request(family), helpers).unwrap().wait().unwrap();
            prop_assert!(answers.iter().all(|answer| *answer == want), "{one:?}: {answers:?}, alone {want:?}");
        }
    }
}

fn text(prompt: usize, answer: usize, priority: i8, comes: usize) -> Asks {
    Asks { kind: Kind::Text, prompt, answer, seed: 1, priority, comes, leaves: None }
}

const PLAIN: Conditions = Conditions {
    family: Family::Adapters,
    sequences: 3,
    step_tokens: 16,
    more_outputs: 0,
    more_tokens: 0,
    max_step: None,
    times: 0,
    speculates: false,
    prefix_cache: true,
};

/// A prompt in progress holds the pages that a request of higher priority waits for.
#[test]
fn a_prompt_continues_while_a_higher_priority_waits_for_its_pages() {
    let mix = [text(150, 2, 0, 0), Asks { seed: 2, ..text(150, 2, 1, 8) }];
    let (done, answers) = serve(&PLAIN, &mix);
    assert!(answers.iter().all(Option::is_some) && done.preemptions == 0, "{done:?}");
}

/// A batch with a request for which no step was dealt.
fn forgotten(asks: &Asks, conditions: &Conditions) -> (Batch, Served, Receiver<Event>) {
    let files = conditions.family.files();
    let options = LoadOptions {
        step_tokens: Some(conditions.step_tokens),
        sequences: Some(2),
        ..LoadOptions::default()
    };
    let served = Served::load(&files, options, &Speculation::Off);
    let bounds = served.engine.bounds(files.encoder.is_some());
    let mut batch = Batch::new(None, true, bounds.ids.tokens);
    let (asked, events) = bounds.accept(asks.request(conditions.family), Vec::new()).unwrap();
    batch.add([(7, asked)]);
    (batch, served, events)
}

#[test]
fn an_empty_step_is_counted_and_computes_the_smallest_piece() {
    let conditions = Conditions { family: Family::Images, step_tokens: 64, ..PLAIN };
    let image = Asks { kind: Kind::Images(1), ..text(2, 3, 0, 0) };
    let (mut batch, mut served, events) = forgotten(&image, &conditions);
    // Up to the image, then what was forgotten: twice, since it is encoded in between.
    let (engine, mut helpers) = served.parts();
    let shares = batch.idle(engine, &helpers, 0).unwrap();
    assert_eq!((shares[0].tokens, batch.done.empty_steps), (1, 1));
    batch.compute(engine, &mut helpers, &shares, Instant::now()).unwrap();
    assert!(batch.idle(engine, &helpers, 0).unwrap().is_empty(), "its image is to be encoded");
    assert!(batch.encode(&mut helpers));
    let shares = batch.idle(engine, &helpers, 0).unwrap();
    assert_eq!((shares[0].tokens, batch.done.empty_steps), (WHOLE, 2));
    batch.compute(engine, &mut helpers, &shares, Instant::now()).unwrap();
    while !batch.running.is_empty() {
        round(&mut batch, &mut served);
    }
    assert_eq!(heard(&events).unwrap().0.len(), 3);
}

#[test]
fn what_can_never_run_is_refused_with_the_limit() {
    let conditions = Conditions { family: Family::Images, step_tokens: 64, ..PLAIN };
    let image = Asks { kind: Kind::Images(1), ..text(2, 3, 0, 0) };
    let (mut batch, _, events) = forgotten(&image, &conditions);
    // An engine with smaller steps than the one that it was accepted for.
    let conditions = Conditions { step_tokens: WHOLE - 1, ..conditions };
    let (_, mut smaller, _) = forgotten(&text(2, 3, 0, 0), &conditions);
    for _ in 0..4 {
        round(&mut batch, &mut smaller);
    }
    assert!(batch.running.is_empty());
    let error = heard(&events).unwrap_err().to_string();
    assert!(
        error.contains("request 7 can never run: 36 of its tokens") && error.contains("35 tokens"),
        "{error}"
    );
}
