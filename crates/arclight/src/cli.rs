//! The command line itself: commands, help, and how its faults are told.

use crate::serve::args::ServeArgs;
use crate::wrap::wrap_at;
use crate::{
    bench, bench_serve, bench_sync, chat, convert, doctor, embed, graph_cmd, health, hub, imatrix,
    inspect, logging, perplexity, plan, quantize, run, synth, topo, tune,
};
use clap::{ColorChoice, Parser, Subcommand};
use clap_complete::Shell;

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
    pub(crate) command: Command,
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
pub(crate) enum Command {
    Run(run::RunArgs),
    Chat(chat::ChatArgs),
    Serve(Box<ServeArgs>),
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
    fn help_names_the_variable_of_the_log() {
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
