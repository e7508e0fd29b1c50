//! Two texts as one, as models that compare texts were trained to read them: `[CLS] a [SEP] b [SEP]` (BERT),
//! `<s> a </s></s> b </s>` (RoBERTa, XLM-R).

use crate::error::Error;
use crate::spec::VocabModel;
use crate::tokenizer::{EncodeOptions, Tokenizer};
use std::ops::Range;

/// Two texts in one sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    /// All tokens, with those that stand around the texts.
    pub tokens: Vec<u32>,
    /// Where the second text's tokens are; those behind end it.
    pub second: Range<usize>,
    /// Whether the second text and its end are of another type than what stands before (WordPiece).
    pub typed: bool,
}

impl Pair {
    /// Takes from the end of the second text what is above `most` tokens, as far as it has so many.
    pub fn cut(&mut self, most: usize) {
        let over = self.tokens.len().saturating_sub(most).min(self.second.len());
        self.tokens.drain(self.second.end - over..self.second.end);
        self.second.end -= over;
    }
}

impl Tokenizer {
    /// Two texts as one; `None` if the vocabulary has no end of text that would stand between them.
    ///
    /// # Errors
    /// As [`encode`](Tokenizer::encode).
    pub fn pair(&self, first: &str, second: &str) -> Result<Option<Pair>, Error> {
        let Some(end) = self.append else { return Ok(None) };
        let mut tokens: Vec<u32> = self.prepend.into_iter().collect();
        tokens.extend(self.encode(first, EncodeOptions::default())?);
        tokens.push(end);
        tokens.extend(self.between);
        let begin = tokens.len();
        tokens.extend(self.encode(second, EncodeOptions::default())?);
        let second = begin..tokens.len();
        tokens.push(end);
        Ok(Some(Pair { tokens, second, typed: self.kind == VocabModel::WordPiece }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_text_is_cut_and_not_its_end() {
        let pair = Pair { tokens: vec![1, 5, 6, 2, 7, 8, 9, 2], second: 4..7, typed: true };
        let cut = |most| {
            let mut pair = pair.clone();
            pair.cut(most);
            (pair.tokens, pair.second)
        };
        assert_eq!(cut(8), (pair.tokens.clone(), 4..7));
        assert_eq!(cut(6), (vec![1, 5, 6, 2, 7, 2], 4..5));
        assert_eq!(cut(3), (vec![1, 5, 6, 2, 2], 4..4));
    }
}
