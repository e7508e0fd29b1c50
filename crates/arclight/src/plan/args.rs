//! The options of `arclight plan`.

use super::engines::EngineArg;
use super::layout::HostsArgs;
use super::model::ModelChoice;
use crate::args::{KvArgs, List, count, counts};
use crate::output::OutputArgs;
use clap::{Args, ValueHint};
use std::path::PathBuf;

/// Predict how fast a machine would be: threads, nodes, placements, and what limits them
///
/// Without a machine it is the one at hand: it is measured for some seconds, and the answer says which
/// cores to use for prompts and for decoding, which not, and why.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PlanArgs {
    /// A machine that comes with the program, such as epyc-9654 (--machines lists them)
    #[arg(long, value_name = "NAME", conflicts_with_all = ["topology", "synthetic", "bandwidth"])]
    pub(super) machine: Option<String>,
    /// The machine of an hwloc XML file, as `lstopo m.xml` writes it anywhere
    #[arg(long, value_name = "FILE", conflicts_with = "synthetic",
          value_hint = ValueHint::FilePath)]
    pub(super) topology: Option<PathBuf>,
    /// A made-up machine, such as "numa:4 core:48"
    #[arg(long, value_name = "LEVELS")]
    pub(super) synthetic: Option<String>,
    /// What its memory delivers: GB/s, a row for the cores of each node, a column for the memory of
    /// each; or what `arclight topo --bandwidth -o json` prints there
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(super) bandwidth: Option<PathBuf>,
    /// Whose cores and waits a machine of --topology or --synthetic has, as --machine names them
    #[arg(long, value_name = "NAME", conflicts_with = "machine")]
    pub(super) like: Option<String>,
    /// Shape and type of a model (arclight synth --help lists them), or a GGUF file
    #[arg(short, long, value_name = "SHAPE:TYPE|FILE", default_value = "qwen3-4b:q4_0")]
    pub(super) model: ModelChoice,
    #[command(flatten)]
    pub(super) kv: KvArgs,
    /// Tokens of the prompt
    #[arg(short, long, value_name = "N", value_parser = count, default_value = "512")]
    pub(super) prompt: usize,
    /// Tokens of the answer, in the tokens/s of prompt and answer together
    #[arg(short = 'n', long, value_name = "N", value_parser = count, default_value = "128")]
    pub(super) tokens: usize,
    /// Tokens that stand before the prompt, and before each token that is decoded
    #[arg(short, long, value_name = "N", default_value_t = 128)]
    pub(super) context: usize,
    /// Sequences that are decoded at once
    #[arg(short, long, value_name = "N", value_parser = count, default_value = "1")]
    pub(super) batch: usize,
    /// Engines to predict, in this order
    #[arg(short, long, value_name = "NAME,...", value_enum, value_delimiter = ',',
          default_values_t = EngineArg::DEFAULT)]
    pub(super) engine: Vec<EngineArg>,
    /// Numbers of threads in the tables, over all nodes [default: some of all that are possible]
    #[arg(short, long, value_name = "N,...", value_parser = counts)]
    pub(super) threads: Option<List>,
    /// Draw tokens/s over threads into this SVG file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(super) plot: Option<PathBuf>,
    /// Measure the model here with 1, 2, 4 and more threads (or --threads), and say which share of the work is
    /// serial by Amdahl's law, and what a further core brings
    #[arg(long, conflicts_with_all = NOT_WITH_SCALING)]
    pub(super) scaling: bool,
    #[command(flatten)]
    pub(super) output: OutputArgs,
    /// List the machines that come with the program; with --machine, where its numbers come from
    #[arg(long, conflicts_with_all = ["topology", "synthetic", "plot"])]
    pub(super) machines: bool,
    #[command(flatten)]
    pub(super) hosts: HostsArgs,
}

/// What is of a prediction, or of another machine.
const NOT_WITH_SCALING: [&str; 8] =
    ["machine", "topology", "synthetic", "bandwidth", "like", "engine", "plot", "machines"];

const EXAMPLES: &str = "\
Engines:
  unplaced     pages wherever the first touch put them, a barrier of all threads after each
               operator, as llama.cpp has it
  interleaved  the same with pages going round the nodes, as under numactl --interleave=all
  replicated   the same with all weights in every node
  tp-a, tp-b   this engine, tensor parallel; in Sync A all threads wait for each other every time,
               in Sync B only where nodes exchange sums
  pp           this engine as a pipeline, some of the layers in each node
  numa-aware   llama.cpp with Arm's patch: rows and inputs in their nodes, a barrier by nodes
  paper-a, paper-b   the engine of the ArcLight paper, whose LM head is whole on node 0

Examples:
  arclight plan                                     this machine, measured
  arclight plan --scaling -m model.gguf             its speed by threads, measured: what more cores bring
  arclight plan --machines                          the machines it knows
  arclight plan --machine kunpeng-920 -m qwen3-4b:q4_0 --plot kunpeng.svg
  arclight plan --topology m.xml --bandwidth gbs.txt -m model.gguf --like epyc-9654
  arclight plan --machine epyc-9654 -m llama3-8b:q8_0 --engine unplaced,tp-b --threads 96,192
  arclight plan --machine epyc-9654 -m qwen3-32b:q4_0 --hosts 4 --link 25gbit --batch 16";
