//! What an answer must look like, token by token: a grammar, which waits while the model thinks.

use arclight_engine::Constraint;
use grammar::Matcher;
use std::sync::Arc;
use tokenizer::{DecodeOptions, Decoder, Tokenizer};

/// A grammar over an answer.
pub(super) struct Guide {
    matcher: Matcher,
    /// While the answer is within reasoning that the prompt has opened.
    thoughts: Option<Thoughts>,
}

/// Reasoning up to the mark that closes it.
struct Thoughts {
    tokenizer: Arc<Tokenizer>,
    decoder: Decoder<Arc<Tokenizer>>,
    close: &'static str,
    /// The end of the text so far, as long as could begin the mark.
    tail: String,
}

impl Guide {
    /// A grammar for everything that is written.
    pub(super) fn new(matcher: Matcher) -> Guide {
        Guide { matcher, thoughts: None }
    }

    /// A grammar for what follows the mark that closes reasoning.
    pub(super) fn after(close: &'static str, matcher: Matcher, tokenizer: Arc<Tokenizer>) -> Guide {
        let options = DecodeOptions { skip_special: false, continues: true };
        let decoder = Decoder::new(tokenizer.clone(), options);
        let thoughts = Thoughts { tokenizer, decoder, close, tail: String::new() };
        Guide { matcher, thoughts: Some(thoughts) }
    }
}

impl Constraint for Guide {
    fn allow(&mut self, mask: &mut [u32]) -> Result<(), String> {
        match &self.thoughts {
            None => self.matcher.allow(mask).map_err(|e| e.to_string()),
            // Thoughts are free, but they are not the answer: it must not end within them.
            Some(thoughts) => {
                for &end in thoughts.tokenizer.eog_ids() {
                    if let Some(word) = mask.get_mut(end as usize / 32) {
                        *word &= !(1 << (end % 32));
                    }
                }
                Ok(())
            }
        }
    }

    fn accept(&mut self, token: u32) -> Result<(), String> {
        let Some(thoughts) = &mut self.thoughts else {
            return self.matcher.accept(token).map_err(|e| e.to_string());
        };
        if thoughts.end_with(token) {
            self.thoughts = None;
        }
        Ok(())
    }
}

impl Thoughts {
    /// Whether the mark is complete with this token.
    fn end_with(&mut self, token: u32) -> bool {
        self.tail.push_str(self.decoder.push(token));
        if self.tail.contains(self.close) {
            return true;
        }
        let keep = self.tail.len().saturating_sub(self.close.len());
        let cut = (keep..=self.tail.len()).find(|&at| self.tail.is_char_boundary(at));
        self.tail.drain(..cut.unwrap_or(0));
        false
    }
}
