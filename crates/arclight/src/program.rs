//! The program: it reads its command line and runs the command.

use crate::cli::{Cli, Command, one_line};
use crate::error::Error;
use crate::serve::{self, settings};
use crate::{
    bench, bench_serve, bench_sync, chat, convert, doctor, embed, graph_cmd, health, hub, imatrix,
    inspect, logging, perplexity, plan, quantize, run, synth, term, topo, tune,
};
use clap::error::ErrorKind;
use clap::{ArgMatches, CommandFactory, FromArgMatches};
use std::ffi::OsString;
use std::io::Write;

/// Reads the command line; prints help, version or the fault otherwise and gives the exit code.
pub(crate) fn parse(args: Vec<OsString>) -> Result<Cli, u8> {
    let matches = settings::matches(args);
    let read = |matches: ArgMatches| {
        let mut cli = Cli::from_arg_matches(&matches)?;
        if let Command::Serve(args) = &mut cli.command {
            settings::complete(args, &matches)?;
        }
        Ok(cli)
    };
    matches.and_then(read).map_err(|e: clap::Error| match e.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // A reader that goes away has seen enough.
            let _ = e.print();
            0
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = e.print();
            2
        }
        _ => {
            print_error(&one_line(&e.render().to_string()));
            2
        }
    })
}

/// Runs the command.
pub(crate) fn run(cli: &Cli) -> Result<(), Error> {
    match &cli.command {
        Command::Run(args) => run::run(args),
        Command::Chat(args) => chat::run(args),
        Command::Serve(args) => serve::run(args),
        Command::Pull(args) => hub::pull::run(args),
        Command::List(args) => hub::list::run(args),
        Command::Show(args) => hub::show::run(args),
        Command::Rm(args) => hub::rm::run(args),
        Command::Ps(args) => hub::ps::run(args),
        Command::Health(args) => health::run(args),
        Command::Bench(args) => bench::run(args),
        Command::BenchServe(args) => bench_serve::run(args),
        Command::BenchSync(args) => bench_sync::run(args),
        Command::Embed(args) => embed::run(args),
        Command::Perplexity(args) => perplexity::run(args),
        Command::Inspect(args) => inspect::run(args),
        Command::Topo(args) => topo::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Plan(args) => plan::run(args),
        Command::Tune(args) => tune::run(args),
        Command::Graph(args) => graph_cmd::run(args),
        Command::Convert(args) => convert::run(args),
        Command::Quantize(args) => quantize::run(args),
        Command::Imatrix(args) => imatrix::run(args),
        Command::Synth(args) => synth::run(args),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut Cli::command(), "arclight", &mut script);
            Ok(std::io::stdout().write_all(&script)?)
        }
        Command::Man { name } => man(name.as_deref()),
    }
}

/// Prints a manual page.
fn man(name: Option<&str>) -> Result<(), Error> {
    let mut program = Cli::command();
    program.build();
    let command = match name {
        None => program,
        Some(name) => program.find_subcommand(name).cloned().ok_or_else(|| {
            Error::Usage(format!("{name} is no command: arclight --help lists them"))
        })?,
    };
    let mut page = Vec::new();
    clap_mangen::Man::new(command).render(&mut page)?;
    Ok(std::io::stdout().write_all(&page)?)
}

/// The error line.
pub(crate) fn print_error(line: &str) {
    if logging::is_json() {
        tracing::error!(target: logging::NOTES, "{line}");
        return;
    }
    let red = anstyle::AnsiColor::Red.on_default().bold();
    let text = term::wrapped(&format!("error: {line}"));
    let rest = text.strip_prefix("error:").unwrap_or_default();
    anstream::eprintln!("{red}error:{red:#}{rest}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        settings::command().debug_assert();
    }
}
