//! `arclight doctor`: what on this machine costs speed, in the order of what it costs.

use crate::error::Error;
use crate::output::{Output, OutputArgs};
use crate::term::{self, note};
use crate::wrap::wrap_at;
use clap::Args;
use kernels::Kernels;
use serde::Serialize;
use std::io::Write;
use std::path::Path;
use std::time::Duration;
use topology::Machine;
use why::machine::{self, Check, Sample, State};

/// Look for what makes this machine slower than it could be, and say what mends it
///
/// It changes nothing. What costs most comes first: what others take and what limits allow is measured, the
/// rest is the most that is usual.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    output: OutputArgs,
}

const EXAMPLES: &str = "\
Examples:
  arclight doctor
  sudo arclight doctor              memory channels too, which only root may see
  arclight topo --bandwidth         how fast each node's memory is
  arclight plan                     which cores to use";

/// Time over which the work of others is measured.
const LOOK: Duration = Duration::from_secs(1);
/// Characters of a line.
const LINE: usize = 76;

/// Everything that was seen.
#[derive(Serialize)]
struct Found {
    cpu: String,
    cores: usize,
    nodes: usize,
    kernels: &'static str,
    checks: Vec<Check>,
}

/// Runs the command.
pub(crate) fn run(args: &DoctorArgs) -> Result<(), Error> {
    let root = Path::new("/");
    let machine = Machine::read()?;
    let before = Sample::read(root);
    note!("looking at what others do for {}", term::seconds(LOOK));
    std::thread::sleep(LOOK);
    let after = Sample::read(root);
    let found = Found {
        cpu: machine.model().unwrap_or("unknown CPU").to_owned(),
        cores: machine.usable_cores(),
        nodes: machine.usable_nodes().count().max(1),
        kernels: Kernels::detect().map_err(arclight_engine::Error::from)?.isa().name(),
        checks: machine::check(root, &machine, &before, &after),
    };
    let mut out = Output::new(args.output);
    if out.data(&found, &["/checks"])? {
        return Ok(());
    }
    print(&found, &mut out)
}

fn print(found: &Found, out: &mut Output<impl Write>) -> Result<(), Error> {
    let Found { cpu, cores, nodes, kernels, checks } = found;
    let (cores, nodes) = (term::plural(*cores, "core"), term::plural(*nodes, "memory node"));
    writeln!(out, "{cpu}, {cores} on {nodes}, {kernels} kernels\n")?;
    let mut all_is_well = true;
    for check in checks {
        let State::Costs { share, mend } = &check.state else { continue };
        all_is_well = false;
        writeln!(out, "{}, up to {:.0} %", check.name, (100.0 * share).max(1.0))?;
        wrap_at(&check.seen, LINE).iter().try_for_each(|line| writeln!(out, "  {line}"))?;
        mend.iter().try_for_each(|text| writeln!(out, "    {text}"))?;
        writeln!(out)?;
    }
    if all_is_well {
        writeln!(out, "nothing was found that costs speed\n")?;
    }
    for (what, state) in [("fine", State::Fine), ("unknown", State::Unknown)] {
        for (at, check) in checks.iter().filter(|check| check.state == state).enumerate() {
            let what = if at == 0 { what } else { "" };
            writeln!(out, "{what:<8} {:<15}  {}", check.name, check.seen)?;
        }
    }
    Ok(())
}
