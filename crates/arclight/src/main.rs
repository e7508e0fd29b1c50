//! LLM inference for many-core CPUs: the command line.
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
mod graph_cmd;
mod hub;
mod images;
mod imatrix;
mod inspect;
mod interrupt;
mod load;
mod logging;
mod lora;
mod model_file;
mod model_info;
mod output;
mod perplexity;
mod plan;
mod profile;
mod quantize;
mod replace;
mod report;
mod run;
mod screen;
mod serve;
mod session;
mod speculate;
mod synth;
mod term;
mod topo;
mod tune;

use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = match cli::parse() {
        Ok(cli) => cli,
        Err(code) => return ExitCode::from(code),
    };
    term::set(cli.quiet, cli.color);
    if let Err(e) = logging::install(cli.verbose, cli.quiet, cli.log()) {
        return fail(&e);
    }
    match cli.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => fail(&e),
    }
}

fn fail(e: &error::Error) -> ExitCode {
    if !e.is_silent() {
        cli::print_error(&e.line());
    }
    ExitCode::from(e.exit_code())
}
