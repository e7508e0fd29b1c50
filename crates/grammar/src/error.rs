//! What can be wrong with a specification, a mask or a token, one variant per cause.

/// Why a specification cannot be compiled, or a step cannot be taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No token of the vocabulary ends an answer, so no grammar could.
    #[error("the vocabulary has no end-of-generation token; a grammar needs one to end with")]
    NoEnd,
    /// The vocabulary does not fit in the trie.
    #[error("the vocabulary needs a trie of {nodes} nodes; at most {limit} are possible")]
    VocabularyTooLarge {
        /// Nodes that it would have.
        nodes: usize,
        /// Nodes possible.
        limit: usize,
    },
    /// A place in a JSON schema that is wrong or not supported.
    #[error("schema at `{pointer}`: {fault}")]
    Schema {
        /// JSON pointer to the place; `#` is the whole schema.
        pointer: String,
        /// What is wrong there.
        fault: String,
    },
    /// The schema as a whole could not be compiled.
    #[error("schema: {0}")]
    SchemaCompile(String),
    /// A regular expression is wrong or not supported.
    #[error("regular expression: {0}")]
    Pattern(String),
    /// A Lark grammar is wrong or not supported.
    #[error("lark grammar: {0}")]
    Lark(String),
    /// A GBNF grammar is wrong or not supported.
    #[error("GBNF grammar, line {line}: {fault}")]
    Gbnf {
        /// The line, from 1.
        line: usize,
        /// What is wrong there.
        fault: String,
    },
    /// A choice of nothing.
    #[error("a choice needs at least one text")]
    NoChoice,
    /// A specification is larger than allowed.
    #[error("{what} has {size} {unit}; at most {limit} are allowed")]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// Its size.
        size: usize,
        /// What is counted.
        unit: &'static str,
        /// The bound.
        limit: usize,
    },
    /// The grammar matches no text at all.
    #[error("the grammar matches no text")]
    Empty,
    /// A step of the matcher went over its bounds of time or memory.
    #[error("the grammar is too costly: {0}")]
    TooCostly(String),
    /// The token is not one that may come here.
    #[error("the grammar does not allow token {token} here")]
    Refused {
        /// The token.
        token: u32,
    },
    /// No token of the vocabulary can continue the text, although the grammar wants more.
    #[error("no token of the vocabulary continues the grammar")]
    Stuck,
    /// The mask is shorter than the vocabulary.
    #[error("a mask of {words} words cannot hold {tokens} tokens")]
    MaskSize {
        /// Words of the mask.
        words: usize,
        /// Tokens of the vocabulary.
        tokens: usize,
    },
}
