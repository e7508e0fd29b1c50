//! The options of `arclight tune`.

use crate::args::{KvArgs, List, LoadArg, ModelArg, count, counts};
use crate::kernel_files::KernelArgs;
use crate::output::OutputArgs;
use clap::{Args, ValueEnum, ValueHint};
use models::published::Published;
use std::path::PathBuf;
use tune::simulated::Sharing;
use tune::tuner::Objective;

/// Find the cores that serve a model fastest here, and remember them
///
/// Steps of the model are timed on different groups of cores: those of its prompts and those of its
/// answers, which want other cores. What is found is kept for this model on this machine, and run, chat,
/// serve and bench use it from then on. For the cores that are found, every matrix gets the micro-kernel,
/// the blocking and the prefetch distance that are fastest, by the tokens of a step.
///
/// With --machine, --hwloc or --synthetic the search runs on a machine that is not at hand, whose steps take what
/// the model of time says: its tree, what each step of the search brings there and how long it takes are printed,
/// and nothing is kept.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TuneArgs {
    #[command(flatten)]
    pub(super) model: ModelArg,
    /// Tune for a model made in memory, such as qwen3-0.6b:q4_0 (arclight synth --help lists them)
    #[arg(long, value_name = "SHAPE:TYPE", conflicts_with = "model")]
    pub(super) synth: Option<Published>,
    /// Ask the few questions that matter most: 20 seconds at most, the loading not counted
    #[arg(long)]
    pub(super) quick: bool,
    /// Measure what the profile's ways to multiply are worth, against the default and each micro-kernel, and
    /// search nothing
    #[arg(long, conflicts_with_all = ["quick", "trace"])]
    pub(super) compare: bool,
    /// Measure what each mechanism brings here, as tables 1 to 3 of the Sandwich paper have it: communication, cores by
    /// phase, schedules of matrices, split-K; the best k plans; the window of micro-kernels. Nothing is kept
    #[arg(long, conflicts_with_all = ["quick", "compare", "profile_file", "replicas", "latency", "budget", "together"])]
    pub(super) ablation: bool,
    /// With --ablation: memory nodes, virtual ones if the machine has fewer
    #[arg(long, value_name = "N", value_parser = count, requires = "ablation")]
    pub(super) nodes: Option<usize>,
    /// Requests to tune for, a line each: {"prompt_tokens": 70, "output_tokens": 400}, or as OpenAI's API
    /// has them in `usage` [default: lengths of chats, from published quantiles]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(super) trace: Option<PathBuf>,
    /// Requests that are served together
    #[arg(long, value_name = "N", value_parser = count, default_value = "1")]
    pub(super) together: usize,
    /// Numbers of replicas to tune for, each of which has its part of the machine and of the requests; the profile of
    /// each number is kept for `serve --replicas N`
    #[arg(long, value_name = "N,...", value_parser = counts, default_value = "1",
          conflicts_with_all = ["quick", "compare"])]
    pub(super) replicas: List,
    /// Minimise the time of steps, or their energy by the processors' own meters (RAPL)
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = ObjectiveArg::Time,
          conflicts_with_all = ["quick", "compare", "ablation"])]
    pub(super) objective: ObjectiveArg,
    /// Repetitions of each step in the end, 5 or more
    #[arg(short, long, value_name = "N", value_parser = repetitions, default_value = "9")]
    pub(super) repetitions: usize,
    /// Most time for the matrices, once cores are found; 0 leaves them as they are
    #[arg(long, value_name = "SECONDS", default_value = "90", conflicts_with_all = ["quick", "compare"])]
    pub(super) matrices: u16,
    /// Plans whose matrices are tuned, the best of the search for cores
    #[arg(long, value_name = "K", value_parser = count, default_value = "2", conflicts_with = "compare")]
    pub(super) top_k: usize,
    /// At each count of tokens try only the micro-kernels that won at one of the last N counts; 0: always all
    #[arg(long, value_name = "N", default_value_t = 16, conflicts_with = "compare")]
    pub(super) window: usize,
    /// Give up ways to leave cores out after so many in a row that are no better than the best [default: never]
    #[arg(long, value_name = "N", value_parser = count, conflicts_with_all = ["quick", "compare"])]
    pub(super) patience: Option<usize>,
    /// Most time for the whole search, that for the matrices included
    #[arg(long, value_name = "SECONDS", value_parser = count, conflicts_with_all = ["quick", "compare"])]
    pub(super) budget: Option<usize>,
    /// Take the groups of cores that a cache line's latency shows as a level of the tree, and suppose no others:
    /// measured here, or from what `arclight topo --latency -o json` printed
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, value_hint = ValueHint::FilePath,
          conflicts_with_all = ["quick", "compare"])]
    pub(super) latency: Option<Option<PathBuf>>,
    /// Print the size of the space that is searched, and every way to use the machine that was looked at
    #[arg(long, conflicts_with_all = ["quick", "compare", "ablation"])]
    pub(super) tree: bool,
    /// Where to keep what is found [default: a file for machine and model in the cache directory]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(super) profile_file: Option<PathBuf>,
    #[command(flatten)]
    pub(super) kv: KvArgs,
    #[command(flatten)]
    pub(super) kernels: KernelArgs,
    /// How the model file is read, every time
    #[arg(long, value_name = "WAY", value_enum, default_value_t = LoadArg::Mapped)]
    pub(super) load: LoadArg,
    /// Search on a machine that comes with the program, such as kunpeng-920-8 (arclight plan --machines)
    #[arg(long, value_name = "NAME", conflicts_with_all = ["hwloc", "synthetic"],
          conflicts_with_all = NOT_ELSEWHERE, help_heading = "Another machine")]
    pub(super) machine: Option<String>,
    /// Search on the machine of an hwloc XML file, as `lstopo m.xml` writes it anywhere
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "synthetic",
          conflicts_with_all = NOT_ELSEWHERE, help_heading = "Another machine")]
    pub(super) hwloc: Option<PathBuf>,
    /// Search on a made-up machine, such as "numa:2 l3:4 core:8"
    #[arg(long, value_name = "LEVELS", conflicts_with_all = NOT_ELSEWHERE,
          help_heading = "Another machine")]
    pub(super) synthetic: Option<String>,
    /// What its cores share, such as "cores:4 fill:2 crowd:0.2": of four cores two fill what they share, and
    /// each further one divides it by 1.2, 1.4, ...; also stride:N, and read:GB/s in place of fill
    #[arg(long, value_name = "WORDS", help_heading = "Another machine")]
    pub(super) contention: Vec<Sharing>,
    /// The known machine whose memory, links, cores and waits a machine of --hwloc or --synthetic has
    #[arg(long, value_name = "NAME", conflicts_with = "machine", help_heading = "Another machine")]
    pub(super) like: Option<String>,
    #[command(flatten)]
    pub(super) output: OutputArgs,
}

/// The quantity that a search minimises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum ObjectiveArg {
    Time,
    Energy,
}

impl From<ObjectiveArg> for Objective {
    fn from(arg: ObjectiveArg) -> Objective {
        match arg {
            ObjectiveArg::Time => Objective::Time,
            ObjectiveArg::Energy => Objective::Energy,
        }
    }
}

/// What needs the machine at hand.
const NOT_ELSEWHERE: [&str; 7] =
    ["quick", "compare", "profile_file", "load", "ablation", "kernel", "objective"];

const EXAMPLES: &str = "\
Ctrl-C ends the search and keeps what was found.

Examples:
  arclight tune model.gguf
  arclight tune model.gguf --quick
  arclight tune model.gguf --trace requests.jsonl --together 16   for a server's own requests
  arclight tune --synth qwen3-0.6b:q4_0 --profile-file here.toml
  arclight tune model.gguf --ablation -o md          what each mechanism brings
  arclight tune --machine kunpeng-920-8 --synth llama3-8b:bf16   what would be found there
  arclight tune --synthetic 'numa:2 core:16' --contention 'cores:4 fill:2 crowd:0.3'";

/// Fewer never show anything: see `docs/tuning.md`.
fn repetitions(text: &str) -> Result<usize, String> {
    count(text).and_then(|n| match n {
        5.. => Ok(n),
        _ => Err("it must be at least 5: fewer cannot tell a gain from noise".to_owned()),
    })
}
