//! The sequences of an engine: begun, copied, shortened and ended.

use super::Engine;
use crate::adapter::check_set;
use crate::error::Error;
use crate::images::Images;
use crate::sequence::SeqId;
use graph::Adapted;

impl Engine {
    /// Begins an empty sequence, with the adapters that [`LoadOptions`](crate::LoadOptions) say.
    ///
    /// # Errors
    /// When all sequences are in use.
    pub fn new_sequence(&mut self) -> Result<SeqId, Error> {
        self.kv.create(&self.usual)
    }

    /// Begins an empty sequence with these adapters.
    ///
    /// # Errors
    /// When all sequences are in use, or there is no such adapter.
    pub fn new_sequence_with(&mut self, adapters: &[Adapted]) -> Result<SeqId, Error> {
        check_set(adapters, self.adapters.len())?;
        self.kv.create(adapters)
    }

    /// Begins a sequence that shares pages with others of its kind: it holds the longest beginning of
    /// `tokens` that the prefix cache has, but not the last token, and in the end its own pages stay
    /// there until room is wanted. Also how many tokens it holds; go on from there.
    ///
    /// # Errors
    /// When all sequences are in use.
    pub fn begin(&mut self, tokens: &[u32]) -> Result<(SeqId, usize), Error> {
        let begun = self.kv.begin(tokens, &self.usual)?;
        self.begin_from_disk(begun, tokens)
    }

    /// The same with these adapters. Pages are shared among sequences with the same ones, and the same factors.
    ///
    /// # Errors
    /// When all sequences are in use, or there is no such adapter.
    pub fn begin_with(
        &mut self,
        tokens: &[u32],
        adapters: &[Adapted],
    ) -> Result<(SeqId, usize), Error> {
        check_set(adapters, self.adapters.len())?;
        let begun = self.kv.begin(tokens, adapters)?;
        self.begin_from_disk(begun, tokens)
    }

    /// The same of a prompt with images: what a sequence holds does not end within rows that see each other.
    ///
    /// # Errors
    /// When all sequences are in use.
    pub(crate) fn begin_among(
        &mut self,
        tokens: &[u32],
        images: &Images,
        adapters: &[Adapted],
    ) -> Result<(SeqId, usize), Error> {
        let (sequence, mut len) = self.begin_with(tokens, adapters)?;
        // Less may be kept than what was asked for, and end within another image.
        while images.resume(len) < len {
            len = self.truncate(sequence, images.resume(len))?;
        }
        Ok((sequence, len))
    }

    /// Copies a sequence. Both share their pages until they differ.
    ///
    /// # Errors
    /// When it does not exist or all sequences are in use.
    pub fn fork(&mut self, sequence: SeqId) -> Result<SeqId, Error> {
        self.kv.fork(sequence)
    }

    /// Whether there are pages for `tokens` more tokens of a sequence, and `spare` pages besides.
    ///
    /// # Errors
    /// When it does not exist.
    pub fn has_room(&self, sequence: SeqId, tokens: usize, spare: usize) -> Result<bool, Error> {
        self.kv.has_room(sequence, tokens, spare)
    }

    /// Takes pages for `tokens` more tokens of a sequence, as [`step`](Engine::step) would.
    ///
    /// # Errors
    /// When it does not exist, or is or would be too long, or no page is free. Nothing changes then.
    pub fn reserve(&mut self, sequence: SeqId, tokens: usize) -> Result<(), Error> {
        self.kv.reserve(sequence, tokens)
    }

    /// Ends a sequence and frees its pages.
    ///
    /// # Errors
    /// When it does not exist.
    pub fn free(&mut self, sequence: SeqId) -> Result<(), Error> {
        self.kv.remove(sequence)
    }

    /// Tokens of a sequence that are in the cache.
    ///
    /// # Errors
    /// When it does not exist.
    pub fn len(&self, sequence: SeqId) -> Result<usize, Error> {
        self.kv.len(sequence)
    }

    /// Forgets all tokens of a sequence after the first `len`, and returns how many are kept: `len`, or
    /// as many as there are; or fewer, of a model with states of fixed size, which can be taken back to
    /// snapshots only; or none, when the next token would need keys that a sliding window has left behind,
    /// which is never so within 64 tokens of the longest that the sequence was. Go on from what is kept.
    ///
    /// # Errors
    /// When it does not exist.
    pub fn truncate(&mut self, sequence: SeqId, len: usize) -> Result<usize, Error> {
        self.kv.truncate(sequence, len)
    }

    /// Makes sure that a sequence can be truncated to what it is after `tokens` more tokens, which the next step has
    /// to compute, until the next checkpoint; whether there was room for that. Free of charge for models without
    /// states of fixed size.
    ///
    /// # Errors
    /// When it does not exist.
    pub(crate) fn checkpoint_within(
        &mut self,
        sequence: SeqId,
        tokens: usize,
    ) -> Result<bool, Error> {
        self.kv.checkpoint_within(sequence, tokens)
    }

    /// Makes sure that a sequence can be truncated to what it is now, whatever its layers keep, until the
    /// next checkpoint. Free of charge for models without states of fixed size.
    ///
    /// # Errors
    /// When it does not exist.
    pub fn checkpoint(&mut self, sequence: SeqId) -> Result<(), Error> {
        self.kv.checkpoint(sequence)
    }

    /// Takes pages for a sequence's first `tokens` tokens, beyond those that it has.
    ///
    /// # Errors
    /// As [`reserve`](Engine::reserve).
    pub(crate) fn reserve_up_to(&mut self, sequence: SeqId, tokens: usize) -> Result<(), Error> {
        let more = tokens.saturating_sub(self.len(sequence)?);
        self.reserve(sequence, more)
    }

    /// The first token of a sequence from which on no other sequence holds its pages.
    ///
    /// # Errors
    /// When it does not exist.
    pub(crate) fn own_from(&self, sequence: SeqId) -> Result<usize, Error> {
        self.kv.own_from(sequence)
    }
}
