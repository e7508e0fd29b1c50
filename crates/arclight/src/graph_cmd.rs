//! `arclight graph`: what a model compiles to.

use crate::args::{ModelArg, count};
use crate::error::Error;
use crate::load;
use clap::Args;
use graph::{Gather, Graph, Header, LayerListing, Plan, Variant};
use std::io::Write;
use topology::{CpuId, Group};

/// Show one layer's compiled stages: operators, placements, waits, bytes read per memory node
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct GraphArgs {
    #[command(flatten)]
    model: ModelArg,
    /// Memory nodes to compile for; they need not exist
    #[arg(long, value_name = "N", value_parser = count, default_value = "1")]
    nodes: usize,
    /// Which layer, from 0 [default: 1, which has another before it as most have]
    #[arg(long, value_name = "N")]
    layer: Option<usize>,
    /// The form for many tokens at once, instead of the form for one
    #[arg(long)]
    prefill: bool,
    /// List the headers of all tensors instead: type, shape, bytes, operation, how nodes share it (a weight by its rows or
    /// columns), bytes on each node, and what it is made of
    #[arg(long, conflicts_with = "prefill")]
    tensors: bool,
}

const EXAMPLES: &str = "\
Examples:
  arclight graph --nodes 2
  arclight graph model.gguf --nodes 4 --prefill
  arclight graph model.gguf --nodes 2 --tensors --layer 0";

/// Runs the command.
pub(crate) fn run(args: &GraphArgs) -> Result<(), Error> {
    let file = load::open(&args.model)?;
    let gguf = file.gguf()?;
    let model = models::build(&gguf, args.nodes)
        .map_err(|source| Error::Model { path: file.path().to_owned(), source })?;
    let last = model.hparams.layers - 1;
    let layer = args.layer.unwrap_or(last.min(1));
    if layer > last {
        return Err(Error::Usage(format!("there is no layer {layer}: use --layer {last} or less")));
    }
    if args.tensors {
        return list(&model.graph, args.layer);
    }
    // Stages depend on the number of groups, not on who is in them.
    let group = Group::unbound(vec![CpuId(0)]);
    let plan = Plan::new(vec![group; args.nodes]);
    let variant = match args.prefill {
        false => Variant::DECODE,
        // What the default plan does with a long chunk of a prompt.
        true if args.nodes > 2 => Variant { gather: Gather::Scatter, ..Variant::PREFILL },
        true => Variant::PREFILL,
    };
    let listing = LayerListing::new(&model.graph, &plan, variant, layer);
    Ok(write!(std::io::stdout().lock(), "{listing}")?)
}

/// Lists headers: all, or those of a layer.
fn list(graph: &Graph, layer: Option<usize>) -> Result<(), Error> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", Header::titles())?;
    let headers = graph.headers();
    let mut wanted = headers.iter().filter(|header| layer.is_none_or(|_| header.layer == layer));
    Ok(wanted.try_for_each(|header| writeln!(out, "{header}"))?)
}
