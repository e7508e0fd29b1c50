//! `arclight topo`: the machine as the engine sees it, and where its threads would go.

use crate::error::Error;
use clap::Args;
use serde::Serialize;
use std::io::Write;
use topology::{Layout, Machine};

/// Show the machine: memory nodes, cores, caches, limits, and where threads would run
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TopoArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  arclight topo
  taskset -c 0-7 arclight topo      what is left when only some cores may be used";

#[derive(Serialize)]
struct Report<'a> {
    machine: &'a Machine,
    /// What `run` uses unless told otherwise.
    layout: &'a Layout,
}

/// Runs the command.
pub(crate) fn run(args: &TopoArgs) -> Result<(), Error> {
    let machine = Machine::read()?;
    let layout = topology::layout(&machine, None, None)?;
    let mut out = std::io::stdout().lock();
    if args.json {
        let report = Report { machine: &machine, layout: &layout };
        serde_json::to_writer_pretty(&mut out, &report).map_err(std::io::Error::from)?;
        writeln!(out)?;
    } else {
        write!(out, "{machine}")?;
        writeln!(out, "\nthreads, unless told otherwise")?;
        layout.to_string().lines().try_for_each(|line| writeln!(out, "  {line}"))?;
    }
    Ok(())
}
