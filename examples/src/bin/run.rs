//! Chapter 1 of the tutorial: runs a model on a prompt.
#![forbid(unsafe_code)]

use arclight_engine::{Engine, Helpers, LoadOptions, ModelFile, Request, SamplerParams};
use arclight_examples::{Ended, model_path, run};
use std::io::Write;
use std::process::ExitCode;
use tokenizer::{DecodeOptions, EncodeOptions, Tokenizer};

fn main() -> ExitCode {
    run(|| {
        let file = ModelFile::open(model_path())?;
        let tokenizer = Tokenizer::from_gguf(file.gguf()?.metadata())?;
        let options = LoadOptions { context: Some(512), ..LoadOptions::default() };
        let mut engine = Engine::load(&file, &options, &mut |_| {})?;
        let model = engine.hparams();
        println!("{}: {} layers, width {}", model.name, model.layers, model.hidden);

        let text = "Once upon a time";
        let whole = EncodeOptions { add_special: true, parse_special: false };
        let prompt = tokenizer.encode(text, whole)?;
        println!("{text:?} is {} tokens: {prompt:?}", prompt.len());

        let request = Request {
            sampler: SamplerParams { seed: 3, ..SamplerParams::default() },
            limit: Some(60),
            end_tokens: tokenizer.eog_ids().to_vec(),
            ..Request::new(prompt)
        };
        answer(&mut engine, &tokenizer, request)
    })
}

/// Prints the text of an answer as its tokens come.
fn answer(engine: &mut Engine, tokenizer: &Tokenizer, request: Request) -> Ended {
    let follows = DecodeOptions { continues: true, ..DecodeOptions::default() };
    let mut decoder = tokenizer.decoder(follows);
    let mut generation = engine.generate(request, Helpers::default())?;
    for token in generation.by_ref() {
        print!("{}", decoder.push(token?.id));
        std::io::stdout().flush()?;
    }
    println!("{}", decoder.flush());
    if let Some(outcome) = generation.outcome() {
        println!("{} tokens, ended by {:?}", outcome.tokens, outcome.stopped);
    }
    Ok(())
}
