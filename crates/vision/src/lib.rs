//! Images as language models see them.
//!
//! A [`Picture`] is decoded from a file's bytes, within bounds. A [`Processor`] knows what a model family makes of it: to
//! which size it is brought, how it is cut, which tokens stand around. It gives [`Piece`]s: text for the tokenizer, and
//! outputs of the encoder, whose input it makes of a [`Tile`].
//!
//! Sizes, filters and rounding are those of the processors in Hugging Face's transformers: pixel values agree to 1e-4.
//! What is transparent in a picture is laid on white.
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
