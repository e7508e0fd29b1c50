//! `arclight topo`: the machine as the engine sees it, where its threads would go, how fast every
//! node's cores get at every node's memory, and which cores are near each other.

pub(crate) mod latency;
pub(crate) mod measure;
mod table;

use self::measure::{Access, Pace, Pair};
use crate::error::Error;
use crate::output::{Output, OutputArgs};
use clap::Args;
use latency::Latency;
use serde::Serialize;
use std::path::{Path, PathBuf};
use topology::topotree::TopoTree;
use topology::{CpuList, Layout, Machine, NodeList};

/// Show the machine: memory nodes, cores, caches, limits, and where threads would run
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TopoArgs {
    /// Measure read bandwidth and latency between every node's cores and every node's memory
    #[arg(long)]
    bandwidth: bool,
    /// Measure how long a cache line takes between cores, and look for groups that nothing shows
    #[arg(long)]
    latency: bool,
    /// Describe the machine of an hwloc XML file instead, as `lstopo m.xml` writes it anywhere
    #[arg(long, value_name = "FILE", conflicts_with_all = ["synthetic", "bandwidth", "latency"])]
    hwloc: Option<PathBuf>,
    /// Describe a made-up machine instead, such as "pack:2 numa:4 core:24 pu:2"
    #[arg(long, value_name = "LEVELS", conflicts_with_all = ["bandwidth", "latency"])]
    synthetic: Option<String>,
    /// Only these memory nodes, such as 0-1,4
    #[arg(long, value_name = "LIST")]
    nodes: Option<NodeList>,
    /// Only these CPUs, such as 0-7,16
    #[arg(long, value_name = "LIST")]
    cpus: Option<CpuList>,
    #[command(flatten)]
    output: OutputArgs,
}

const EXAMPLES: &str = "\
Examples:
  arclight topo
  arclight topo --bandwidth         every node's cores against every node's memory, in GB/s and ns
  arclight topo --bandwidth --nodes 0-1 -o json
  arclight topo --latency           which cores are near each other
  arclight topo --hwloc m.xml       another machine, exported there by lstopo m.xml
  taskset -c 0-7 arclight topo      what is left when only some cores may be used";

#[derive(Serialize)]
struct Report<'a> {
    machine: &'a Machine,
    /// What `run` uses unless told otherwise.
    layout: &'a Layout,
    #[serde(skip_serializing_if = "Option::is_none")]
    access: Option<Access>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pairs: Option<Vec<Pair>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    latency: Option<Latency>,
}

/// Runs the command.
pub(crate) fn run(args: &TopoArgs) -> Result<(), Error> {
    let machine = match described(args.hwloc.as_deref(), args.synthetic.as_deref())? {
        Some(machine) => machine,
        None => Machine::read()?,
    };
    let nodes = args.nodes.as_ref().map(NodeList::as_slice);
    // Whatever is wrong with these lists, the command line is at fault.
    let machine = machine.restrict(nodes, args.cpus.as_ref()).map_err(Error::usage)?;
    let layout = topology::layout(&machine, None, None)?;
    let mut out = Output::new(args.output);
    let threads: String = layout.to_string().lines().map(|line| format!("\n  {line}")).collect();
    let tree = TopoTree::of(&machine);
    // What is known already need not wait for what takes a while.
    out.block(format_args!("{machine}\ntree\n  {tree}\n\nthreads by default{threads}"))?;
    let access = args.bandwidth.then(|| measure::access(&machine, Pace::FULL)).transpose()?;
    access.iter().try_for_each(|access| table::print(&mut out, access))?;
    let latency = args.latency.then(|| latency::measure(&machine)).transpose()?;
    latency.iter().try_for_each(|latency| table::print_latency(&mut out, latency))?;
    let pairs = access.as_ref().map(Access::pairs);
    let report = Report { machine: &machine, layout: &layout, access, pairs, latency };
    out.data(&report, &["/machine/nodes", "/pairs", "/latency/levels"])?;
    Ok(())
}

/// The machine that a file of hwloc's or some words describe, if there is a description.
pub(crate) fn described(
    hwloc: Option<&Path>,
    synthetic: Option<&str>,
) -> Result<Option<Machine>, Error> {
    match (hwloc, synthetic) {
        (Some(path), _) => {
            let text = std::fs::read_to_string(path).map_err(|e| Error::read(path, e))?;
            let machine = Machine::from_hwloc_xml(&text);
            machine.map(Some).map_err(|e| Error::in_file(path, e))
        }
        (None, Some(levels)) => Machine::from_synthetic(levels).map(Some).map_err(Error::usage),
        (None, None) => Ok(None),
    }
}
