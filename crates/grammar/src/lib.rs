//! Constrained decoding: which tokens may come next, so that the answer has a given form.
//!
//! A [`Vocabulary`] holds a model's tokens as a trie. It compiles a [`Spec`] (a JSON schema, any JSON
//! object, a regular expression, a grammar in Lark or GBNF, or a choice of texts) into a [`Matcher`], which goes
//! along with one sequence: [`Matcher::allow`] clears the bits of the tokens that may not come next,
//! [`Matcher::accept`] takes the token that came. The work is done by `llguidance`, an Earley parser
//! over lexemes that are matched by derivatives; masks cost tens of microseconds.
//!
//! It fails closed. A specification that is not supported, cannot be satisfied, or costs more than the
//! limits in [`limits`] is an error when it is compiled, naming the place in the schema or pattern; a
//! grammar that exceeds a limit later is an error of that step. Only annotations are ignored, as JSON
//! Schema requires.
//!
//! Limits: `$ref` only within the schema (`#/…`); white space between JSON tokens is a
//! space, or a line end and an indent of at most [`limits::JSON_SPACE`] characters, and an object that names its
//! properties has no others unless its schema speaks of them: a model cannot fill its budget with either; tokens longer
//! than 1,000 bytes never come under a grammar. Lark is llguidance's dialect of it.
#![forbid(unsafe_code)]

mod error;
mod gbnf;
pub mod limits;
mod matcher;
mod pattern;
mod schema;
mod spec;
mod vocabulary;

pub use error::Error;
pub use matcher::Matcher;
pub use spec::Spec;
pub use vocabulary::Vocabulary;
