//! References, tiny-model builders, folders of models, fake machines and a fake hub of models for tests.
//!
//! Everything is deterministic: the same call gives the same bytes.
#![forbid(unsafe_code)]

mod blocks;
mod checkpoint;
mod encoder;
mod golden;
mod hub;
mod lora;
mod model;
mod retype;
mod rng;
mod scaled;
mod scripted;

pub use blocks::random_blocks;
pub use checkpoint::{Checkpoint, Stored, f32s, numbers, safetensors};
pub use encoder::{WHOLE, encoder, whole_encoder};
pub use golden::{golden, picture};
pub use hub::{FakeHub, FakeRepo, Fault, Seen};
pub use lora::{lora, merged};
pub use model::{Predicts, TinyExperts, TinyModel};
pub use retype::{Requantized, requantize};
pub use rng::Rng;
pub use scaled::{Scaled, with_scales};
pub use scripted::{Script, scripted};

use std::path::PathBuf;

/// A file or folder of the repository.
pub fn repository(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}
