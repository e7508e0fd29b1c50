//! How long a vocabulary takes from the file to ready, and text to tokens and back.
//!
//! `cargo bench -p arclight-tokenizer [-- FILE.gguf...]`: medians of some turns on one thread, of the vocabularies in
//! `tests/data` or of those in the files. The text is `demo/heldout.txt`, cut to 100,000 characters, and the same
//! without a word that comes twice (each word has its number behind it).

use std::path::{Path, PathBuf};
use std::time::Instant;

use arclight_tokenizer::{DecodeOptions, EncodeOptions, Tokenizer};
use gguf::Gguf;

const CHARACTERS: usize = 100_000;
const TURNS: usize = 9;

/// Median milliseconds.
fn median<T>(mut run: impl FnMut() -> T) -> f64 {
    let mut times: Vec<f64> = (0..TURNS)
        .map(|_| {
            let start = Instant::now();
            std::hint::black_box(run());
            start.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[TURNS / 2]
}

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let files = std::env::args().skip(1).filter(|arg| !arg.starts_with("--"));
    let mut files: Vec<PathBuf> = files.map(PathBuf::from).collect();
    if files.is_empty() {
        files = ["qwen3", "llama-bpe", "spm", "internlm2-merges"]
            .map(|name| root.join(format!("tests/data/{name}.gguf")))
            .to_vec();
    }
    let story =
        std::fs::read_to_string(root.join("../../demo/heldout.txt")).expect("the demo's text");
    let text: String = story.chars().cycle().take(CHARACTERS).collect();
    let words = story.split(' ').cycle().enumerate().map(|(at, word)| format!("{word}{at} "));
    let distinct: String =
        words.flat_map(|word| word.chars().collect::<Vec<_>>()).take(CHARACTERS).collect();
    println!(
        "milliseconds: from the file to ready, {CHARACTERS} characters to tokens, distinct words, a stream back"
    );
    for path in files {
        let file = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let gguf = Gguf::parse(&file).expect("a GGUF file");
        let tokenizer = Tokenizer::from_gguf(gguf.metadata()).expect("a vocabulary");
        let load = median(|| Tokenizer::from_gguf(gguf.metadata()));
        let options = EncodeOptions::default();
        let encode = median(|| tokenizer.encode(&text, options));
        let hard = median(|| tokenizer.encode(&distinct, options));
        let ids = tokenizer.encode(&text, options).expect("text can be encoded");
        let stream = median(|| {
            let mut decoder = tokenizer.decoder(DecodeOptions::default());
            ids.iter().map(|id| decoder.push(*id).len()).sum::<usize>()
        });
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        println!(
            "{name:<24} {:>7} tokens {load:>9.2} {encode:>9.2} {hard:>9.2} {stream:>9.2}",
            tokenizer.vocab_size()
        );
    }
}
