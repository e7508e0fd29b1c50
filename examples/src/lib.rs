//! What the programs of the tutorial (`docs/tutorial.md`) have in common: where the model is, and how they end.
#![forbid(unsafe_code)]

use std::error::Error;
use std::process::ExitCode;

/// What a program of the tutorial gives: nothing, or an error of any kind.
pub type Ended = Result<(), Box<dyn Error>>;

/// The model that the program is to use: its first argument, or the demo model of this repository.
pub fn model_path() -> String {
    let demo = concat!(env!("CARGO_MANIFEST_DIR"), "/../demo/arclight-demo.gguf");
    std::env::args().nth(1).unwrap_or_else(|| demo.to_owned())
}

/// Runs a program, and says in one line why it could not end well.
pub fn run(program: impl FnOnce() -> Ended) -> ExitCode {
    match program() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
