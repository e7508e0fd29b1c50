//! What a specification may cost. A request may come from anybody, so each bound is small enough that
//! a hostile one is over in a moment, and far above what schemas in use need.

use llguidance::api::ParserLimits;

/// Levels of a JSON schema, counting every object and array of the document.
pub const SCHEMA_DEPTH: usize = 100;
/// Values in a JSON schema document.
pub const SCHEMA_VALUES: usize = 50_000;
/// Properties of one object. Their compilation takes time that grows with the square of this.
pub const PROPERTIES: usize = 1_000;
/// Bytes of a regular expression.
pub const PATTERN_BYTES: usize = 32 << 10;
/// How often the innermost part of a pattern may be counted: the product of nested `{n,m}`.
pub const PATTERN_COUNT: u64 = 50_000;
/// Bytes of a Lark grammar, schemas within it included.
pub const LARK_BYTES: usize = 1 << 20;
/// Bytes of all texts of a choice together.
pub const CHOICE_BYTES: usize = 256 << 10;
/// Levels of parentheses in a GBNF grammar.
pub const GBNF_DEPTH: usize = 100;
/// Levels of parentheses and rules within each other, where rules become one regular expression.
pub const GBNF_LEVELS: usize = 1_000;
/// Characters that a line of JSON is indented at most.
pub const JSON_SPACE: usize = 20;
/// Bytes of a token; longer ones are left out of the trie, which cannot hold them.
pub(crate) const TOKEN_BYTES: usize = 1_000;
/// Nodes that the trie can hold (22 bits).
pub(crate) const TRIE_NODES: usize = (1 << 22) - 1;

/// Bounds on the compiled form and on one step. A lexer state takes 1 to 2 kB, so a matcher stays
/// below some 100 MB; lexer fuel runs at 14,000 and items at 20,000 a millisecond, so a mask is over
/// in 20 ms, or is an error.
pub(crate) fn parser() -> ParserLimits {
    ParserLimits {
        // An object whose properties may all come next takes four items for each.
        max_items_in_row: 4 * PROPERTIES + 1_000,
        max_lexer_states: 50_000,
        max_grammar_size: 200_000,
        verbose_errors: false,
        ..ParserLimits::default()
    }
}
