//! Images that are computed whole or not at all, in a server's steps: they are answered, whatever the pace allows, and
//! refused where no step can take them.

use arclight_engine::{
    Encoder, Engine, Error, Helpers, LoadOptions, ModelFile, Prompt, ReplicaOptions, Replicas,
    Request, Rows, SamplerParams, Ticket, processor,
};
use gguf::TensorType;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;
use testkit::{TinyModel, WHOLE, whole_encoder};
use vision::{Picture, Piece};

const TOKENS: usize = 8;

fn model() -> ModelFile {
    ModelFile::from_bytes("tiny", TinyModel::gemma3(TensorType::Q4_0).gguf())
}

fn encoder() -> ModelFile {
    ModelFile::from_bytes("tiny encoder", whole_encoder(256))
}

/// A context of 192 tokens: every image alone is as large as a sixth of it.
fn options(sequences: usize, step_tokens: usize) -> LoadOptions {
    LoadOptions {
        no_pin: true,
        threads: Some(2),
        context: Some(192),
        sequences: Some(sequences),
        step_tokens: Some(step_tokens),
        ..LoadOptions::default()
    }
}

fn load(options: &LoadOptions) -> Replicas {
    let serving = ReplicaOptions { encoder: Some(Arc::new(encoder())), ..Default::default() };
    Replicas::load(&Arc::new(model()), options, &serving, &mut |_| {}).unwrap()
}

/// Text, images of these colours, and text.
fn prompt(colours: &[u8]) -> Prompt {
    let processor = processor(&encoder()).unwrap();
    let mut pieces = vec![Piece::Text("a".to_owned())];
    for &colour in colours {
        let picture = Picture::from_rgb(64, 48, testkit::picture(64, 48));
        let rgb = picture.rgb().iter().map(|x| x ^ colour).collect();
        let picture = Picture::from_rgb(64, 48, rgb);
        let outputs = processor.pieces(&picture).unwrap().into_iter();
        pieces.extend(outputs.filter(|piece| matches!(piece, Piece::Outputs(..))));
    }
    pieces.push(Piece::Text("bc".to_owned()));
    let encode = |text: &str, _| Ok::<_, Error>(text.bytes().map(u32::from).collect());
    let prompt = Prompt::of(&pieces, encode).unwrap();
    assert_eq!(prompt.images.len(), colours.len());
    assert!(prompt.images.iter().all(|image| image.range().len() == WHOLE));
    prompt
}

fn request(prompt: Prompt) -> Request {
    Request {
        images: prompt.images,
        sampler: SamplerParams::greedy(),
        limit: Some(TOKENS),
        ..Request::new(prompt.tokens)
    }
}

fn alone(prompt: Prompt) -> Vec<u32> {
    let options = options(1, 512);
    let mut engine = Engine::load(&model(), &options, &mut |_| {}).unwrap();
    let mut encoder = Encoder::load(&encoder(), &engine, &options, &mut |_| {}).unwrap();
    let helpers = Helpers { encoder: Some(&mut encoder), speculator: None };
    engine.generate(request(prompt), helpers).unwrap().wait().unwrap().0
}

/// The answer, unless it never comes.
fn answer(ticket: Ticket) -> Result<Vec<u32>, Error> {
    let (told, heard) = channel();
    std::thread::spawn(move || told.send(ticket.wait().map(|(tokens, _)| tokens)));
    heard.recv_timeout(Duration::from_secs(60)).expect("an answer, or an error")
}

#[test]
fn an_image_is_answered_although_nothing_is_known_of_steps() {
    let replicas = load(&options(2, 512));
    let got = answer(replicas.submit(request(prompt(&[0]))).unwrap()).unwrap();
    assert_eq!(got, alone(prompt(&[0])));
    // The text before the image, the image, the text after it, and a step for each further token.
    let counters = replicas.counters();
    assert_eq!((counters.steps, counters.empty_steps), (3 + TOKENS as u64 - 1, 0));
}

/// An image that fills a step is computed while answers are running.
#[test]
fn images_and_answers_take_turns_where_a_step_holds_only_one_of_them() {
    let replicas = load(&LoadOptions { step_outputs: Some(4), ..options(4, WHOLE) });
    let stream = || Request { limit: Some(150), ..Request::new(vec![1, 2, 3]) };
    let streams: Vec<Ticket> = (0..2).map(|_| replicas.submit(stream()).unwrap()).collect();
    let colours: [&[u8]; 4] = [&[0], &[1, 2], &[3], &[4, 5, 6]];
    let want: Vec<_> = colours.iter().map(|colours| alone(prompt(colours))).collect();
    let images: Vec<Ticket> =
        colours.iter().map(|colours| replicas.submit(request(prompt(colours))).unwrap()).collect();
    for (ticket, want) in images.into_iter().zip(want) {
        assert_eq!(answer(ticket).unwrap(), want);
    }
    for stream in streams {
        assert_eq!(answer(stream).unwrap().len(), 150);
    }
    assert_eq!(replicas.counters().empty_steps, 0);
}

#[test]
fn an_image_that_no_step_holds_is_refused_at_once() {
    let refused = |replicas: &Replicas, request| match replicas.submit(request) {
        Ok(_) => panic!("it was taken"),
        Err(error) => error.to_string(),
    };
    let replicas = load(&options(1, WHOLE - 1));
    let error = refused(&replicas, request(prompt(&[0])));
    assert!(error.contains("36 tokens") && error.contains("35"), "{error}");
    let replicas = load(&LoadOptions { step_outputs: Some(WHOLE - 1), ..options(1, 512) });
    let rows = Request { rows: Some(Rows::Hidden), ..request(prompt(&[0])) };
    let error = refused(&replicas, rows);
    assert!(error.contains("36 tokens") && error.contains("at most 35 rows"), "{error}");
    assert_eq!(answer(replicas.submit(request(prompt(&[0]))).unwrap()).unwrap().len(), TOKENS);
    // With one row more it is accepted; the running answer waits for that step.
    let replicas = load(&LoadOptions { step_outputs: Some(WHOLE), ..options(2, 512) });
    let stream = Request { limit: Some(100), ..Request::new(vec![1, 2, 3]) };
    let stream = replicas.submit(stream).unwrap();
    let rows = Request { rows: Some(Rows::Hidden), ..request(prompt(&[0])) };
    assert!(answer(replicas.submit(rows).unwrap()).unwrap().is_empty());
    assert_eq!(answer(stream).unwrap().len(), 100);
}
