//! What can be wrong with a vocabulary, a template or a request, one variant per cause.

/// A fault in a model's tokenizer metadata or chat template, or in the input to one of them.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A metadata key the tokenizer cannot do without is absent.
    #[error("the file has no `{key}`, which its tokenizer needs; convert the model again")]
    MissingKey {
        /// The GGUF key.
        key: &'static str,
    },
    /// `tokenizer.ggml.model` names a kind of vocabulary that is not implemented.
    #[error(
        "tokenizer model `{model}` is not supported (supported: gpt2, llama, gemma4, bert, t5)"
    )]
    UnsupportedModel {
        /// The value of the key.
        model: String,
    },
    /// `tokenizer.ggml.pre` names a way of splitting text that has no entry in the table.
    #[error("pre-tokenizer `{pre}` is not supported (supported: {supported})")]
    UnsupportedPre {
        /// The value of the key.
        pre: String,
        /// The names that have an entry.
        supported: String,
    },
    /// An array that goes with the tokens has another length than they have.
    #[error("`{key}` has {len} entries for {tokens} tokens; the file is damaged")]
    LengthMismatch {
        /// The GGUF key.
        key: &'static str,
        /// Entries in the array.
        len: usize,
        /// Tokens in the vocabulary.
        tokens: usize,
    },
    /// One token cannot be what its type says.
    #[error("token {id} of `tokenizer.ggml.tokens` {fault}")]
    BadToken {
        /// Index of the token.
        id: usize,
        /// What is wrong with it.
        fault: &'static str,
    },
    /// A token type outside 1 to 6.
    #[error("token {id} has type {value} in `tokenizer.ggml.token_type`; known types are 1 to 6")]
    BadTokenType {
        /// Index of the token.
        id: usize,
        /// The type found.
        value: i32,
    },
    /// A score that cannot be ordered.
    #[error("token {id} has the score NaN in `tokenizer.ggml.scores`")]
    BadScore {
        /// Index of the token.
        id: usize,
    },
    /// A merge that does not read as two tokens which together are a third.
    #[error("merge {line} of `tokenizer.ggml.merges` {fault}")]
    BadMerge {
        /// Index of the merge, counted from 0.
        line: usize,
        /// What is wrong with it.
        fault: String,
    },
    /// A token id in the metadata lies outside the vocabulary.
    #[error("`{key}` is {id}, but the vocabulary has {tokens} tokens")]
    IdOutOfRange {
        /// The GGUF key.
        key: &'static str,
        /// The id found.
        id: u32,
        /// Tokens in the vocabulary.
        tokens: usize,
    },
    /// Some text could not be encoded at all: a byte has no token and nothing stands in for it.
    #[error("the vocabulary has no token for byte 0x{byte:02X} and no unknown token")]
    MissingByte {
        /// The byte without a token.
        byte: u8,
    },
    /// The table of characters to replace does not hold together.
    #[error("`tokenizer.ggml.precompiled_charsmap` {fault}; the file is damaged")]
    BadCharsmap {
        /// What is wrong with it.
        fault: &'static str,
    },
    /// The merge model could not be built or refused a text.
    #[error("byte-pair model: {0}")]
    Model(String),
    /// The metadata holds a value of another type than the key has.
    #[error(transparent)]
    Metadata(#[from] gguf::Error),
    /// The chat template does not parse or failed while rendering.
    #[error("chat template, line {line}: {message}")]
    Template {
        /// Line in the template, counted from 1 (0 if the engine gives none).
        line: usize,
        /// What went wrong there.
        message: String,
    },
    /// The template itself refused the messages with `raise_exception`.
    #[error("the chat template refuses these messages: {message}")]
    Refused {
        /// The template's own words.
        message: String,
    },
    /// All characters that could keep text and control tokens apart occur in a conversation.
    #[error(
        "the messages have all characters of Linear A and CJK extension B, and a control token's name: one of the \
         characters is needed to keep such names apart from control tokens, so leave one out"
    )]
    NoEscape,
    /// Rendering took more steps than a template may.
    #[error("chat template, line {line}: still not done after {steps} steps")]
    TemplateTooLong {
        /// Line that was being rendered.
        line: usize,
        /// The bound on steps.
        steps: u64,
    },
    /// Rendering took longer than a template may.
    #[error("chat template, line {line}: still not done after {seconds} seconds")]
    TemplateTooSlow {
        /// Line that was being rendered.
        line: usize,
        /// The bound on time.
        seconds: u64,
    },
    /// Rendering made more text than a template may.
    #[error("chat template, line {line}: makes more than {limit} bytes of text")]
    TemplateTooLarge {
        /// Line that was being rendered.
        line: usize,
        /// The bound in bytes.
        limit: usize,
    },
}
