//! Folders of the Hugging Face Hub as GGUF: `config.json`, tensors, vocabulary, chat template.
//!
//! [`Conversion::open`] reads everything but the tensors' data and gives the file's metadata and a list of its
//! tensors. The data of each is made on request, any range of rows by itself, from the mapped files: memory holds a
//! few rows, and many threads may request at once. Names and forms of each family are data (`families`); names, keys
//! and forms of the result are llama.cpp's.
//!
//! A model that reads images becomes two files: its language model, and its image encoder ([`Conversion::images`]).
//!
//! Limits: no encoders of sound; folders with `.safetensors` files. PyTorch's own files may run code when they are
//! read, and are refused.
#![forbid(unsafe_code)]

mod about;
mod adapter;
mod array;
mod classes;
mod config;
mod conversion;
mod draft;
mod dtype;
mod error;
mod families;
mod folder;
mod images;
mod keys;
mod pooling;
mod positions;
mod rope;
mod rules;
mod safetensors;
mod stored;
mod tensors;
mod vocab;

pub use adapter::{adapter, is_adapter};
pub use conversion::{Conversion, Float, Options, Tensor, classes};
pub use error::Error;
