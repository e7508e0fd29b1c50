//! `arclight ps`: the servers that run on this machine.

use super::list::ago;
use super::servers::servers;
use crate::error::Error;
use crate::output::{Output, OutputArgs, figure, words};
use clap::Args;
use serde_json::json;
use std::io::Write;
use std::time::SystemTime;

/// List the servers of this user that run on this machine
#[derive(Args, Debug)]
pub(crate) struct PsArgs {
    #[command(flatten)]
    output: OutputArgs,
}

/// An address that is not said to be another kind is one of plain HTTP.
pub(crate) fn url(address: &str) -> String {
    let told = address.starts_with("https:") || address.starts_with("unix:");
    if told { address.to_owned() } else { format!("http://{address}") }
}

/// Runs the command.
pub(crate) fn run(args: &PsArgs) -> Result<(), Error> {
    let mut out = Output::new(args.output);
    let servers = servers();
    if out.data(&json!({ "servers": servers }), &["/servers"])? {
        return Ok(());
    }
    if servers.is_empty() {
        writeln!(out, "No server of yours runs on this machine: arclight serve MODEL starts one.")?;
        return Ok(());
    }
    let now = SystemTime::now();
    let rows = servers.iter().map(|server| {
        [
            words("model", 0, &server.model),
            words("address", 22, url(&server.address)),
            figure("pid", 7, server.pid),
            words("started", 0, ago(now, server.since())),
        ]
    });
    Ok(out.table(rows)?)
}
