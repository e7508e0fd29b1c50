//! Encodes a file with a model's tokenizer and says how long it took.
//!
//!     cargo run --release --example tokenize -- MODEL.gguf TEXT

use std::error::Error;
use std::time::Instant;

use arclight_tokenizer::{EncodeOptions, Tokenizer};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let [model, text] = args.as_slice() else {
        return Err("usage: tokenize MODEL.gguf TEXT".into());
    };
    let file = std::fs::read(model)?;
    let text = std::fs::read_to_string(text)?;
    let gguf = gguf::Gguf::parse(&file)?;

    let start = Instant::now();
    let tokenizer = Tokenizer::from_gguf(gguf.metadata())?;
    println!("{} tokens, built in {:.3} s", tokenizer.vocab_size(), start.elapsed().as_secs_f64());
    for pass in ["first", "second"] {
        let start = Instant::now();
        let ids = tokenizer.encode(&text, EncodeOptions::default())?;
        let seconds = start.elapsed().as_secs_f64();
        let speed = text.len() as f64 / 1e6 / seconds;
        println!("{pass} pass: {} ids in {seconds:.4} s, {speed:.1} MB/s", ids.len());
        let start = Instant::now();
        let back = tokenizer.decode(&ids, false);
        println!("  decoded in {:.4} s, same: {}", start.elapsed().as_secs_f64(), back == text);
    }
    Ok(())
}
