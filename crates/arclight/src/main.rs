//! LLM inference for many-core CPUs: the program. All of it is in the library.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(arclight::main(std::env::args_os().collect()))
}
