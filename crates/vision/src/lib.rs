//! Prepares images for language models.
//!
//! A [`Picture`] is decoded from a file's bytes, within bounds. A [`Processor`] has the rules of a model family: the size
//! to which the picture is scaled, its cut, the tokens around it. It gives [`Piece`]s: text for the tokenizer, and outputs
//! of the encoder, whose input it makes from a [`Tile`].
//!
//! Sizes, filters and rounding are those of the processors in Hugging Face's transformers: pixel values agree to 1e-4.
//! Transparent parts of a picture become white.
#![forbid(unsafe_code)]

mod error;
mod families;
mod picture;
mod positions;
mod processor;
mod resample;
mod tile;

pub use error::Error;
pub use picture::{Bounds, Picture};
pub use processor::{Piece, Processor};
pub use tile::{Rows, Tile};
