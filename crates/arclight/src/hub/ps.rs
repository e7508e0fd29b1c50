//! `arclight ps`: the servers that run on this machine.

use super::list::{ago, print};
use super::servers::servers;
use crate::error::Error;
use crate::table::{figure, words};
use crate::term;
use clap::Args;
use std::io::Write;
use std::time::SystemTime;

/// List the servers of this user that run on this machine
#[derive(Args, Debug)]
pub(crate) struct PsArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(crate) fn run(args: &PsArgs) -> Result<(), Error> {
    let mut out = std::io::stdout().lock();
    let servers = servers();
    if args.json {
        return Ok(term::print_json(&mut out, &servers)?);
    }
    if servers.is_empty() {
        writeln!(out, "No server of yours runs on this machine: arclight serve MODEL starts one.")?;
        return Ok(());
    }
    let now = SystemTime::now();
    let width = servers.iter().map(|s| s.model.chars().count()).max().unwrap_or(0);
    let rows = servers.iter().map(|server| {
        [
            words("model", width, &server.model),
            words("address", 22, format_args!("http://{}", server.address)),
            figure("pid", 7, server.pid),
            words("started", 0, ago(now, server.since())),
        ]
    });
    print(&mut out, rows)
}
