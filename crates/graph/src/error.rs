//! What can go wrong between a model's definition and its execution.

use crate::shape::MatrixShape;

/// Errors of building, loading and executing a graph.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file lacks a tensor that the architecture needs.
    #[error("tensor {0} is missing from the model file")]
    MissingTensor(String),
    /// A tensor's shape is not the one that the metadata implies.
    #[error("tensor {name} is {got_rows} x {got_cols}, but the metadata implies {rows} x {cols}")]
    WrongShape {
        /// Its name.
        name: String,
        /// Rows in the file.
        got_rows: usize,
        /// Columns in the file.
        got_cols: usize,
        /// Rows expected.
        rows: usize,
        /// Columns expected.
        cols: usize,
    },
    /// A tensor holds another number of experts than the metadata say.
    #[error("tensor {name} has {got} experts, but the metadata imply {experts}")]
    WrongExperts {
        /// Its name.
        name: String,
        /// Experts in the file.
        got: usize,
        /// Experts expected.
        experts: usize,
    },
    /// What an adapter has for a tensor cannot stand beside it.
    #[error("what the adapter has for {tensor} {fault}")]
    Adapter {
        /// The model's tensor.
        tensor: String,
        /// What is wrong.
        fault: AdapterFault,
    },
    /// A pipeline has more stages than the model has layers.
    #[error("a pipeline of {stages} nodes needs as many layers, but the model has {layers}")]
    TooManyStages {
        /// Nodes.
        stages: usize,
        /// Layers of the model.
        layers: usize,
    },
    /// A pipeline of layers that need more of each other than the residual stream, or of all tokens at once.
    #[error(
        "layers of this model read keys and values of others or inputs of their own, or its tokens see those \
         behind them: they cannot be a pipeline, so another way to use the nodes is needed"
    )]
    NoPipeline,
    /// Predicting layers in a pipeline.
    #[error(
        "layers that predict further tokens read what the model's first and last stage have: they cannot be \
         used in a pipeline, so another way to use the nodes is needed"
    )]
    NoPredictingPipeline,
    /// Phases of a plan that do not ascend.
    #[error(
        "the plan has a phase of up to {tokens} tokens behind one of up to {before}: phases must ascend, \
         from 1 token on"
    )]
    BadPhases {
        /// Tokens of the phase.
        tokens: usize,
        /// Tokens of the phase before it, or 0.
        before: usize,
    },
    /// A schedule that its matrix cannot be multiplied by.
    #[error("the schedule of {shape} for up to {tokens} tokens {fault}")]
    BadSchedule {
        /// What was to be multiplied.
        shape: MatrixShape,
        /// Tokens that the schedule was for.
        tokens: usize,
        /// What is wrong.
        fault: ScheduleFault,
    },
    /// Products were to be timed that the model does not have.
    #[error("no matrix of the model is {shape} at level {level}")]
    NoSuchShape {
        /// What was asked for.
        shape: MatrixShape,
        /// The level of threads.
        level: usize,
    },
    /// Threads were to be rearranged into other groups than the model was loaded for.
    #[error(
        "a loaded model's threads can be rearranged within its groups only: load it anew for others"
    )]
    OtherGroups,
    /// All threads of a group would be left out of steps.
    #[error("steps cannot be taken without all threads of a group")]
    NobodyLeft,
    /// A size in the model's metadata that the kernels cannot serve.
    #[error("{what} is {value}, but it must be {need}")]
    BadDimension {
        /// Which size.
        what: &'static str,
        /// Its value.
        value: usize,
        /// What it must be.
        need: &'static str,
    },
    /// A step that exceeds what the executor was sized for.
    #[error("a step of {got} {what} exceeds the limit of {max}")]
    StepTooLarge {
        /// What is counted.
        what: &'static str,
        /// How many the step has.
        got: usize,
        /// How many fit.
        max: usize,
    },
    /// Logits are wanted of a model without a head.
    #[error(
        "this model reads texts and writes none: it gives hidden states (`arclight embed`), no logits"
    )]
    NoLogits,
    /// A token id outside of the vocabulary.
    #[error("token id {token} is outside of the vocabulary of {vocab}")]
    UnknownToken {
        /// The id.
        token: u32,
        /// Vocabulary size.
        vocab: usize,
    },
    /// A step whose sequences or page tables contradict each other.
    #[error("malformed step: {0}")]
    BadStep(String),
    /// Loading was given up.
    #[error("loading was stopped")]
    Stopped,
    /// Data of a tensor could not be made.
    #[error("tensor {tensor} cannot be made: {source}")]
    Make {
        /// The tensor.
        tensor: String,
        /// Why.
        source: Box<gguf::Error>,
    },
    /// Memory could not be had, or the file not be read.
    #[error(transparent)]
    Memory(#[from] memory::Error),
    /// The worker pool could not be made.
    #[error(transparent)]
    Pool(#[from] threads::Error),
    /// A worker panicked during a step.
    #[error(transparent)]
    Panicked(#[from] threads::Panicked),
}

/// What is wrong with a tensor of an adapter.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdapterFault {
    /// The model has no such tensor.
    #[error("is of no use: the model has no such tensor")]
    Unknown,
    /// The tensor is no matrix that something is multiplied by.
    #[error("cannot be added: it is no matrix that the model multiplies by")]
    NoMatrix,
    /// The tensor holds experts.
    #[error("cannot be added: adapters of experts and of those beside them are not supported")]
    Bank,
    /// The tensor has a matrix for each head.
    #[error("cannot be added: adapters of matrices by head are not supported")]
    ByHead,
    /// The tensor is a table of embeddings.
    #[error("cannot be added: adapters of embeddings are not supported")]
    Embedding,
    /// The adapter has another pair for the tensor.
    #[error("comes twice")]
    Twice,
    /// The shapes of A and B do not fit.
    #[error(
        "has A of {} x {} and B of {} x {}, but the tensor is {rows} x {cols}",
        a[0], a[1], b[0], b[1]
    )]
    Shape {
        /// Rows and columns of A.
        a: [usize; 2],
        /// Those of B.
        b: [usize; 2],
        /// Rows of the tensor.
        rows: usize,
        /// Its columns.
        cols: usize,
    },
}

/// What is wrong with a schedule.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleFault {
    /// Its shape has schedules already.
    #[error("is the second of its shape: give each shape one list")]
    Twice,
    /// Numbers of tokens do not ascend.
    #[error("stands behind one for up to {before}: numbers of tokens must ascend, from 1 on")]
    NotAscending {
        /// Tokens of the schedule before it, or 0.
        before: usize,
    },
    /// A slice of nothing.
    #[error("has an empty slice: it must be at least 1 tile by 1 token")]
    EmptySlice,
    /// Slices of no tiles, or of so many that a part gets none.
    #[error("has slices of {slice} of the {all} tiles for {parts} parts")]
    BadTiles {
        /// Tiles of the product.
        all: usize,
        /// Tiles of a slice.
        slice: usize,
        /// Parts of the grid.
        parts: usize,
    },
    /// Slices of no tokens, or of so many that a part gets none.
    #[error("has slices of {slice} of the {all} tokens for {parts} parts")]
    BadTokens {
        /// Tokens of the product.
        all: usize,
        /// Tokens of a slice.
        slice: usize,
        /// Parts of the grid.
        parts: usize,
    },
    /// A grid of nothing.
    #[error("has an empty grid: it must have at least 1 part of the tokens and 1 of the columns")]
    EmptyGrid,
    /// Columns were to be cut that are not summed as a tree.
    #[error("cuts the columns into {splits}, which only matrices whose columns nodes share allow")]
    NotSummed {
        /// Parts of the columns.
        splits: usize,
    },
    /// More parts of the columns than there are segments that are summed apart.
    #[error("cuts the columns into {splits}, but a node has only {segments} segments of them")]
    TooFewSegments {
        /// Parts of the columns.
        splits: usize,
        /// Segments of the node.
        segments: usize,
    },
    /// A kernel that does not multiply all parts of the matrix.
    #[error("names the kernel {kernel}, which does not multiply {ty} on this CPU")]
    NoKernel {
        /// The kernel.
        kernel: kernels::MatKernel,
        /// The type of a part.
        ty: gguf::TensorType,
    },
    /// A kernel that was written elsewhere and is not loaded.
    #[error("names the kernel {} of a file with the digest {}, which is not loaded", .kernel.name(), .kernel.digest())]
    NotLoaded {
        /// The kernel.
        kernel: &'static kernels::Foreign,
    },
    /// More parts than threads.
    #[error("has {tokens} parts of the tokens by {splits} of the columns for {threads} threads")]
    TooFewThreads {
        /// Parts of the tokens.
        tokens: usize,
        /// Parts of the columns.
        splits: usize,
        /// Threads of the team.
        threads: usize,
    },
}
