//! Logits of small random models that see images against HF transformers (float32, eager attention), and what images in a
//! prompt must not change.
//!
//! Fixtures and their making: `tests/golden/README.md`.

use arclight_engine::{
    BatchEntry, Encoder, Engine, Helpers, ImagePart, Inset, KvType, LoadOptions, ModelFile,
    Outputs, Prompt, ReplicaOptions, Replicas, Request, SamplerParams, processor,
};
use serde_json::Value;
use std::sync::Arc;
use testkit::repository;
use vision::{Picture, Piece, Tile};

const MODELS: &[&str] = &[
    "smolvlm",
    "gemma3_images",
    "qwen2vl_images",
    "qwen25vl_images",
    "qwen3vl_images",
    "gemma4_images",
    "gemma4_limits",
    "qwen35_images",
    "mistral3_images",
    "lfm2vl_images",
];

/// Largest difference relative to the largest logit, with keys and values in f32. Transformers itself is within 1e-5 of
/// float64 here; both sides sum in orders of their own.
const TOLERANCE: f32 = 1e-4;

fn options() -> LoadOptions {
    LoadOptions {
        no_pin: true,
        kv: KvType::F32.into(),
        step_tokens: Some(600),
        step_outputs: Some(600),
        ..LoadOptions::default()
    }
}

fn file(name: &str) -> ModelFile {
    ModelFile::from_bytes(name, testkit::golden(name))
}

fn load(model: &str, options: &LoadOptions) -> (Engine, Encoder) {
    let engine = Engine::load(&file(model), options, &mut |_| {}).unwrap();
    let mmproj = file(&format!("{model}_mmproj"));
    let encoder = Encoder::load(&mmproj, &engine, options, &mut |_| {}).unwrap();
    (engine, encoder)
}

/// A prompt with a picture, and what is known of its logits.
struct Known {
    prompt: Prompt,
    rows: Vec<(usize, Vec<f32>)>,
}

fn known(model: &str) -> Vec<Known> {
    let path = repository(&format!("tests/golden/{model}/expected.json"));
    let all: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let processor = processor(&file(&format!("{model}_mmproj"))).unwrap();
    let number = |v: &Value| v.as_u64().unwrap() as usize;
    let prompts = all["prompts"].as_array().unwrap().iter();
    prompts
        .map(|known| {
            let picture = &all["pictures"][number(&known["picture"])];
            let (width, height) = (number(&picture["width"]), number(&picture["height"]));
            let picture = Picture::from_rgb(width, height, testkit::picture(width, height));
            let pieces = processor.pieces(&picture).unwrap().into_iter();
            let mut runs = pieces.filter_map(|piece| match piece {
                Piece::Outputs(tile, outputs) => Some((tile, outputs)),
                Piece::Text(_) => None,
            });
            let mut prompt = Prompt::default();
            let mut left = 0;
            for token in known["tokens"].as_array().unwrap() {
                match (token.as_i64().unwrap(), left) {
                    (-1, 0) => {
                        let (tile, outputs) = runs.next().expect("as many runs of outputs");
                        left = outputs.len() - 1;
                        let at = prompt.tokens.len();
                        prompt.tokens.extend(tile.ids(outputs.clone()));
                        prompt.images.push(ImagePart::new(at, tile, outputs));
                    }
                    (-1, _) => left -= 1,
                    (token, rest) => {
                        assert_eq!(rest, 0, "runs of outputs are as long");
                        prompt.tokens.push(token as u32);
                    }
                }
            }
            assert!(runs.next().is_none() && left == 0, "as many runs of outputs");
            let positions = known["positions"].as_array().unwrap().iter().map(number);
            let row = |v: &Value| -> Vec<f32> {
                v.as_array().unwrap().iter().map(|x| x.as_f64().unwrap() as f32).collect()
            };
            let rows = positions.zip(known["logits"].as_array().unwrap().iter().map(row)).collect();
            Known { prompt, rows }
        })
        .collect()
}

/// Logits of all tokens of a prompt, in steps of so many.
fn logits(engine: &mut Engine, encoder: &mut Encoder, prompt: &Prompt) -> Vec<Vec<f32>> {
    let rows: Vec<Arc<Vec<f32>>> =
        prompt.images.iter().map(|part| encoder.encode(part.tile()).unwrap()).collect();
    let insets: Vec<Inset<'_>> =
        prompt.images.iter().zip(&rows).map(|(part, rows)| part.inset_of(rows)).collect();
    let sequence = engine.new_sequence().unwrap();
    let entry = BatchEntry { sequence, tokens: &prompt.tokens, outputs: Outputs::All };
    let logits = engine.step_with(&[entry], &[&insets]).unwrap();
    let all = (0..prompt.tokens.len()).map(|at| logits.row(at).to_vec()).collect();
    engine.free(sequence).unwrap();
    all
}

/// Largest `|a - b|` over the largest `|b|`.
fn distance(got: &[f32], want: &[f32]) -> f32 {
    let scale = want.iter().fold(0f32, |m, w| m.max(w.abs()));
    got.iter().zip(want).map(|(g, w)| (g - w).abs()).fold(0f32, f32::max) / scale
}

#[test]
fn logits_agree_with_transformers() {
    for model in MODELS {
        for nodes in [1, 2] {
            let (mut engine, mut encoder) =
                load(model, &LoadOptions { nodes: Some(nodes), ..options() });
            for (at, Known { prompt, rows }) in known(model).into_iter().enumerate() {
                let got = logits(&mut engine, &mut encoder, &prompt);
                for (position, want) in rows {
                    let off = distance(&got[position], &want);
                    assert!(
                        off < TOLERANCE,
                        "{model}, prompt {at}, {nodes} nodes: off by {off:.1e} at {position}"
                    );
                }
            }
        }
    }
}

/// The same bits on several nodes, with any number of threads, and however a prompt is cut.
#[test]
fn images_have_the_same_bits_everywhere() {
    for model in MODELS {
        let (mut engine, mut encoder) = load(model, &options());
        let prompts: Vec<Prompt> = known(model).into_iter().map(|known| known.prompt).collect();
        let want: Vec<_> =
            prompts.iter().map(|prompt| logits(&mut engine, &mut encoder, prompt)).collect();
        for (nodes, threads) in [(2, 2), (3, 4)] {
            let options = LoadOptions { nodes: Some(nodes), threads: Some(threads), ..options() };
            let (mut engine, mut encoder) = load(model, &options);
            for (prompt, want) in prompts.iter().zip(&want) {
                let got = logits(&mut engine, &mut encoder, prompt);
                assert!(got == *want, "{model}, {nodes} nodes");
            }
        }
        // In two steps, the first of which ends behind the first run of an image's outputs.
        let Prompt { tokens, images } = &prompts[0];
        let rows: Vec<_> = images.iter().map(|part| encoder.encode(part.tile()).unwrap()).collect();
        let insets: Vec<Inset<'_>> =
            images.iter().zip(&rows).map(|(part, rows)| part.inset_of(rows)).collect();
        let sequence = engine.new_sequence().unwrap();
        let (first, second) = tokens.split_at(images[0].range().end);
        let entry = |tokens, outputs| [BatchEntry { sequence, tokens, outputs }];
        engine.step_with(&entry(first, Outputs::None), &[&insets]).unwrap();
        let got = engine.step_with(&entry(second, Outputs::Last), &[&insets]).unwrap();
        assert!(got.row(0) == want[0].last().unwrap().as_slice(), "{model}, in two steps");
    }
}

/// The greedy answer of one sequence is that of a server, which cuts prompts, caches beginnings and serves others beside.
#[test]
fn replicas_answer_as_one_sequence_does() {
    const TOKENS: usize = 6;
    for model in MODELS {
        let (mut engine, mut encoder) = load(model, &options());
        let prompts = known(model);
        let request = |prompt: &Prompt| Request {
            images: prompt.images.clone(),
            sampler: SamplerParams::greedy(),
            limit: Some(TOKENS),
            ..Request::new(prompt.tokens.clone())
        };
        let mut alone = |prompt: &Prompt| {
            let helpers = Helpers { encoder: Some(&mut encoder), speculator: None };
            engine.generate(request(prompt), helpers).unwrap().wait().unwrap().0
        };
        // One of them asks the same of another picture.
        let mut all: Vec<Prompt> = prompts.into_iter().map(|known| known.prompt).collect();
        let other = Prompt {
            tokens: all[0].tokens.clone(),
            images: all[0].images.iter().map(other_colours).collect(),
        };
        all.push(with_ids(other));
        let want: Vec<Vec<u32>> = all.iter().map(&mut alone).collect();
        assert_ne!(want[0], want[all.len() - 1], "{model}: the picture counts");
        let mmproj = Arc::new(file(&format!("{model}_mmproj")));
        for step_tokens in [Some(600), Some(40)] {
            let options = LoadOptions { sequences: Some(3), step_tokens, ..options() };
            let serving = ReplicaOptions { encoder: Some(mmproj.clone()), ..Default::default() };
            let replicas =
                Replicas::load(&Arc::new(file(model)), &options, &serving, &mut |_| {}).unwrap();
            for round in 0..2 {
                let requests = all.iter().map(request).collect();
                let tickets = replicas.submit_all(requests).unwrap();
                for (at, (ticket, want)) in tickets.into_iter().zip(&want).enumerate() {
                    let (got, outcome) = ticket.wait().unwrap();
                    assert_eq!(&got, want, "{model}, prompt {at}, round {round}, {step_tokens:?}");
                    let len = all[at].tokens.len();
                    assert_eq!(outcome.cached > len / 2, round > 0, "{model}: {}", outcome.cached);
                }
            }
        }
    }
}

/// The same outputs of a tile with other pixels.
fn other_colours(part: &ImagePart) -> ImagePart {
    let picture = part.tile().picture();
    let rgb = picture.rgb().iter().map(|x| 255 - x).collect();
    let picture = Picture::from_rgb(picture.width(), picture.height(), rgb);
    let tile: Arc<Tile> = Arc::new(part.tile().with(picture));
    ImagePart::new(part.range().start, tile, part.outputs())
}

/// A prompt whose ids are those of its images.
fn with_ids(mut prompt: Prompt) -> Prompt {
    for part in &prompt.images {
        prompt.tokens[part.range()].copy_from_slice(&part.tile().ids(part.outputs()));
    }
    prompt
}

#[test]
fn images_without_an_encoder_are_refused_and_so_are_encoders_of_others() {
    let prompt = known("smolvlm").swap_remove(0).prompt;
    let replicas = |serving: ReplicaOptions| {
        Replicas::load(&Arc::new(file("smolvlm")), &options(), &serving, &mut |_| {})
    };
    let request =
        || Request { images: prompt.images.clone(), ..Request::new(prompt.tokens.clone()) };
    let error = replicas(ReplicaOptions::default()).unwrap().submit(request()).err().unwrap();
    assert!(error.to_string().contains("sees no images"), "{error}");
    let encoder = Some(Arc::new(file("smolvlm_mmproj")));
    let sees = replicas(ReplicaOptions { encoder: encoder.clone(), ..Default::default() }).unwrap();
    let refused = |request| sees.submit(request).err().unwrap().to_string();
    let logprobs = Request { prompt_logprobs: Some(0), ..request() };
    assert!(refused(logprobs).contains("log-probabilities"));
    // Ids of images where there is none.
    let bare = Request { images: Vec::new(), ..request() };
    assert!(refused(bare).contains("vocabulary"));
    let beyond = Request { prompt: prompt.tokens[..10].to_vec(), ..request() };
    assert!(refused(beyond).contains("does not fit into its prompt"));
    // A model of another width.
    let other = Replicas::load(
        &Arc::new(file("llama3_tied")),
        &options(),
        &ReplicaOptions { encoder, ..Default::default() },
        &mut |_| {},
    );
    let error = other.err().unwrap().to_string();
    assert!(error.contains("64") && error.contains("96"), "{error}");
}
