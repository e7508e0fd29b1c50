//! The command line itself: commands, help, completions, and how its faults are told.

use crate::error::Error;
use crate::report::wrap_at;
use crate::serve::{self, settings};
use crate::{
    bench, bench_serve, bench_sync, chat, convert, doctor, embed, graph_cmd, health, hub, imatrix,
    inspect, logging, perplexity, plan, quantize, run, synth, term, topo, tune,
};
use clap::error::ErrorKind;
use clap::{ArgMatches, ColorChoice, CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::Shell;
use std::ffi::OsString;
use std::io::Write;

/// LLM inference for many-core CPUs
#[derive(Parser, Debug)]
#[command(
    name = "arclight",
    version,
    about = "Runs large language models on CPUs with many cores and several memory nodes",
    after_help = after_help(),
    propagate_version = false,
    disable_help_subcommand = true,
    arg_required_else_help = true,
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Tell what is being done; twice for more
    #[arg(short, long, global = true, action = clap::ArgAction::Count, display_order = 900)]
    pub(crate) verbose: u8,
    /// Print the result and nothing else
    #[arg(short, long, global = true, display_order = 901)]
    pub(crate) quiet: bool,
    /// Colours: where a terminal shows them, or always, or never
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        value_enum,
        default_value = "auto",
        display_order = 902,
        hide_possible_values = true
    )]
    pub(crate) color: ColorChoice,
}

fn after_help() -> String {
    format!(
        "\
Start here:
  arclight run                      a little story by the built-in demo model
  arclight run qwen3:0.6b -p Hello  a small model by its name, fetched if needed
  arclight chat model.gguf          talk with a model, in a file or by its name
  arclight serve model.gguf         serve it over HTTP, with OpenAI's API
  arclight bench model.gguf         how fast it is, and how fast it could be
  arclight doctor                   what on this machine costs speed
  arclight plan                     how fast this machine could be, or another
  arclight tune model.gguf          find the cores that are fastest for it
  arclight COMMAND --help           options and examples of a command

Environment:
  ARCLIGHT_LOG    what to log, as in RUST_LOG: warn, arclight_engine=debug, ...
  ARCLIGHT_ISA    kernels to use instead of the best ones:
                  {}
  NO_COLOR        no colours",
        wrap_at(&kernels::Isa::names(), 62).join("\n                  ")
    )
}

#[derive(Subcommand, Debug)]
enum Command {
    Run(run::RunArgs),
    Chat(chat::ChatArgs),
    Serve(Box<serve::args::ServeArgs>),
    Embed(embed::EmbedArgs),
    Pull(hub::pull::PullArgs),
    List(hub::list::ListArgs),
    Show(hub::show::ShowArgs),
    Rm(hub::rm::RmArgs),
    Ps(hub::ps::PsArgs),
    Health(health::HealthArgs),
    Bench(bench::BenchArgs),
    BenchServe(bench_serve::BenchServeArgs),
    BenchSync(bench_sync::BenchSyncArgs),
    Perplexity(perplexity::PerplexityArgs),
    Inspect(inspect::InspectArgs),
    Topo(topo::TopoArgs),
    Doctor(doctor::DoctorArgs),
    Plan(plan::PlanArgs),
    Tune(tune::TuneArgs),
    Graph(graph_cmd::GraphArgs),
    Convert(convert::ConvertArgs),
    Quantize(quantize::QuantizeArgs),
    Imatrix(imatrix::ImatrixArgs),
    Synth(synth::SynthArgs),
    /// Print a script that completes commands and options in a shell
    #[command(after_help = COMPLETIONS_HELP)]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print a manual page
    #[command(after_help = MAN_HELP)]
    Man {
        /// Of this command [default: of the program]
        name: Option<String>,
    },
}

const MAN_HELP: &str = "\
Examples:
  arclight man run | man -l -
  for c in '' run chat serve; do arclight man $c > arclight${c:+-$c}.1; done";

const COMPLETIONS_HELP: &str = "\
Examples:
  arclight completions bash > ~/.local/share/bash-completion/completions/arclight
  arclight completions fish > ~/.config/fish/completions/arclight.fish
  arclight completions zsh  > \"${fpath[1]}/_arclight\"";

impl Cli {
    /// How what the program tells of itself is written.
    pub(crate) fn log(&self) -> logging::Style {
        match &self.command {
            Command::Serve(args) => logging::Style::Server(args.log_format),
            _ => logging::Style::Lines,
        }
    }

    /// What of it is written, if the command line says so.
    pub(crate) fn logged(&self) -> Option<&str> {
        match &self.command {
            Command::Serve(args) => args.log.as_deref(),
            _ => None,
        }
    }

    pub(crate) fn run(&self) -> Result<(), Error> {
        match &self.command {
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

/// clap's message without its paragraphs: the fault and the tip, with a hint to the help.
pub(crate) fn one_line(text: &str) -> String {
    let mut line = String::new();
    let mut usage = "";
    for part in text.lines().map(str::trim).filter(|l| !l.is_empty()) {
        if let Some(rest) = part.strip_prefix("Usage: ") {
            usage = rest;
        } else if !part.starts_with("For more information") && !part.starts_with("tip: to pass") {
            let between = match line.chars().last() {
                None => "",
                Some(':') => " ",
                Some(_) => "; ",
            };
            line.push_str(between);
            line.push_str(part.strip_prefix("error: ").unwrap_or(part));
        }
    }
    // `arclight run [OPTIONS] [MODEL]`: the words of the command come first.
    let command: Vec<&str> = usage
        .split_whitespace()
        .take_while(|word| word.chars().all(|c| c.is_ascii_alphabetic()))
        .collect();
    if command.is_empty() { line } else { format!("{line} (see {} --help)", command.join(" ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        settings::command().debug_assert();
        assert!(after_help().contains(logging::VARIABLE));
    }

    #[test]
    fn faults_are_one_line() {
        let fault = |args: &[&str]| {
            let e = Cli::try_parse_from(args).unwrap_err();
            one_line(&e.render().to_string())
        };
        assert_eq!(
            fault(&["arclight", "run", "--threads", "0"]),
            "invalid value '0' for '--threads <N>': it must be at least 1"
        );
        assert!(
            fault(&["arclight", "perplexit"]).contains("a similar subcommand exists: 'perplexity'")
        );
        assert_eq!(
            fault(&["arclight", "inspect"]),
            "the following required arguments were not provided: <MODEL> \
             (see arclight inspect --help)"
        );
        assert!(fault(&["arclight", "run", "-p", "a", "-f", "b"]).contains("cannot be used with"));
    }
}
