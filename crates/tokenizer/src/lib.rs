//! Text to token ids and back, and chat templates.
//!
//! A [`Tokenizer`] is built from a GGUF file's metadata ([`Tokenizer::from_gguf`]) or from a plain
//! [`VocabSpec`]. The kinds known are byte-level BPE (`gpt2` in GGUF), SentencePiece BPE (`llama`,
//! `gemma4`), WordPiece (`bert`) and Unigram (`t5`). A [`Decoder`] turns ids back into text one at a time, in whole
//! characters. A [`ChatTemplate`] renders messages with the Jinja template that came with the model; an [`Escaper`]
//! keeps text from outside apart from the control tokens that the template writes.
//!
//! Strings in GGUF are bytes, so a token is bytes here too ([`Tokenizer::token_bytes`]), and so is
//! the text to encode; only decoding makes text of them, with U+FFFD where the bytes are not UTF-8.
//!
//! Limits: no RWKV, PLaMo-2 or DNA vocabularies; byte-level BPE needs an entry for its
//! `tokenizer.ggml.pre` in [`PRE_TOKENIZERS`](schemes::PRE_TOKENIZERS). Both are named in the
//! error. Time to encode grows as n log n with the length of the text, for any text.
#![forbid(unsafe_code)]

mod alphabet;
mod bpe;
mod budget;
mod charsmap;
mod decode;
mod eog;
mod error;
mod escape;
mod fim;
mod merge;
mod methods;
mod pair;
mod pretokenize;
mod program;
mod recognise;
pub mod schemes;
mod spec;
mod special;
mod spm;
mod strftime;
mod template;
mod tojson;
mod tokenizer;
mod unigram;
mod vocab;
mod wordpiece;

pub use budget::MAX_OUTPUT;
pub use decode::{DecodeOptions, Decoder};
pub use error::Error;
pub use escape::{Escaper, Rendered, unescape_values};
pub use fim::FimTokens;
pub use pair::Pair;
pub use recognise::recognise;
pub use spec::{VocabModel, VocabSpec};
pub use strftime::strftime;
pub use template::{ChatTemplate, Message, RenderOptions};
pub use tokenizer::{EncodeOptions, Tokenizer};
pub use vocab::TokenKind;
