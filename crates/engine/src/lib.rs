//! Load a model, keep its paged KV cache, take steps over batches of sequences, sample.
//!
//! The engine speaks token ids only: text, templates and grammars stand beside it. All work is
//! done by [`Engine::step`], which takes new tokens of any number of sequences at once, a chunk of
//! one's prompt beside single tokens of others; [`Engine::generate`] drives one sequence, and
//! [`Replicas`] serve many requests on several engines.
//!
//! ```
//! use arclight_engine::{Engine, LoadOptions, ModelFile, SamplerParams, StopReason};
//! # let name = format!("arclight-engine-{}.gguf", std::process::id());
//! # let path = std::env::temp_dir().join(name);
//! # std::fs::write(&path, testkit::golden("qwen3_tied"))?;
//!
//! let file = ModelFile::open(&path)?;
//! let options = LoadOptions { nodes: Some(2), context: Some(256), ..LoadOptions::default() };
//! let mut engine = Engine::load(&file, &options, &mut |_| {})?;
//!
//! let sequence = engine.new_sequence()?;
//! let mut generation = engine.generate(sequence, &[1, 2, 3], SamplerParams::greedy())?;
//! generation.limit(8);
//! let tokens = generation.by_ref().collect::<Result<Vec<u32>, _>>()?;
//! assert_eq!(tokens.len(), 8);
//! assert_eq!(generation.stopped(), Some(StopReason::Limit));
//! # std::fs::remove_file(path)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod adapter;
mod disk;
mod engine;
mod error;
mod file;
mod generate;
mod images;
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
mod source;
mod speculate;
mod stop;
mod trial;

pub use adapter::{Adapter, AdapterFault};
pub use disk::DiskCache;
pub use engine::{BatchEntry, Engine};
pub use error::Error;
pub use file::ModelFile;
pub use generate::{Generation, StopReason, Timings};
pub use graph::profile::Profile;
pub use graph::{
    Adapted, Grid, Inset, KvType, Logits, MatrixShape, Mode, NodeBytes, Outputs, Phase, Plan,
    Product, Schedule, Schedules, Slice, Sync, Variant,
};
pub use images::{Encoder, ImagePart, Prompt, processor};
pub use kv::{PageCounts, SeqId};
pub use load::{FileRead, LoadProgress, LoadReport, Unpacked};
pub use made::Produce;
pub use memory::HugePages;
pub use options::{AdapterUse, KvSize, LoadOptions, Numa, PageCache, Reading};
pub use placement::{Activity, ArenaPlacement, Elsewhere, GroupPlacement, Moved, Placement};
pub use replicas::{
    Constraint, Counters, Experts, GroupStatus, IdleTime, Ids, Pooling, ReplicaInfo,
    ReplicaOptions, ReplicaStatus, Replicas, Request, RequestSummary, Score, StopHook, Ticket,
    Token, cut, unit,
};
pub use sampler::{Logprobs, Sampler, SamplerParams};
pub use speculate::{Speculation, Speculator};
pub use stop::{StopStrings, Text};
pub use topology::{CpuId, CpuList, Group, NodeId, NodeList};
