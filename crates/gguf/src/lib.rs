//! The GGUF file format: read, write, validate; block types with exact reference conversion.
//!
//! [`Gguf::parse`] takes the bytes of a file (mapped or read by the caller) and yields its
//! [`Metadata`] and [`Tensor`] views. Nothing is copied: keys, strings and tensor data borrow the
//! input. Every count, length, offset and shape is checked before it is used, so a hostile file
//! gives an [`Error`] that names the fault, never a panic, and never an allocation larger than a
//! small multiple of the file itself. [`Writer`] makes files; [`TensorType`] converts
//! blocks to and from `f32`, by what [`Importances`] say matters.
//!
//! Limits: GGUF versions 2 and 3, little endian. Keys and tensor names are UTF-8; string *values*
//! are bytes, because vocabularies hold partial characters. Tensors may not overlap, so the sum of
//! all tensor data never exceeds the file.
//!
//! Source: the GGUF specification in the ggml repository (`docs/gguf.md`); block layouts and
//! conversion rules follow ggml and its Python package, which the tests compare with bit for bit.
//!
//! ```
//! use arclight_gguf::{Gguf, TensorType, Writer};
//!
//! let mut file = Vec::new();
//! Writer::new()
//!     .kv("general.architecture", "qwen3")
//!     .kv("qwen3.block_count", 36u32)
//!     .tensor("output_norm.weight", &[2], TensorType::F32, &[0u8; 8])
//!     .write_to(&mut file)?;
//!
//! let gguf = Gguf::parse(&file)?;
//! assert_eq!(gguf.metadata().str("general.architecture")?, "qwen3");
//! assert_eq!(gguf.metadata().u32("qwen3.block_count")?, 36);
//! assert_eq!(gguf.tensor("output_norm.weight").unwrap().cols(), 2);
//! # Ok::<(), arclight_gguf::Error>(())
//! ```
#![forbid(unsafe_code)]

mod blocks;
mod cursor;
mod error;
mod importance;
mod importance_sums;
mod integers;
mod iquants;
mod kquants;
mod metadata;
mod mxfp4;
mod nonlinear;
mod nvfp4;
mod parse;
mod search;
mod split;
mod tensor;
mod ternary;
mod types;
mod value;
mod write;

pub use error::Error;
pub use importance::Importances;
pub use importance_sums::{ImportanceSums, Sums};
pub use integers::Integers;
pub use metadata::Metadata;
pub use parse::Gguf;
pub use split::split_paths;
pub use tensor::{MAX_DIMS, OtherTensor, Shape, Tensor};
pub use types::{TYPES, TensorType, TypeInfo};
pub use value::{Array, Strings, Value, ValueType, Values};
pub use write::{OwnedValue, Writer};

/// The first four bytes of every GGUF file.
pub const MAGIC: [u8; 4] = *b"GGUF";

/// Alignment of tensor data, in bytes, of files without the key [`ALIGNMENT_KEY`].
pub const DEFAULT_ALIGNMENT: u32 = 32;

/// Metadata key that sets the alignment of tensor data, in bytes.
pub const ALIGNMENT_KEY: &str = "general.alignment";
