//! Loading: from a file and a machine to an executor.
//!
//! Here it is decided which nodes and threads a model gets and how large its cache may be. Nothing
//! is guessed: the machine is read anew, and what it does not allow is an error or a warning that
//! says so.

use crate::adapter::Adapter;
use crate::control::Control;
use crate::decode::Ids;
use crate::error::{AdapterFault, Error};
use crate::file::ModelFile;
use crate::options::{LoadOptions, Numa, PageCache, Reading};
use crate::room::{Room, weights};
use crate::source::{self, FileWeights, ReadPlan};
use crate::stages::{Cache, Whole};
use gguf::TensorType;
use graph::{
    Executor, Graph, Limits, LowRank, Mode, NodeBytes, PackProgress, Plan, Schedules, Shares,
    Sharing,
};
use kernels::{Kernels, TILE_ROWS};
use memory::{HugePages, Policy};
use models::{Hparams, Model, Projection};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use topology::{CpuId, Layout, Machine, NodeId};

/// Weights of at least this size are worth a tenth of a second of measuring page sizes.
const MEASURED_BYTES: usize = 1 << 30;

/// How far loading has come.
#[derive(Copy, Clone, Debug)]
pub struct LoadProgress {
    /// Bytes of the file that are in memory.
    pub done: usize,
    /// All of them that are wanted.
    pub total: usize,
}

/// What loading did and how long each part took.
#[derive(Clone, Debug)]
pub struct LoadReport {
    /// Validating the file and building the graph.
    pub build: Duration,
    /// Starting threads, allocating, and packing the weights.
    pub pack: Duration,
    /// What was read, unless the model was in memory.
    pub read: Option<FileRead>,
    /// How the nodes share the model.
    pub mode: Mode,
    /// Page size of weights and KV pages.
    pub huge_pages: HugePages,
    /// Bytes in each place: a node's, or of all nodes together where they share one copy.
    pub nodes: Vec<NodeBytes>,
    /// Tensors that take more memory than in the file, by type.
    pub unpacked: Vec<Unpacked>,
    /// What was not as it should be; everything works regardless.
    pub warnings: Vec<String>,
}

/// How a file was read.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct FileRead {
    /// The way.
    pub reading: Reading,
    /// What became of its pages in the page cache.
    pub page_cache: PageCache,
    /// Bytes of weights.
    pub bytes: usize,
}

/// Tensors of a type that is unpacked to 8 bits when it is loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unpacked {
    /// The type.
    pub ty: TensorType,
    /// Number of tensors.
    pub tensors: usize,
    /// Their bytes in the file.
    pub file: usize,
    /// Their bytes in memory, all copies.
    pub memory: usize,
}

/// A loaded model.
pub(crate) struct Loaded {
    pub executor: Executor,
    pub hparams: Hparams,
    pub projection: Option<Projection>,
    pub context: usize,
    pub sequences: usize,
    /// What it shares with other hosts of the model.
    pub cache: Option<Cache>,
    pub report: LoadReport,
}

/// What the options leave of a machine.
pub(crate) fn restrict(machine: &Machine, options: &LoadOptions) -> Result<Machine, Error> {
    let nodes = options.on_nodes.as_ref().map(|n| n.as_slice());
    let isolate = options.numa == Numa::Isolate;
    let asked = nodes.map(<[_]>::len).or(options.nodes);
    if let Some(nodes) = asked.filter(|&nodes| isolate && nodes > 1) {
        return Err(Error::Isolated(nodes));
    }
    let machine = machine.restrict(nodes, options.on_cpus.as_ref())?;
    let first = machine.usable_nodes().next().map(|node| node.id);
    match first {
        Some(first) if isolate => Ok(machine.restrict(Some(&[first]), None)?),
        _ => Ok(machine),
    }
}

/// Loads the model in `file` on a machine that is [restricted](restrict) already. Soon after `stop`
/// is set it fails, whatever the error.
pub(crate) fn load(
    file: &ModelFile,
    machine: &Machine,
    options: &LoadOptions,
    control: &Control,
    progress: &mut dyn FnMut(LoadProgress),
) -> Result<Loaded, Error> {
    check(options)?;
    let mut load_in = |mode| load_in(mode, file, machine, options, control, progress);
    match load_in(mode(options)) {
        Err(e) if options.numa == Numa::Auto && machine.usable_nodes().count() > 1 => {
            let Some(full) = no_room(&e) else { return Err(e) };
            let note = format!("{full}; the model is interleaved over the nodes instead");
            tracing::warn!("{note}");
            let mut loaded = load_in(Mode::Interleave)?;
            loaded.report.warnings.insert(0, note);
            Ok(loaded)
        }
        result => result,
    }
}

fn mode(options: &LoadOptions) -> Mode {
    match options.numa {
        Numa::Auto | Numa::TensorParallel | Numa::Isolate => Mode::TensorParallel,
        Numa::Pipeline => Mode::Pipeline,
        Numa::Mirror => Mode::Mirror,
        Numa::Interleave => Mode::Interleave,
        Numa::Off => Mode::Off,
    }
}

/// What is missing where, if that is why loading failed.
fn no_room(error: &Error) -> Option<String> {
    match error {
        Error::Graph(graph::Error::Memory(e @ memory::Error::NoRoom { .. })) => Some(e.to_string()),
        _ => None,
    }
}

/// A model that is ready to be put into memory.
struct Prepared {
    plan: Plan,
    hparams: Hparams,
    graph: Graph,
    sequences: usize,
    room: Room,
    limits: Limits,
    cache: Option<Cache>,
    /// What the layout has to say.
    notes: Vec<String>,
}

/// Decides everything for `machine`, which is one of `parts` that load the same model.
fn prepare(
    mode: Mode,
    gguf: &gguf::Gguf<'_>,
    machine: &Machine,
    parts: &[Machine],
    options: &LoadOptions,
) -> Result<Prepared, Error> {
    let layout = layout(machine, options)?;
    let usual = Plan::new(layout.groups.clone());
    let threads: Vec<usize> = usual.groups.iter().map(|g| g.cpus.len()).collect();
    let found = options.few_threads.iter().find(|found| found.of == threads);
    let phases = match found {
        Some(found) if options.phases.is_empty() => found.phases.clone(),
        _ => options.phases.clone(),
    };
    let plan = Plan {
        mode,
        phases,
        schedules: options.schedules.clone(),
        scatter_nodes: options.scatter_nodes.unwrap_or(usual.scatter_nodes),
        pin: !options.no_pin,
        sync: options.sync,
        tasks: options.tasks.or(usual.tasks),
        stats: options.stats,
        stack: options.stack.unwrap_or(usual.stack),
        ..usual
    };
    let shares = match mode {
        Mode::TensorParallel => Shares::new(plan.groups.iter().map(|g| g.cpus.len()).collect()),
        _ => Shares::from(1),
    };
    let whole = options.stage.as_ref().map(|stage| Whole::read(gguf, stage)).transpose()?;
    let Model { hparams, mut graph } = match &whole {
        Some(whole) => models::build_part(gguf, shares, whole.own())?,
        None => build(gguf, shares, options)?,
    };
    let schedules = match &options.schedules_for {
        Some(before) if !options.schedules.is_empty() => {
            carried(before, gguf, options, &plan, &graph)?
        }
        _ => options.schedules.clone(),
    };
    let plan = Plan { schedules, ..plan };
    let huge = options.huge_pages.map_or_else(|| huge_pages(&graph), Ok)?;
    let plan = Plan { huge, ..plan };
    let sequences = options.sequences.unwrap_or(1);
    let room = Room::find(&hparams, &graph, &plan, machine, parts, options)?;
    let context = room.context;
    graph.set_context(context);
    let (tokens, outputs) = (options.most_step_tokens(), options.step_outputs.unwrap_or(sequences));
    // Texts are not cut, and something is wanted of all their tokens.
    let (tokens, outputs) = match graph.reads_texts() {
        true => (tokens.max(context), tokens.max(context)),
        false => (tokens, outputs),
    };
    let hands_on = whole.as_ref().is_some_and(Whole::hands_on);
    let outputs = if hands_on { tokens } else { outputs };
    let cache = whole.map(|whole| whole.cache(&graph, room, options));
    let limits = Limits {
        kv: options.kv,
        tokens,
        outputs,
        pages: cache.as_ref().map_or_else(|| room.pages(&graph, options), Cache::own_pages),
        ranges: graph.attention_states(context, sequences),
    };
    Ok(Prepared { plan, hparams, graph, sequences, room, limits, cache, notes: layout.notes })
}

/// The graph of a file, with the layer that predicts further tokens if that is wanted.
fn build(gguf: &gguf::Gguf<'_>, shares: Shares, options: &LoadOptions) -> Result<Model, Error> {
    Ok(match options.predicting {
        true => models::build_predicting(gguf, shares)?,
        false => models::build(gguf, shares)?,
    })
}

/// The plan's schedules, which were found for other threads, for those that it has.
fn carried(
    before: &[Vec<usize>],
    gguf: &gguf::Gguf<'_>,
    options: &LoadOptions,
    plan: &Plan,
    graph: &Graph,
) -> Result<Schedules, Error> {
    let phases = plan.phases.iter().map(|phase| phase.threads.clone());
    let all: Vec<usize> = plan.groups.iter().map(|group| group.cpus.len()).collect();
    let now: Vec<Vec<usize>> = phases.chain([all]).collect();
    let groups = |levels: &[Vec<usize>]| levels.iter().map(Vec::len).collect::<Vec<_>>();
    let Some(shares) = before.last().filter(|_| groups(before) == groups(&now)) else {
        return Err(Error::SchedulesFor { before: before.to_vec(), now });
    };
    if before.iter().flatten().any(|&threads| threads == 0) {
        return Err(Error::Zero("the number of threads that schedules were found for"));
    }
    // The groups of which each is a place, or all as one.
    let teams = |levels: &[Vec<usize>]| -> Vec<Vec<usize>> {
        let alone = plan.places() == 1;
        let team =
            |level: &Vec<usize>| if alone { vec![level.iter().sum()] } else { level.clone() };
        levels.iter().map(team).collect()
    };
    let (was, is) = (teams(before), teams(&now));
    let now = Sharing { graph, teams: &is };
    if graph.nodes() == 1 {
        return Ok(plan.schedules.carried(Sharing { graph, teams: &was }, now));
    }
    let old = build(gguf, Shares::new(shares.clone()), options)?.graph;
    Ok(plan.schedules.carried(Sharing { graph: &old, teams: &was }, now))
}

/// What loading would take.
pub(crate) struct Size {
    /// Tokens of the KV cache.
    pub room: Room,
    /// Page size of weights and KV pages.
    pub huge_pages: HugePages,
    /// Tokens.
    pub ids: Ids,
    /// Whether the model gives logits.
    pub writes: bool,
    /// Tokens of a step.
    pub step: usize,
    /// Rows of logits and hidden states of a step.
    pub outputs: usize,
    /// Bytes of packed weights, all copies.
    pub weights: u64,
    graph: Graph,
}

impl Size {
    /// Bytes of all KV pages.
    pub(crate) fn kv(&self, room: Room, options: &LoadOptions) -> u64 {
        let node = |n| room.bytes(&self.graph, n, options);
        (0..self.graph.nodes()).map(node).sum::<usize>() as u64
    }
}

/// Tokens that the model of a file was trained for.
pub(crate) fn trained_context(file: &ModelFile) -> Result<usize, Error> {
    Ok(models::build(&file.gguf()?, Shares::from(1))?.hparams.context)
}

/// Finds what loading on `machine` would take, beside the other `parts`.
pub(crate) fn size(
    file: &ModelFile,
    machine: &Machine,
    parts: &[Machine],
    options: &LoadOptions,
) -> Result<Size, Error> {
    check(options)?;
    let ready = prepare(mode(options), &file.gguf()?, machine, parts, options)?;
    let nodes = 0..ready.graph.nodes();
    let copies = if ready.plan.mode == Mode::Mirror { ready.plan.weight_copies() } else { 1 };
    Ok(Size {
        room: ready.room,
        huge_pages: ready.plan.huge,
        ids: Ids::of(&ready.graph),
        writes: ready.graph.has_head(),
        step: ready.limits.tokens,
        outputs: ready.limits.outputs,
        weights: (nodes.map(|n| weights(&ready.graph, n)).sum::<usize>() * copies) as u64,
        graph: ready.graph,
    })
}

fn load_in(
    mode: Mode,
    file: &ModelFile,
    machine: &Machine,
    options: &LoadOptions,
    control: &Control,
    progress: &mut dyn FnMut(LoadProgress),
) -> Result<Loaded, Error> {
    let start = Instant::now();
    let kernels = Kernels::detect()?;
    let gguf = file.gguf()?;
    let alone = std::slice::from_ref(machine);
    let ready = prepare(mode, &gguf, machine, alone, options)?;
    let Prepared { plan, hparams, graph, sequences, room, limits, cache: shared, notes } = ready;
    let context = room.context;
    let projection = Projection::read(&gguf, &|of, values| file.values(of, 0..of.rows(), values))?;
    let (huge_pages, build) = (plan.huge, start.elapsed());
    let copies = if plan.mode == Mode::Mirror { plan.weight_copies() } else { 1 };
    let unpacked = unpacked(&graph, copies);
    tracing::info!(
        model = hparams.name,
        numa = %mode,
        nodes = plan.groups.len(),
        threads = plan.threads(),
        kernels = %kernels.isa(),
        context,
        "loading"
    );
    if let Some(trial) = kernels::bf16_trial() {
        let [pairs, widened] = [trial.pairs, trial.widened].map(|rate| (rate / 1e9).round());
        tracing::debug!(pairs, widened, "bfloat16 products, G/s and thread");
    }
    let packing = Instant::now();
    let bytes = (0..graph.nodes()).map(|n| weights(&graph, n)).sum::<usize>() * copies;
    let (reading, cache) = (options.reading, options.page_cache);
    let cache = match reading {
        Reading::Direct => PageCache::Drop,
        Reading::Mapped => {
            cache.unwrap_or_else(|| source::page_cache(alone, file.bytes(), bytes as u64))
        }
    };
    let mut read = 0;
    let mut told = |p: PackProgress| {
        read = p.done;
        progress(LoadProgress { done: p.done, total: p.total });
    };
    let nodes = plan.groups.iter().filter_map(|g| g.node).collect::<BTreeSet<_>>().len();
    let mut executor =
        FileWeights::with(file, &gguf, &ReadPlan { reading, cache, nodes }, control, |source| {
            Ok(Executor::new(graph, plan, limits, kernels, machine, source, &mut told)?)
        })?;
    add_adapters(&mut executor, &hparams, options)?;
    let pack = packing.elapsed();
    let read =
        (!file.mapped().is_empty()).then_some(FileRead { reading, page_cache: cache, bytes: read });
    if let Some(read) = read {
        let gb_per_s = (read.bytes as f64 / pack.as_secs_f64() / 1e7).round() / 100.0;
        let FileRead { reading, page_cache, bytes } = read;
        tracing::info!(bytes, gb_per_s, ?reading, ?page_cache, "weights are in memory");
    }
    let notes = machine.notes().iter().cloned().chain(notes);
    let report = LoadReport {
        build,
        pack,
        read,
        mode,
        huge_pages,
        nodes: executor.node_bytes(),
        unpacked,
        warnings: notes.chain(executor.warnings()).collect(),
    };
    for warning in &report.warnings {
        tracing::warn!("{warning}");
    }
    Ok(Loaded { executor, hparams, projection, context, sequences, cache: shared, report })
}

/// Loads the adapters that are asked for, if they are for such a model.
fn add_adapters(
    executor: &mut Executor,
    hparams: &Hparams,
    options: &LoadOptions,
) -> Result<(), Error> {
    let all: Vec<&Adapter> = options.adapters.iter().map(|one| &*one.adapter).collect();
    let Some(first) = all.first() else { return Ok(()) };
    let bad = |adapter: &Adapter, fault| Error::Adapter { path: adapter.path().to_owned(), fault };
    for adapter in &all {
        let (of, model) = (adapter.architecture().to_owned(), hparams.arch.clone());
        if of != model {
            return Err(bad(adapter, AdapterFault::Architecture { adapter: of, model }));
        }
        // So that an error tells of which.
        executor.check_adapter(adapter.pairs()).map_err(|e| bad(adapter, e.into()))?;
    }
    let pairs: Vec<&[LowRank]> = all.iter().map(|adapter| adapter.pairs()).collect();
    executor.set_adapters(&pairs).map_err(|e| bad(first, e.into()))?;
    tracing::info!(adapters = all.len(), "adapters are in memory");
    Ok(())
}

/// Chooses groups of cores, or takes those that are given.
fn layout(machine: &Machine, options: &LoadOptions) -> Result<Layout, Error> {
    if let Some(groups) = &options.groups {
        let here: BTreeSet<CpuId> = machine.cpus().iter().map(|cpu| cpu.id).collect();
        let cpus = groups.iter().flat_map(|group| &group.cpus);
        if let Some(&cpu) = cpus.into_iter().find(|cpu| !here.contains(cpu)) {
            return Err(Error::NoCpu(cpu));
        }
        let usable = |node: &NodeId| machine.usable_nodes().any(|here| here.id == *node);
        if let Some(node) = groups.iter().filter_map(|g| g.node).find(|node| !usable(node)) {
            return Err(Error::NoNode(node));
        }
        return Ok(Layout { groups: groups.clone(), notes: Vec::new() });
    }
    let threads = options.threads.or_else(|| {
        // Virtual nodes need a thread each, more than there may be cores.
        options.nodes.map(|nodes| machine.usable_cores().max(nodes))
    });
    Ok(topology::layout(machine, options.nodes, threads)?)
}

/// Transparent huge pages, or what a measurement finds faster for a large model.
fn huge_pages(graph: &Graph) -> Result<HugePages, Error> {
    if (0..graph.nodes()).map(|n| weights(graph, n)).sum::<usize>() < MEASURED_BYTES {
        return Ok(HugePages::Transparent);
    }
    let trials = measure::probe::huge_pages(&Policy::Default)?;
    for trial in &trials.trials {
        tracing::debug!(
            pages = ?trial.pages,
            gb_per_s = trial.read / 1e9,
            latency_ns = trial.latency,
            huge_bytes = trial.huge_bytes,
            "page size"
        );
    }
    Ok(trials.best)
}

/// What is unpacked to 8 bits, in `copies` of the weights.
fn unpacked(graph: &Graph, copies: usize) -> Vec<Unpacked> {
    let mut types: Vec<Unpacked> = Vec::new();
    for matrix in graph.matrices() {
        for (p, part) in matrix.parts.iter().enumerate() {
            let (ty, elements) = (part.ty, part.rows * part.cols);
            if !kernels::is_unpacked(ty) {
                continue;
            }
            let i = types.iter().position(|t| t.ty == ty).unwrap_or_else(|| {
                types.push(Unpacked { ty, tensors: 0, file: 0, memory: 0 });
                types.len() - 1
            });
            let of = &mut types[i];
            of.tensors += 1;
            of.file += ty.bytes_for(elements).expect("rows are whole blocks");
            of.memory += (0..graph.nodes())
                .map(|n| matrix.rows(p, n).len().div_ceil(TILE_ROWS) * matrix.tile_bytes(p, n))
                .sum::<usize>()
                * copies;
        }
    }
    types
}

fn check(options: &LoadOptions) -> Result<(), Error> {
    let sizes = [
        ("the number of nodes", options.nodes),
        ("the number of threads", options.threads),
        ("the context", options.context),
        ("the number of sequences", options.sequences),
        ("tokens per step", options.step_tokens),
        ("outputs per step", options.step_outputs),
    ];
    if let Some((name, _)) = sizes.into_iter().find(|(_, size)| *size == Some(0)) {
        return Err(Error::Zero(name));
    }
    let Some(stage) = &options.stage else { return Ok(()) };
    stage.check()?;
    let not = [
        ("a pipeline over memory nodes (--numa pp)", options.numa == Numa::Pipeline),
        ("a layer that predicts further tokens", options.predicting),
        ("adapters (--lora)", !options.adapters.is_empty()),
    ];
    match not.into_iter().find(|(_, asked)| *asked) {
        Some((what, _)) => Err(Error::NotInStages(what)),
        None => Ok(()),
    }
}
