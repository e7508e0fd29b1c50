//! A model's tokens as a trie, built when the first grammar needs it.

use std::fmt;
use std::sync::{Arc, OnceLock};

use llguidance::ParserFactory;
use llguidance::api::{GrammarWithLexer, TopLevelGrammar};
use llguidance::toktrie::{ApproximateTokEnv, TokEnv, TokRxInfo, TokTrie};
use tokenizer::{TokenKind, Tokenizer};

use crate::{Error, Matcher, Spec, limits};

/// A vocabulary that grammars can be compiled for. Shared between threads as it is; clones share the
/// trie.
#[derive(Clone)]
pub struct Vocabulary {
    shared: Arc<Shared>,
}

struct Shared {
    tokenizer: Arc<Tokenizer>,
    /// What the trie is part of, or why there is none.
    factory: OnceLock<Result<ParserFactory, Error>>,
}

impl Vocabulary {
    /// The vocabulary of a tokenizer. Nothing is built yet: the first [`compile`](Self::compile)
    /// takes a second or so for 150,000 tokens.
    pub fn new(tokenizer: Arc<Tokenizer>) -> Self {
        Self { shared: Arc::new(Shared { tokenizer, factory: OnceLock::new() }) }
    }

    /// The tokenizer it is made from.
    pub fn tokenizer(&self) -> &Arc<Tokenizer> {
        &self.shared.tokenizer
    }

    /// Words of a mask that holds a bit per token.
    pub fn mask_words(&self) -> usize {
        self.shared.tokenizer.vocab_size().div_ceil(32)
    }

    /// Compiles a specification; the error says what in it is wrong, not supported, or too costly.
    /// Takes milliseconds, for the largest schemas allowed some hundred. Blocks while the trie is
    /// being built.
    pub fn compile(&self, spec: &Spec) -> Result<Matcher, Error> {
        self.matcher(spec.grammar()?, spec)
    }

    /// Compiles a form for a part of the text: `around` is a Lark grammar of the whole, and `@answer` in
    /// it stands for what `answer` says. That `answer` is in order is better learnt from
    /// [`compile`](Self::compile): the whole may begin with something else, and a fault is told as one
    /// of the Lark grammar.
    pub fn compile_within(&self, around: &str, answer: &Spec) -> Result<Matcher, Error> {
        let whole = Spec::Lark(around.to_owned());
        let mut grammar = whole.grammar()?;
        let named = |part| GrammarWithLexer { name: Some("answer".to_owned()), ..part };
        grammar.grammars.extend(answer.grammar()?.grammars.into_iter().map(named));
        self.matcher(grammar, &whole)
    }

    /// `spec` is whose fault it is if the grammar cannot be used.
    fn matcher(&self, grammar: TopLevelGrammar, spec: &Spec) -> Result<Matcher, Error> {
        let factory = self.factory()?;
        let parser =
            factory.create_parser(grammar).map_err(|error| spec.fault(&error.to_string()))?;
        let mut matcher =
            Matcher::new(llguidance::Matcher::new(Ok(parser)), self.shared.tokenizer.clone());
        // The first mask tells what no text satisfies, and what is too costly from the start.
        match matcher.allow(&mut vec![!0; self.mask_words()]) {
            Err(Error::Stuck) => Err(Error::Empty),
            result => result.map(|()| matcher),
        }
    }

    fn factory(&self) -> Result<&ParserFactory, Error> {
        let build = || {
            let trie = trie(&self.shared.tokenizer)?;
            let env: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
            // Fails only for slices that do not parse, and these are llguidance's own.
            let mut factory =
                ParserFactory::new_simple(&env).map_err(|e| Error::TooCostly(e.to_string()))?;
            factory.quiet();
            *factory.limits_mut() = limits::parser();
            Ok(factory)
        };
        self.shared.factory.get_or_init(build).as_ref().map_err(Clone::clone)
    }
}

impl fmt::Debug for Vocabulary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vocabulary")
            .field("tokens", &self.shared.tokenizer.vocab_size())
            .field("built", &self.shared.factory.get().is_some())
            .finish()
    }
}

/// The trie. Tokens that are structure get the marker byte in front, so that no text matches them; a
/// grammar names them (`<|name|>`, `<[id]>`).
fn trie(tokenizer: &Tokenizer) -> Result<TokTrie, Error> {
    let eog = tokenizer.eog_ids();
    let Some(&first) = eog.first() else { return Err(Error::NoEnd) };
    let count = tokenizer.vocab_size() as u32;
    let words: Vec<Vec<u8>> = (0..count)
        .map(|id| {
            let bytes = tokenizer.token_bytes(id).unwrap_or_default();
            let structure = tokenizer.is_special(id) || tokenizer.is_eog(id);
            match tokenizer.token_kind(id) {
                _ if bytes.len() > limits::TOKEN_BYTES => Vec::new(),
                _ if structure => [&[TokTrie::SPECIAL_TOKEN_MARKER], bytes].concat(),
                Some(TokenKind::Unused) | None => Vec::new(),
                Some(_) => bytes.to_vec(),
            }
        })
        .collect();
    let nodes = nodes(&words);
    if nodes > limits::TRIE_NODES {
        return Err(Error::VocabularyTooLarge { nodes, limit: limits::TRIE_NODES });
    }
    Ok(TokTrie::from(&TokRxInfo::new(count, first), &words).with_eos_tokens(eog))
}

/// How many nodes the trie of these words has.
fn nodes(words: &[Vec<u8>]) -> usize {
    let mut sorted: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
    sorted.sort_unstable();
    let mut before: &[u8] = &[];
    let mut nodes = 1;
    for word in sorted {
        let shared = before.iter().zip(word).take_while(|(a, b)| a == b).count();
        // Two tokens of the same bytes have a last node each.
        nodes += (word.len() - shared).max(usize::from(!word.is_empty()));
        before = word;
    }
    nodes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_counted_once_per_prefix() {
        let words = ["abc", "abd", "a", "", "x", "x"].map(|w| w.as_bytes().to_vec());
        // The root, a, ab, abc, abd, x, and x again.
        assert_eq!(nodes(&words), 7);
    }
}
