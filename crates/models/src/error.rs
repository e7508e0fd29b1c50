//! Why a model cannot be built.

/// Errors of reading hyper-parameters and building graphs.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file's architecture is not among the supported ones.
    #[error("architecture {name:?} is not supported; supported are {known}")]
    UnsupportedArchitecture {
        /// What the file says.
        name: String,
        /// What there is.
        known: String,
    },
    /// An image encoder of a family that is not among the supported ones.
    #[error("image encoders of the kind {name:?} are not supported; supported are {known}")]
    UnsupportedEncoder {
        /// What the file says.
        name: String,
        /// What there is.
        known: String,
    },
    /// A feature of a supported architecture that is not implemented.
    #[error("{key} = {value} is not supported")]
    UnsupportedFeature {
        /// Metadata key.
        key: String,
        /// Its value.
        value: String,
    },
    /// A hyper-parameter that cannot be true.
    #[error("{key} = {value} is implausible: {why}")]
    Implausible {
        /// Metadata key.
        key: String,
        /// Its value.
        value: String,
        /// What it contradicts.
        why: &'static str,
    },
    /// The file has a tensor that this architecture does not use.
    #[error(
        "tensor {name} is not part of architecture {arch} as supported here; running without it would give wrong results"
    )]
    UnusedTensor {
        /// Its name.
        name: String,
        /// The architecture.
        arch: &'static str,
    },
    /// A file without layers that predict further tokens.
    #[error("{name} has no layers that predict further tokens (nextn_predict_layers)")]
    NothingPredicts {
        /// The model's name.
        name: String,
    },
    /// Layers that predict further tokens, of a family whose are not implemented.
    #[error("the layers of {arch} that predict further tokens are not supported")]
    PredictingUnsupported {
        /// The architecture.
        arch: &'static str,
    },
    /// A model whose layers cannot be shared by hosts, or not where they are cut.
    #[error("models of architecture {arch} cannot be cut into stages here: {why}")]
    NotCut {
        /// The architecture.
        arch: String,
        /// What goes over the cut beside the residual stream.
        why: String,
    },
    /// More stages than layers.
    #[error("{stages} stages cannot share {layers} layers")]
    TooManyStages {
        /// Stages.
        stages: usize,
        /// The model's layers.
        layers: usize,
    },
    /// A name that is not a published shape or type.
    #[error("there is no {what} {name:?}: use one of {known}")]
    NotPublished {
        /// A shape or a type.
        what: &'static str,
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// A published model has fewer layers.
    #[error("{name} has {of} layers: {layers} of them cannot be made")]
    NoSuchLayers {
        /// Its name.
        name: &'static str,
        /// Layers that were asked for.
        layers: usize,
        /// Those that it has.
        of: usize,
    },
    /// Not a shape and a type.
    #[error("give a shape and a type with a colon between them, such as qwen3-0.6b:q4_0")]
    NotShapeAndType,
    /// Metadata is missing or of the wrong type.
    #[error(transparent)]
    Gguf(#[from] gguf::Error),
    /// The weights do not fit.
    #[error(transparent)]
    Graph(#[from] graph::Error),
}
