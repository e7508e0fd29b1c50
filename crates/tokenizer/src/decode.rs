//! Ids back to text, one at a time, never half a character.

use std::ops::Deref;

use crate::Tokenizer;

/// How a [`Decoder`] makes text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DecodeOptions {
    /// Leave control and unknown tokens out of the text.
    pub skip_special: bool,
    /// The ids continue a text instead of beginning one. SentencePiece puts a space in front of
    /// every text; it is dropped again from a beginning but belongs to a continuation.
    pub continues: bool,
}

/// Turns ids into text as they come.
///
/// `T` is anything that leads to a [`Tokenizer`]: `&Tokenizer`, or `Arc<Tokenizer>` for a decoder
/// that lives on its own.
#[derive(Debug)]
pub struct Decoder<T> {
    tokenizer: T,
    skip_special: bool,
    /// The next shown token is the first of a text whose leading space is to go.
    drop_space: bool,
    /// Bytes not handed out yet: at most the 3 first of a character.
    pending: Vec<u8>,
    /// What the last call handed out.
    text: String,
}

impl<T: Deref<Target = Tokenizer>> Decoder<T> {
    /// A decoder at the start of its ids.
    pub fn new(tokenizer: T, opts: DecodeOptions) -> Self {
        Self {
            skip_special: opts.skip_special,
            drop_space: !opts.continues && tokenizer.drops_leading_space(),
            tokenizer,
            pending: Vec::new(),
            text: String::new(),
        }
    }

    /// Takes one id and gives the text that is complete with it, which may be empty. An id outside
    /// the vocabulary gives U+FFFD.
    pub fn push(&mut self, id: u32) -> &str {
        self.text.clear();
        if self.skip_special && self.tokenizer.is_special(id) {
            return &self.text;
        }
        let drop_space = std::mem::take(&mut self.drop_space);
        self.pending.extend(self.tokenizer.shown(id, drop_space));
        let done = push_complete(&self.pending, &mut self.text);
        self.pending.drain(..done);
        &self.text
    }

    /// Ends the text: gives U+FFFD if it stops inside a character, and nothing otherwise.
    pub fn flush(&mut self) -> &str {
        self.text.clear();
        if !self.pending.is_empty() {
            self.pending.clear();
            self.text.push(char::REPLACEMENT_CHARACTER);
        }
        &self.text
    }
}

/// Appends what is complete of `bytes`, U+FFFD for what cannot become UTF-8, and returns how many
/// bytes that were. The cut of a text into calls does not change the sum of what they append.
fn push_complete(bytes: &[u8], text: &mut String) -> usize {
    let mut done = 0;
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        done += chunk.valid().len();
        let invalid = chunk.invalid();
        let unfinished = str::from_utf8(invalid).is_err_and(|e| e.error_len().is_none());
        if unfinished && done + invalid.len() == bytes.len() {
            break;
        }
        if !invalid.is_empty() {
            text.push(char::REPLACEMENT_CHARACTER);
            done += invalid.len();
        }
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_by_byte_gives_what_the_whole_gives() {
        for bytes in [
            "aé日🙂".as_bytes(),
            b"\xF0\x9F\x99a\xE2\x82",
            b"\xFF\xC3\x28\x80\x80",
            b"\xED\xA0\x80\xF4\x90\x80\x80",
        ] {
            let (mut text, mut pending) = (String::new(), Vec::new());
            for &b in bytes {
                pending.push(b);
                let done = push_complete(&pending, &mut text);
                pending.drain(..done);
                assert!(pending.len() <= 3);
            }
            if !pending.is_empty() {
                text.push(char::REPLACEMENT_CHARACTER);
            }
            assert_eq!(text, String::from_utf8_lossy(bytes));
        }
    }
}
