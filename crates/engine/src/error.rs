//! What an embedding program has to deal with.

use crate::sequence::SeqId;
use std::any::Any;
use std::path::PathBuf;
use topology::{CpuId, CpuList, NodeId};

/// Errors of loading and running a model.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be opened, mapped or read.
    #[error(transparent)]
    File(#[from] memory::Error),
    /// No thread could be had that reads the file.
    #[error("cannot start a thread that reads the file: {0}")]
    Readers(#[source] std::io::Error),
    /// The file is not a valid GGUF file.
    #[error("{}: {source}", path.display())]
    Gguf {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: gguf::Error,
    },
    /// A file is no adapter, or not one for the model.
    #[error("{}: {fault}", path.display())]
    Adapter {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        fault: AdapterFault,
    },
    /// A request names an adapter that is not loaded.
    #[error("there is no adapter {adapter}: {adapters} are loaded")]
    NoAdapter {
        /// Its number.
        adapter: u32,
        /// How many there are.
        adapters: usize,
    },
    /// A request names an adapter twice.
    #[error("adapter {0} is named twice")]
    RepeatedAdapter(u32),
    /// A factor of an adapter is no number.
    #[error("the scale of adapter {adapter} is {scale}: it must be a finite number")]
    BadScale {
        /// Its number.
        adapter: u32,
        /// The factor.
        scale: f32,
    },
    /// The folder of the prefix cache cannot be made, read or written.
    #[error("the prefix cache cannot be kept in {}: {source}", folder.display())]
    CacheFolder {
        /// The folder.
        folder: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A sequence that is to be saved or restored by an engine that was not loaded for it.
    #[error(
        "sequences can be saved and restored only where that was asked for when the model was loaded"
    )]
    SavesOff,
    /// What is to be restored is no saved sequence.
    #[error("this is no saved sequence, or it is damaged")]
    BadSave,
    /// What is to be restored was saved elsewhere.
    #[error(
        "this sequence was saved with another model, or with one that was loaded otherwise (context, type of keys \
         and values, nodes)"
    )]
    ForeignSave,
    /// There are not so many slots.
    #[error("there is no slot {slot}: there are {slots}")]
    NoSlot {
        /// Asked for.
        slot: usize,
        /// How many there are.
        slots: usize,
    },
    /// An image encoder whose settings or tensors are wrong, or an image that cannot be taken.
    #[error(transparent)]
    Vision(#[from] vision::Error),
    /// An image encoder for another model.
    #[error(
        "the image encoder gives rows of {gives} numbers, but the model takes rows of {takes}: they do not belong together"
    )]
    EncoderWidth {
        /// The encoder's.
        gives: usize,
        /// The model's.
        takes: usize,
    },
    /// A request with images for a model that was loaded without an image encoder.
    #[error("this model sees no images: it was loaded without an image encoder (mmproj)")]
    NoEncoder,
    /// An image that could not be encoded.
    #[error("an image could not be encoded: {0}")]
    Image(String),
    /// An image that is no part of its prompt.
    #[error("the image at position {at} does not fit into its prompt")]
    ImagePlace {
        /// Where it begins.
        at: usize,
    },
    /// An image whose rows see each other, for which a step has too little room.
    #[error("an image of {outputs} tokens must be one step, but steps have {most} tokens")]
    ImageStep {
        /// Its tokens.
        outputs: usize,
        /// Those of a step.
        most: usize,
    },
    /// An image whose rows see each other, of which a step cannot give all the rows that are asked for.
    #[error(
        "an image of {outputs} tokens must be one step, but steps give at most {most} rows of hidden states or \
         logits: ask for the vector of the last token, or load the model with more rows per step"
    )]
    ImageOutputs {
        /// Its tokens.
        outputs: usize,
        /// Rows of a step.
        most: usize,
    },
    /// Something that is not there for prompts with images.
    #[error("log-probabilities of a prompt's tokens cannot be had where it has images")]
    ImageLogprobs,
    /// The model in the file cannot be built.
    #[error(transparent)]
    Model(#[from] models::Error),
    /// The machine cannot be described, or not be divided as asked for.
    #[error(transparent)]
    Topology(#[from] topology::Error),
    /// The kernels that were asked for do not exist here.
    #[error(transparent)]
    Isa(#[from] kernels::IsaError),
    /// Memory, threads or a step failed.
    #[error(transparent)]
    Graph(#[from] graph::Error),
    /// A context longer than the model was trained for.
    #[error(
        "a context of {context} tokens is longer than the {trained} that the model was trained for: use --ctx {trained} or less"
    )]
    ContextTooLong {
        /// Asked for.
        context: usize,
        /// The model's.
        trained: usize,
    },
    /// A group names a CPU that this process may not use.
    #[error("cpu {0} is not among those that may be used here")]
    NoCpu(CpuId),
    /// A group names a memory node that this process may not use.
    #[error("memory of node {0} may not be used here")]
    NoNode(NodeId),
    /// Groups are given for replicas whose parts of the machine are not alike.
    #[error(
        "groups of cores were found for replicas on equal parts of the machine, and these parts are not: load it \
         without them"
    )]
    UnlikeParts,
    /// Schedules were found for other phases or groups than there are, not only for other threads of them.
    #[error(
        "schedules were found for threads {before:?} of each phase and group, and there are {now:?}: give \
         as many of both"
    )]
    SchedulesFor {
        /// Threads of each group, by phase, then all.
        before: Vec<Vec<usize>>,
        /// The same of the plan.
        now: Vec<Vec<usize>>,
    },
    /// A size of zero.
    #[error("{0} must be at least one")]
    Zero(&'static str),
    /// Several nodes for a mode that uses one.
    #[error(
        "--numa isolate uses one memory node, and not {0}: name it, as in --nodes 2, (with the comma)"
    )]
    Isolated(usize),
    /// The prompt leaves no room for an answer.
    #[error(
        "the prompt has {tokens} tokens, but the context holds {context}: shorten it or use a larger --ctx"
    )]
    PromptTooLong {
        /// Tokens of the prompt (and of the conversation before it).
        tokens: usize,
        /// The context's.
        context: usize,
    },
    /// Nothing to compute.
    #[error("the prompt is empty: give at least one token")]
    EmptyPrompt,
    /// An answer of a model without a head.
    #[error("this model reads texts and writes none: ask it for embeddings")]
    WritesNothing,
    /// The context is full.
    #[error("the context of {context} tokens is full")]
    ContextFull {
        /// Its size.
        context: usize,
    },
    /// All sequences are in use.
    #[error("all {max} sequences are in use: free one or load with more")]
    TooManySequences {
        /// How many there are.
        max: usize,
    },
    /// All KV pages are in use by other sequences.
    #[error("no KV page is free: {pages} are in use")]
    NoPages {
        /// How many there are.
        pages: usize,
    },
    /// A sequence that was never made or is freed.
    #[error("{0} does not exist")]
    UnknownSequence(SeqId),
    /// A sequence that stands twice in a batch.
    #[error("{0} stands twice in the batch")]
    RepeatedSequence(SeqId),
    /// A replica could not be loaded.
    #[error("replica {replica} (cpus {cpus}): {source}")]
    Replica {
        /// Which.
        replica: usize,
        /// Its CPUs.
        cpus: CpuList,
        /// Why.
        source: Box<Error>,
    },
    /// The memory of a node does not hold all replicas that share it.
    #[error(
        "{replicas} replicas share a node, each with weights and a cache of its own: {source}; or \
         ask for fewer --replicas"
    )]
    ReplicasRoom {
        /// How many share the node.
        replicas: usize,
        /// What is missing where.
        source: memory::Error,
    },
    /// A replica went out of service.
    #[error("replica {replica} is out of service: {reason}")]
    ReplicaFailed {
        /// Which.
        replica: usize,
        /// The error or panic.
        reason: String,
    },
    /// No stage of several.
    #[error("there is no stage {number} of {of}: stages count from 1, and there are two at least")]
    BadStage {
        /// Asked for.
        number: usize,
        /// How many there are.
        of: usize,
    },
    /// The front was told of too many or too few other stages.
    #[error(
        "the last stage needs the addresses of all {need} before it, from the first on, and has {got}"
    )]
    StagePeers {
        /// Addresses that it has.
        got: usize,
        /// Stages before it.
        need: usize,
    },
    /// Something that a model over several hosts cannot have.
    #[error("{0} cannot be had where several hosts share a model")]
    NotInStages(&'static str),
    /// A stage cannot listen.
    #[error("cannot listen on {address}: {source}")]
    StageListen {
        /// Where.
        address: String,
        /// Why.
        source: std::io::Error,
    },
    /// A stage would listen for other hosts without a key.
    #[error(
        "{address} can be reached by other hosts, and there is no stage key: give all hosts --stage-key-file, or \
         --stage-without-key where every program that reaches the port may use the stage"
    )]
    StageKey {
        /// Where it would listen.
        address: std::net::SocketAddr,
    },
    /// Another host of the model is gone, or refuses.
    #[error("stage {stage}/{of} at {address} is lost: {reason}")]
    StageLost {
        /// Which, from 1 on.
        stage: usize,
        /// How many there are.
        of: usize,
        /// Where it was.
        address: String,
        /// Why.
        reason: String,
    },
    /// A model that cannot guess for another.
    #[error(
        "the draft model has {draft} tokens in its vocabulary, the model {model}: they must be the same"
    )]
    DraftVocab {
        /// Tokens of the draft model.
        draft: usize,
        /// Tokens of the model.
        model: usize,
    },
    /// As many requests wait as may.
    #[error("the queue is full: {waiting} requests wait; try again later")]
    QueueFull {
        /// How many.
        waiting: usize,
    },
    /// A request's deadline passed before it was begun.
    #[error("the request's deadline passed while it waited")]
    Deadline,
    /// A request that no step can take, whatever else runs.
    #[error(
        "request {request} can never run: {why}; send a shorter prompt, or load the model with more room"
    )]
    NeverRuns {
        /// Its number in the queue.
        request: u64,
        /// The limit that it exceeds.
        why: String,
    },
    /// What an answer may say could not be computed, or nothing is left that it may say.
    #[error("the constraint of the answer failed: {0}")]
    Constraint(String),
    /// The replicas were shut down before a request was served.
    #[error("the request was not finished: the model is being unloaded")]
    ReplicasClosed,
    /// A sampler parameter outside of its range.
    #[error("{name} = {value} is out of range: it must be {need}")]
    BadSampler {
        /// Which.
        name: &'static str,
        /// Its value.
        value: f32,
        /// Its range.
        need: &'static str,
    },
}

/// What is wrong with a file that should be an adapter.
#[derive(Debug, thiserror::Error)]
pub enum AdapterFault {
    /// It is something else.
    #[error("this is no adapter: general.type is {0}, not adapter")]
    NoAdapter(String),
    /// It is another kind of adapter.
    #[error("adapters of type {0} are not supported: only lora is")]
    Kind(String),
    /// It wants to be on only behind some tokens.
    #[error("adapters with invocation tokens (aLoRA) are not supported")]
    Invoked,
    /// It has a tensor that is neither A nor B.
    #[error("tensor {0} is neither .lora_a nor .lora_b: only products of low rank are supported")]
    NoPair(String),
    /// It has A without B, or B without A.
    #[error("tensor {0} is missing")]
    Missing(String),
    /// It has nothing.
    #[error("it has no tensors")]
    Empty,
    /// It is for another architecture.
    #[error("it is for models of architecture {adapter}, but this model is {model}")]
    Architecture {
        /// The adapter's.
        adapter: String,
        /// The model's.
        model: String,
    },
    /// A value or tensor is malformed.
    #[error(transparent)]
    Gguf(#[from] gguf::Error),
    /// It does not fit the model.
    #[error(transparent)]
    Graph(#[from] graph::Error),
}

/// The text of a panic.
pub(crate) fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}
