//! What `tests/numa-vm/run` and `count` execute inside of the virtual machine.
//!
//! Each command loads a model with the engine's public interface, looks at the outcome from
//! outside (logits of a reference run, the kernel's `/proc/self/numa_maps`), and ends with status
//! 1 and one line for each thing that is not as it must be.

// Two instructions sequences need it, each in a file of its own: the plugin's markers and the
// filter of system calls.
#![deny(unsafe_code)]

mod count;
mod error;
mod load;
mod maps;
#[cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "an instruction that does nothing but be seen")
)]
mod marker;
mod placed;
mod placement;
#[expect(unsafe_code, reason = "prctl")]
mod refuse;
mod script;
mod stall;

use clap::{Parser, Subcommand};
use error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

/// Checks of placement for the virtual machine with several memory nodes
#[derive(Parser, Debug)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Write the logits of the fixed script on one node: the reference, on any machine
    Logits {
        #[command(flatten)]
        load: load::LoadArgs,
        /// Where to: rows of f32, native byte order
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
    },
    /// Run the script at several thread counts; compare logits, ask the kernel for every page
    Placed(placed::PlacedArgs),
    /// Decode between markers of the access-counting plugin
    Count(count::CountArgs),
    /// Load until half of the weights are packed, say `half`, and wait to be killed
    Stall {
        #[command(flatten)]
        load: load::LoadArgs,
    },
    /// Send markers to the access-counting plugin, for a program that cannot do it itself
    Mark {
        /// What to tell it, in order
        #[arg(required = true, value_enum)]
        marks: Vec<marker::Mark>,
    },
    /// Run a command that is refused system calls, as containers do: EPERM
    Refuse {
        /// Which, separated by commas
        #[arg(value_enum, value_delimiter = ',', required = true)]
        calls: Vec<refuse::Call>,
        /// The command and its arguments
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
}

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("FAILED: {}", e.with_causes());
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli) -> Result<(), Error> {
    match &cli.command {
        Command::Logits { load, out } => script::write_reference(load, out),
        Command::Placed(args) => placed::run(args),
        Command::Count(args) => count::run(args),
        Command::Stall { load } => stall::run(load),
        Command::Mark { marks } => {
            marks.iter().for_each(|&m| marker::send(m));
            Ok(())
        }
        Command::Refuse { calls, command } => refuse::run(calls, command),
    }
}
