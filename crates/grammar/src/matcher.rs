//! A grammar going along with one sequence.

use std::fmt;
use std::sync::Arc;

use llguidance::api::StopReason;
use tokenizer::Tokenizer;

use crate::Error;
use crate::spec::brief;

/// Where a sequence stands in its grammar. A clone goes its own way and shares nothing that either
/// would wait for.
pub struct Matcher {
    inner: llguidance::Matcher,
    tokenizer: Arc<Tokenizer>,
    /// The end-of-generation token that came.
    closed: bool,
}

impl Matcher {
    pub(crate) fn new(inner: llguidance::Matcher, tokenizer: Arc<Tokenizer>) -> Self {
        Self { inner, tokenizer, closed: false }
    }

    /// Clears in `mask` the bits of all tokens that may not come next: bit `t % 32` of word `t / 32`
    /// is token `t`. Tokens that end a generation stay exactly when the text so far is complete. Bits
    /// behind the vocabulary are cleared.
    ///
    /// An error means that the sequence cannot go on: [`Error::TooCostly`], [`Error::Stuck`].
    pub fn allow(&mut self, mask: &mut [u32]) -> Result<(), Error> {
        let tokens = self.tokenizer.vocab_size();
        if mask.len() < tokens.div_ceil(32) {
            return Err(Error::MaskSize { words: mask.len(), tokens });
        }
        if self.ended() {
            let eog = self.tokenizer.eog_ids();
            for (word, bits) in (0u32..).zip(mask.iter_mut()) {
                let here = eog.iter().filter(|&&t| t / 32 == word);
                *bits &= here.fold(0, |bits, t| bits | 1 << (t % 32));
            }
            return Ok(());
        }
        let allowed = self.inner.compute_mask().map_err(|error| self.fault(&error.to_string()))?;
        let allowed = allowed.as_slice();
        for (i, bits) in mask.iter_mut().enumerate() {
            *bits &= allowed.get(i).copied().unwrap_or(0);
        }
        if let (Some(last), rest @ 1..) = (mask.get_mut(tokens / 32), tokens % 32) {
            *last &= (1 << rest) - 1;
        }
        self.keep_ends(mask)
    }

    /// A Lark grammar can name tokens that end a generation, if only as any token. They stay in the mask
    /// where they complete the text, because nobody will ask for more after them.
    fn keep_ends(&mut self, mask: &mut [u32]) -> Result<(), Error> {
        let tokenizer = self.tokenizer.clone();
        let set = |mask: &[u32], t: u32| mask[t as usize / 32] >> (t % 32) & 1 == 1;
        let ends: Vec<u32> =
            tokenizer.eog_ids().iter().copied().filter(|&t| set(mask, t)).collect();
        if ends.is_empty() || self.can_end() {
            return Ok(());
        }
        for end in ends {
            if !self.completed_by(end) {
                mask[end as usize / 32] &= !(1 << (end % 32));
            }
        }
        if mask.iter().all(|&bits| bits == 0) { Err(Error::Stuck) } else { Ok(()) }
    }

    /// Whether the grammar names this token, and ends with it.
    fn completed_by(&self, token: u32) -> bool {
        let mut after = self.inner.deep_clone();
        after.consume_token(token).is_ok() && after.is_accepting().unwrap_or(false)
    }

    /// Takes the token that came. One that [`allow`](Self::allow) would have cleared is an error, and
    /// leaves the matcher as it was.
    pub fn accept(&mut self, token: u32) -> Result<(), Error> {
        let refused = Error::Refused { token };
        if token as usize >= self.tokenizer.vocab_size() || self.closed {
            return Err(refused);
        }
        if self.tokenizer.is_eog(token) {
            if !self.can_end() && !self.completed_by(token) {
                return Err(refused);
            }
            self.closed = true;
            return Ok(());
        }
        // Tokens that are not in the trie have no bytes there, and would fit anywhere.
        let left_out = |env: llguidance::toktrie::TokEnv| env.tok_trie().token(token).is_empty();
        if self.ended() || self.inner.tok_env().is_ok_and(left_out) {
            return Err(refused);
        }
        // Asked first, because a token that does not fit would end the matcher for good.
        let fits = self.inner.validate_tokens(&[token]);
        match fits.map_err(|error| self.fault(&error.to_string()))? {
            0 => Err(refused),
            _ => self.inner.consume_token(token).map_err(|error| self.fault(&error.to_string())),
        }
    }

    /// Whether the text so far is complete, so that the generation may end here.
    pub fn can_end(&mut self) -> bool {
        self.ended() || self.inner.is_accepting().unwrap_or(false)
    }

    /// Whether the text is complete and nothing can follow it: only end-of-generation tokens are
    /// allowed from here, or one has been accepted. A generation can stop without waiting for it.
    pub fn ended(&self) -> bool {
        self.closed
            || matches!(
                self.inner.stop_reason(),
                StopReason::NoExtension | StopReason::EndOfSentence
            )
    }

    fn fault(&self, message: &str) -> Error {
        match self.inner.stop_reason() {
            StopReason::NoExtensionBias => Error::Stuck,
            _ if message.starts_with("NoExtensionBias") => Error::Stuck,
            _ => Error::TooCostly(brief(message)),
        }
    }
}

impl Clone for Matcher {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.deep_clone(),
            tokenizer: self.tokenizer.clone(),
            closed: self.closed,
        }
    }
}

impl fmt::Debug for Matcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Matcher").field("ended", &self.ended()).finish_non_exhaustive()
    }
}
