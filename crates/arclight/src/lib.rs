//! LLM inference for many-core CPUs: the command line.
//!
//! The program is [`main`]; [`open`] loads a model for programs that have this one inside, with the options of
//! `arclight serve`.
//!
//! One module per command; what they share stands in `args`, `load`, `session` and `term`. Results
//! go to standard output, everything else to standard error. A command that fails ends with one
//! line that begins with `error:` and exit code 2 when the command line is at fault, 1 otherwise.
#![forbid(unsafe_code)]

mod args;
mod bench;
mod bench_serve;
mod bench_sync;
mod chat;
mod chat_template;
mod cli;
mod convert;
mod doctor;
mod embed;
mod error;
mod folder;
mod graph_cmd;
mod health;
mod home;
mod hub;
mod images;
mod imatrix;
mod inspect;
mod interrupt;
mod kept;
mod kernel_files;
mod library;
mod load;
mod logging;
mod lora;
mod machine_args;
mod model_file;
mod model_info;
mod output;
mod perplexity;
mod plan;
mod profile;
mod program;
mod quantize;
mod replace;
mod report;
mod run;
mod screen;
mod serve;
mod session;
mod speculate;
mod spread;
mod synth;
mod term;
mod topo;
mod tune;
mod wrap;

pub use library::{Failure, FailureKind, Opened, library_runtime, log_warnings, open};

use std::ffi::OsString;

/// Runs the program with a command line, whose first word is the program's name; the exit code.
pub fn main(args: Vec<OsString>) -> u8 {
    let cli = match program::parse(args) {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    term::set(cli.quiet, cli.color);
    if let Err(e) = logging::install(cli.verbose, cli.quiet, cli.log(), cli.logged()) {
        return fail(&e);
    }
    match program::run(&cli) {
        Ok(()) => 0,
        Err(e) => fail(&e),
    }
}

fn fail(e: &error::Error) -> u8 {
    if !e.is_silent() {
        program::print_error(&e.line());
    }
    e.exit_code()
}
