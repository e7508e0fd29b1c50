//! Arguments that several commands share, and how their values are read.

use arclight_engine::{
    CpuList, HugePages, KvType, KvTypes, LoadOptions, NodeList, Numa, Reading, SamplerParams, Sync,
    TaskPolicy,
};
use clap::{Args, ValueEnum, ValueHint};
use std::hash::{BuildHasher, Hasher};
use std::path::{Path, PathBuf};

/// Which model.
#[derive(Args, Clone, Debug)]
pub(crate) struct ModelArg {
    /// Model: a GGUF file (of a split model, any part), a folder of the Hugging Face Hub, or a name such as
    /// qwen3:4b or OWNER/REPO:QUANT, which is fetched if it is not here [default: the built-in demo model]
    #[arg(value_name = "MODEL", value_hint = ValueHint::FilePath)]
    model: Option<PathBuf>,
    /// Model, instead of the first argument
    #[arg(short, long = "model", value_name = "MODEL", value_hint = ValueHint::FilePath,
          conflicts_with = "model", display_order = 889)]
    model_option: Option<PathBuf>,
    /// Do not fetch a model that is not on this machine
    #[arg(long, display_order = 890)]
    pub(crate) offline: bool,
    /// Keep the file that a folder of the Hugging Face Hub is converted to, in the cache: it is found the next time
    #[arg(long, display_order = 891)]
    pub(crate) keep_converted: bool,
}

impl ModelArg {
    /// Another model, of which the same is wanted.
    pub(crate) fn named_as(&self, model: PathBuf) -> ModelArg {
        ModelArg { model: Some(model), model_option: None, ..*self }
    }

    /// What was named.
    pub(crate) fn named(&self) -> Option<&Path> {
        self.model.as_deref().or(self.model_option.as_deref())
    }
}

/// Which nodes and cores, and how they share the model.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Machine")]
pub(crate) struct PlaceArgs {
    /// How memory nodes share the model
    #[arg(long, value_name = "MODE", value_enum, default_value_t = NumaArg::Auto)]
    pub(crate) numa: NumaArg,
    /// Number of memory nodes, virtual ones if the machine has fewer; or which, as in 0-3, 0,2 or
    /// `2,` for node 2 alone [default: all that may be used]
    #[arg(long, value_name = "N|LIST", value_parser = nodes)]
    pub(crate) nodes: Option<NodesArg>,
    /// CPUs to use and no others, as in 0-15,32-47
    #[arg(long, value_name = "LIST")]
    pub(crate) cpus: Option<CpuList>,
    /// Take every step with all cores; otherwise steps go without cores that other programs are busy on, for as
    /// long as they are
    #[arg(long)]
    pub(crate) fixed_cores: bool,
    /// Stack of each thread that computes, 256K to 1G, for kernels written elsewhere that need more than 2M
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    pub(crate) stack_size: Option<u64>,
    /// At every wait let all nodes wait for each other, to see what waiting apart gains
    #[arg(long)]
    pub(crate) sync_a: bool,
    /// How threads share tiles of attention, and of products while others take cores away: the same answers
    #[arg(long, value_name = "POLICY", value_enum, default_value_t = TasksArg::Interleave)]
    pub(crate) tasks: TasksArg,
    /// Page size of weights and KV cache [default: for big models what is measured to be faster]
    #[arg(long, value_name = "SIZE", value_enum)]
    pub(crate) huge_pages: Option<HugeArg>,
    /// How the model file is read
    #[arg(long, value_name = "WAY", value_enum, default_value_t = LoadArg::Mapped)]
    pub(crate) load: LoadArg,
}

/// Policies of tasks by their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TasksArg {
    /// Dealt to all threads in turn; who is through takes over what others have not begun, of its own node first
    Interleave,
    /// Dealt in equal runs; who is through takes over from all nodes
    Balanced,
    /// Dealt in equal runs; who is through takes over from its own node
    Local,
    /// Dealt in equal runs, and each thread does its own
    Disabled,
}

impl From<TasksArg> for TaskPolicy {
    fn from(arg: TasksArg) -> TaskPolicy {
        match arg {
            TasksArg::Interleave => TaskPolicy::Interleave,
            TasksArg::Balanced => TaskPolicy::Balanced,
            TasksArg::Local => TaskPolicy::Local,
            TasksArg::Disabled => TaskPolicy::Disabled,
        }
    }
}

/// Ways to read a file by their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LoadArg {
    /// By way of the page cache, which keeps the file for the next start if memory has room for it beside
    /// the weights
    Mapped,
    /// Past the page cache (O_DIRECT), which keeps nothing of it
    Direct,
}

impl From<LoadArg> for Reading {
    fn from(arg: LoadArg) -> Reading {
        match arg {
            LoadArg::Mapped => Reading::Mapped,
            LoadArg::Direct => Reading::Direct,
        }
    }
}

/// Modes by their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum NumaArg {
    /// tp; interleave if a node has too little memory for its share
    Auto,
    /// Tensor parallel: each node holds a slice of every layer and reads nothing else
    Tp,
    /// Pipeline: each node holds some of the layers
    Pp,
    /// Each node holds all weights: takes their memory that many times
    Mirror,
    /// One copy, its pages going round the nodes
    Interleave,
    /// One copy, wherever the system puts it
    Off,
    /// Cores and memory of one node: the first that may be used, or that of --nodes (node 2: `--nodes 2,`)
    Isolate,
    /// Over all nodes: another name of auto
    Distribute,
}

/// Page sizes by their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum HugeArg {
    /// Ordinary pages
    Off,
    /// Huge pages where the kernel finds them
    Transparent,
    /// Huge pages that the administrator has set aside (vm.nr_hugepages)
    Explicit,
}

/// How many nodes, or which.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NodesArg {
    Count(usize),
    List(NodeList),
}

/// A bare number is a count; a list has a comma or a range.
fn nodes(text: &str) -> Result<NodesArg, String> {
    if text.contains([',', '-']) {
        let list = text.strip_suffix(',').unwrap_or(text);
        return list.parse().map(NodesArg::List).map_err(|e: topology::Error| e.to_string());
    }
    match text {
        "0" => Err("0 nodes cannot be; for node 0 alone write 0,".to_owned()),
        _ => count(text).map(NodesArg::Count),
    }
}

impl PlaceArgs {
    /// Adds these to the options of loading.
    pub(crate) fn apply(&self, options: &mut LoadOptions) {
        options.numa = match self.numa {
            NumaArg::Auto | NumaArg::Distribute => Numa::Auto,
            NumaArg::Tp => Numa::TensorParallel,
            NumaArg::Pp => Numa::Pipeline,
            NumaArg::Mirror => Numa::Mirror,
            NumaArg::Interleave => Numa::Interleave,
            NumaArg::Off => Numa::Off,
            NumaArg::Isolate => Numa::Isolate,
        };
        match &self.nodes {
            Some(NodesArg::Count(n)) => options.nodes = Some(*n),
            Some(NodesArg::List(list)) => options.on_nodes = Some(list.clone()),
            None => {}
        }
        options.on_cpus.clone_from(&self.cpus);
        options.fixed_cores = self.fixed_cores;
        options.stack = self.stack_size.map(|size| usize::try_from(size).unwrap_or(usize::MAX));
        options.sync = if self.sync_a { Sync::Global } else { Sync::Derived };
        options.tasks = Some(self.tasks.into());
        options.reading = self.load.into();
        options.huge_pages = self.huge_pages.map(|size| match size {
            HugeArg::Off => HugePages::Off,
            HugeArg::Transparent => HugePages::Transparent,
            HugeArg::Explicit => HugePages::Explicit,
        });
    }
}

/// The cache's types by their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum KvArg {
    F16,
    Bf16,
    F32,
    #[value(name = "q8_0")]
    Q8_0,
    #[value(name = "q4_0")]
    Q4_0,
}

/// How keys and values are kept.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct KvArgs {
    /// How keys and values are kept: f16, bf16 where f16 is too narrow, q8_0 for half the memory, q4_0
    /// for a quarter and some loss, or f32 for twice and exact sums
    #[arg(long, value_name = "TYPE", value_enum, default_value_t = KvArg::F16)]
    kv_type: KvArg,
    /// How keys are kept, if otherwise than values; -ctk is this too
    #[arg(long, value_name = "TYPE", value_enum)]
    cache_type_k: Option<KvArg>,
    /// How values are kept, if otherwise than keys; -ctv is this too
    #[arg(long, value_name = "TYPE", value_enum)]
    cache_type_v: Option<KvArg>,
}

impl KvArgs {
    /// The types of keys and values.
    pub(crate) fn types(self) -> KvTypes {
        let of = |own: Option<KvArg>| own.unwrap_or(self.kv_type).into();
        KvTypes { keys: of(self.cache_type_k), values: of(self.cache_type_v) }
    }
}

impl From<KvArg> for KvType {
    fn from(arg: KvArg) -> KvType {
        match arg {
            KvArg::F16 => KvType::F16,
            KvArg::Bf16 => KvType::Bf16,
            KvArg::F32 => KvType::F32,
            KvArg::Q8_0 => KvType::Q8_0,
            KvArg::Q4_0 => KvType::Q4_0,
        }
    }
}

/// How tokens are chosen.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Sampling")]
pub(crate) struct SamplerArgs {
    /// Temperature: below 1 plays safe, above 1 takes risks, 0 always takes the likeliest token
    #[arg(long = "temp", value_name = "X", allow_negative_numbers = true, default_value_t = default().temperature)]
    temperature: f32,
    /// Choose among this many likeliest tokens; 0 for all
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = default().top_k)]
    top_k: usize,
    /// Choose among the likeliest tokens that have this probability together; 1 for all
    #[arg(long, value_name = "P", allow_negative_numbers = true, default_value_t = default().top_p)]
    top_p: f32,
    /// Leave out tokens of less than this share of the likeliest one's probability; 0 for none
    #[arg(long, value_name = "P", allow_negative_numbers = true, default_value_t = default().min_p)]
    min_p: f32,
    /// Make tokens of prompt and answer less likely by this factor; 1 for off
    #[arg(long, value_name = "X", allow_negative_numbers = true, default_value_t = default().repetition_penalty)]
    repeat_penalty: f32,
    /// Subtract this from the logit of every token that the answer has; 0 for off
    #[arg(long, value_name = "X", allow_negative_numbers = true, default_value_t = default().presence_penalty)]
    presence_penalty: f32,
    /// Subtract this for each time that the answer has a token; 0 for off
    #[arg(long, value_name = "X", allow_negative_numbers = true, default_value_t = default().frequency_penalty)]
    frequency_penalty: f32,
    /// Seed of the random numbers: the same seed gives the same text [default: random]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Always take the likeliest token; the same as --temp 0
    #[arg(long, conflicts_with = "temperature")]
    greedy: bool,
}

fn default() -> SamplerParams {
    SamplerParams::default()
}

impl SamplerArgs {
    /// The sampler's parameters, with a random seed if none was given.
    ///
    /// # Errors
    /// When one is out of range.
    pub(crate) fn params(&self) -> Result<SamplerParams, arclight_engine::Error> {
        let params = SamplerParams {
            temperature: if self.greedy { 0.0 } else { self.temperature },
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            repetition_penalty: self.repeat_penalty,
            repetition_window: None,
            presence_penalty: self.presence_penalty,
            frequency_penalty: self.frequency_penalty,
            seed: self.seed.unwrap_or_else(random_seed),
            logit_bias: Vec::new(),
        };
        params.check()?;
        Ok(params)
    }
}

/// Short enough to be typed again.
fn random_seed() -> u64 {
    std::hash::RandomState::new().build_hasher().finish() % 1_000_000_000
}

/// A whole number of at least one.
pub(crate) fn count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("it must be at least 1".to_owned()),
        Ok(n) => Ok(n),
        Err(_) => Err("it must be a whole number of at least 1".to_owned()),
    }
}

/// Bytes, with K, M, G or T for KiB, MiB, GiB or TiB.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let shift = match text.as_bytes().last() {
        Some(b'k' | b'K') => 10,
        Some(b'm' | b'M') => 20,
        Some(b'g' | b'G') => 30,
        Some(b't' | b'T') => 40,
        _ => 0,
    };
    let number = &text[..text.len() - usize::from(shift > 0)];
    let number = number.parse::<u64>().ok().filter(|number| *number > 0);
    let bytes = number.and_then(|number| number.checked_mul(1 << shift));
    bytes
        .ok_or_else(|| "it must be a whole number of at least 1, with K, M, G or T after it".into())
}

/// Whole numbers of at least one, separated by commas.
pub(crate) fn counts(text: &str) -> Result<List, String> {
    text.split(',').map(|item| count(item.trim())).collect::<Result<_, _>>().map(List)
}

/// Whole numbers, separated by commas.
pub(crate) fn numbers(text: &str) -> Result<List, String> {
    let number = |item: &str| item.trim().parse().map_err(|_| format!("{item:?} is no number"));
    text.split(',').map(number).collect::<Result<_, _>>().map(List)
}

/// Numbers given as one value, `128,512`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct List(pub(crate) Vec<usize>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_numbers_and_commas() {
        assert_eq!(counts("1, 22"), Ok(List(vec![1, 22])));
        assert_eq!(numbers("0,5"), Ok(List(vec![0, 5])));
        assert!(counts("1,0").unwrap_err().contains("at least 1"));
        assert_eq!(nodes("4"), Ok(NodesArg::Count(4)));
        let list = |text: &str| NodesArg::List(text.parse().unwrap());
        assert_eq!(nodes("0,2-3"), Ok(list("0,2-3")));
        assert_eq!(nodes("2,"), Ok(list("2")));
        assert!(nodes("0").unwrap_err().contains("0,") && nodes("a-").is_err());
        assert!(counts("").is_err() && numbers("1,,2").is_err() && numbers("-1").is_err());
    }
}
