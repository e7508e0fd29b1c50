//! Chapter 2 of the tutorial: a loop of its own over steps, with several sequences in a batch.
#![forbid(unsafe_code)]

use arclight_engine::{BatchEntry, Engine, LoadOptions, ModelFile, Outputs, SeqId};
use arclight_examples::{Ended, model_path, run};
use std::process::ExitCode;
use tokenizer::{EncodeOptions, Tokenizer};

/// A sequence of the engine, and all tokens of its text.
struct Text {
    sequence: SeqId,
    tokens: Vec<u32>,
}

fn main() -> ExitCode {
    run(|| {
        let file = ModelFile::open(model_path())?;
        let tokenizer = Tokenizer::from_gguf(file.gguf()?.metadata())?;
        let (context, sequences) = (Some(256), Some(3));
        let options = LoadOptions { context, sequences, ..LoadOptions::default() };
        let mut engine = Engine::load(&file, &options, &mut |_| {})?;
        let mut texts = Vec::new();
        for prompt in ["Once upon a time there was a fox", "The old map"] {
            let tokens = tokenizer.encode(prompt, EncodeOptions::default())?;
            texts.push(Text { sequence: engine.new_sequence()?, tokens });
        }
        let mut dice = Dice(1);
        for _ in 0..32 {
            step(&mut engine, &mut texts, &mut dice)?;
        }
        tell(&engine, &tokenizer, &texts)?;

        let first = &texts[0];
        let copy = Text { sequence: engine.fork(first.sequence)?, tokens: first.tokens.clone() };
        texts.insert(1, copy);
        println!("a fork: {} pages", pages(&engine));
        for _ in 0..24 {
            step(&mut engine, &mut texts, &mut dice)?;
        }
        tell(&engine, &tokenizer, &texts)
    })
}

/// One step: every text gets one token more.
fn step(engine: &mut Engine, texts: &mut [Text], dice: &mut Dice) -> Ended {
    let mut batch = Vec::new();
    for Text { sequence, tokens } in &*texts {
        let new = &tokens[engine.len(*sequence)?..];
        batch.push(BatchEntry { sequence: *sequence, tokens: new, outputs: Outputs::Last });
    }
    let logits = engine.step(&batch)?;
    let drawn: Vec<u32> = (0..logits.len()).map(|row| draw(logits.row(row), dice)).collect();
    for (text, token) in texts.iter_mut().zip(drawn) {
        text.tokens.push(token);
    }
    Ok(())
}

/// Draws a token: the likelier by its logit, the more often.
fn draw(logits: &[f32], dice: &mut Dice) -> u32 {
    let temperature = 0.5;
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let weight = |logit: &f32| ((logit - most) / temperature).exp();
    let mut at = dice.roll() * logits.iter().map(weight).sum::<f32>();
    let passed = |logit: &f32| {
        at -= weight(logit);
        at < 0.0
    };
    logits.iter().position(passed).unwrap_or(logits.len() - 1) as u32
}

/// Random numbers by a linear congruence.
struct Dice(u64);

impl Dice {
    /// A number from 0 on and below 1.
    fn roll(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 40) as f32 / (1u64 << 24) as f32
    }
}

/// Pages of keys and values that sequences hold.
fn pages(engine: &Engine) -> usize {
    engine.pages().total - engine.pages().free
}

fn tell(engine: &Engine, tokenizer: &Tokenizer, texts: &[Text]) -> Ended {
    for Text { sequence, tokens } in texts {
        let text = tokenizer.decode(tokens, true);
        println!("{} tokens computed: {text:?}", engine.len(*sequence)?);
    }
    println!("{} pages\n", pages(engine));
    Ok(())
}
