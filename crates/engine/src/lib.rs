//! Load a model, keep its paged KV cache, take steps over batches of sequences, sample.
//!
//! The engine speaks token ids only: text, templates and grammars stand beside it. All work is
//! done by [`Engine::step`], which takes new tokens of any number of sequences at once, a chunk of
//! one's prompt beside single tokens of others; [`Engine::generate`] answers one request, and
//! [`Replicas`] serve many on several engines, with the same loop. `docs/tutorial.md` in the repository goes
//! through programs over it.
//!
//! ```
//! use arclight_engine::{Engine, Helpers, LoadOptions, ModelFile, Request, StopReason};
//! # let name = format!("arclight-engine-{}.gguf", std::process::id());
//! # let path = std::env::temp_dir().join(name);
//! # std::fs::write(&path, testkit::golden("qwen3_tied"))?;
//!
//! let file = ModelFile::open(&path)?;
//! let options = LoadOptions { nodes: Some(2), context: Some(256), ..LoadOptions::default() };
//! let mut engine = Engine::load(&file, &options, &mut |_| {})?;
//!
//! let request = Request { limit: Some(8), ..Request::new(vec![1, 2, 3]) };
//! let (tokens, outcome) = engine.generate(request, Helpers::default())?.wait()?;
//! assert_eq!(tokens.len(), 8);
//! assert_eq!(outcome.stopped, StopReason::Limit);
//! # std::fs::remove_file(path)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod adapter;
mod company;
mod control;
mod cores;
mod decode;
mod disk;
mod encoder;
mod engine;
mod error;
mod fewer;
mod file;
mod images;
mod inspect;
mod kv;
mod load;
mod made;
mod options;
mod packed;
mod placement;
mod profile;
mod replicas;
mod room;
mod sampler;
mod sequence;
mod source;
mod speculate;
mod stages;
mod stop;
mod trial;

pub use adapter::{Adapter, AdapterUse};
pub use company::Company;
pub use cores::CoreTurns;
pub use decode::{
    Constraint, Counters, Generation, Helpers, Ids, Request, RequestSummary, Rows, StopHook,
    StopReason, Timings, Token, cut, unit,
};
pub use disk::DiskCache;
pub use engine::{BatchEntry, Engine};
pub use error::{AdapterFault, Error};
pub use fewer::{FewThreads, TellFew};
pub use file::ModelFile;
pub use graph::profile::Profile;
pub use graph::{
    Adapted, Counts, Grid, Inset, KvType, KvTypes, Limits, Logits, MatrixShape, Mode, NodeBytes,
    Outputs, Phase, PlaceCounts, Plan, Product, Schedule, Schedules, Slice, Sync, Variant,
    WaitCounts,
};
/// Tokens of a page of keys and values, which is a block of the prefix cache.
pub use kernels::KV_PAGE;

pub use encoder::{Encoder, encoder_fits, processor};
pub use images::{ImagePart, Prompt};
pub use kv::{CacheEvent, PageCounts};
pub use load::{FileRead, LoadProgress, LoadReport, Unpacked};
pub use made::Produce;
pub use memory::{HugePages, Pages, Policy};
pub use models::Hparams;
pub use options::{KvSize, LoadOptions, Numa, PageCache, Reading};
pub use placement::{Activity, ArenaPlacement, Elsewhere, GroupPlacement, Moved, Placement};
pub use replicas::{
    CacheEvents, Experts, GroupStatus, IdleTime, Occupancy, Pooling, ReplicaInfo, ReplicaOptions,
    ReplicaStatus, Replicas, Score, ThreadStatus, Ticket,
};
pub use sampler::{Logprobs, Sampler, SamplerParams};
pub use sequence::SeqId;
pub use speculate::{Speculation, Speculator};
#[cfg(any(fuzzing, test))]
#[doc(hidden)]
pub use stages::FuzzStage;
#[cfg(fuzzing)]
#[doc(hidden)]
pub use stages::fuzz_stage_messages;
pub use stages::{
    StageCounts, StageKey, StageOptions, StageServer, StageState, StageStatus, StageStop,
};
pub use stop::{StopStrings, Text};
pub use threads::{Policy as TaskPolicy, ThreadStats};
pub use topology::{CpuId, CpuList, Group, Machine, NodeId, NodeList};
