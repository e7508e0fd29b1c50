//! Generation: one sequence, a prompt, then a token at a time.

use crate::engine::{BatchEntry, Engine};
use crate::error::Error;
use crate::images::{Encoder, ImagePart, Images};
use crate::kv::SeqId;
use crate::sampler::{Sampler, SamplerParams};
use crate::speculate::{Speculator, Taken};
use graph::Outputs;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Why a generation ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// The model produced one of the tokens that end an answer.
    EndToken(u32),
    /// As many tokens as were asked for.
    Limit,
    /// The context is full.
    Context,
    /// The caller's interrupt said so.
    Interrupted,
    /// Its deadline has passed.
    Deadline,
}

/// What was computed and how long it took.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub struct Timings {
    /// Tokens of the prompt that were computed.
    pub prompt_tokens: usize,
    /// Time for them.
    pub prompt: Duration,
    /// Tokens that were generated after the first, which comes with the prompt.
    pub tokens: usize,
    /// Time for them, sampling included.
    pub generation: Duration,
    /// Tokens that were guessed ahead.
    pub guessed: usize,
    /// Those of them that came true.
    pub right: usize,
}

/// An iterator over generated tokens; the first call computes the prompt.
///
/// Dropping it leaves the sequence as it is: prompt and answer are in the cache, except for the last
/// token, which has not been computed; with guesses there may be some that were not asked for any more.
pub struct Generation<'e> {
    pub(crate) engine: &'e mut Engine,
    sequence: SeqId,
    sampler: Sampler,
    end: Vec<u32>,
    left: usize,
    interrupt: Option<&'e dyn Fn() -> bool>,
    speculator: Option<&'e mut Speculator>,
    /// Those of the whole sequence, and what encodes them.
    images: Images,
    encoder: Option<&'e mut Encoder>,
    /// What is known of the sequence's tokens, the prompt and what was sampled; the first has this position.
    tokens: Vec<u32>,
    first: usize,
    /// Sampled, and not returned yet.
    ready: VecDeque<u32>,
    sampled: bool,
    stopped: Option<StopReason>,
    timings: Timings,
}

impl Engine {
    /// Generates after what `sequence` holds already and `prompt`.
    ///
    /// # Errors
    /// When the prompt is empty or does not fit into the context, or a sampler parameter is out of
    /// range. Nothing is computed before the first token is asked for.
    pub fn generate<'e>(
        &'e mut self,
        sequence: SeqId,
        prompt: &[u32],
        params: SamplerParams,
    ) -> Result<Generation<'e>, Error> {
        let mut sampler = Sampler::new(params)?;
        let first = self.len(sequence)?;
        let (tokens, context) = (first + prompt.len(), self.context());
        if !self.executor.graph().has_head() {
            return Err(Error::WritesNothing);
        }
        if prompt.is_empty() {
            return Err(Error::EmptyPrompt);
        }
        if tokens > context {
            return Err(Error::PromptTooLong { tokens, context });
        }
        sampler.observe_prompt(prompt);
        Ok(Generation {
            engine: self,
            sequence,
            sampler,
            end: Vec::new(),
            left: usize::MAX,
            interrupt: None,
            speculator: None,
            images: Images::default(),
            encoder: None,
            tokens: prompt.to_vec(),
            first,
            ready: VecDeque::new(),
            sampled: false,
            stopped: None,
            timings: Timings::default(),
        })
    }
}

impl<'e> Generation<'e> {
    /// Ends after `tokens` tokens.
    pub fn limit(&mut self, tokens: usize) -> &mut Self {
        self.left = tokens;
        self
    }

    /// Ends when one of these is sampled; it is not returned.
    pub fn end_tokens(&mut self, tokens: impl IntoIterator<Item = u32>) -> &mut Self {
        self.end.extend(tokens);
        self
    }

    /// Counts `tokens`, the last that the sequence holds already, among those of the prompt.
    pub fn after(&mut self, tokens: &[u32]) -> &mut Self {
        self.sampler.observe_prompt(tokens);
        self.tokens.splice(0..0, tokens.iter().copied());
        self.first = self.first.saturating_sub(tokens.len());
        self
    }

    /// States the images of the sequence, by positions from its beginning on, which `encoder` is to encode as far as
    /// they are not computed. Nothing is guessed then.
    ///
    /// # Errors
    /// When they do not fit into the sequence.
    pub fn images(
        &mut self,
        images: &[ImagePart],
        encoder: &'e mut Encoder,
    ) -> Result<&mut Self, Error> {
        let tokens = self.first + self.tokens.len();
        self.images = Images::new(images.to_vec(), (tokens, self.engine.limits().tokens))?;
        self.encoder = Some(encoder);
        Ok(self)
    }

    /// Has `speculator` guess tokens ahead. The tokens are the same. Nothing is guessed of a sequence that holds
    /// tokens which are not [known](Generation::after).
    ///
    /// # Errors
    /// When a smaller model that guesses has failed.
    pub fn speculate(&mut self, speculator: &'e mut Speculator) -> Result<&mut Self, Error> {
        speculator.begin_alone()?;
        self.speculator = Some(speculator);
        Ok(self)
    }

    /// Ends when `interrupt` says so; it is asked before every step.
    pub fn interrupt(&mut self, interrupt: &'e dyn Fn() -> bool) -> &mut Self {
        self.interrupt = Some(interrupt);
        self
    }

    /// Why it ended; `None` while it goes on, and after an error.
    pub fn stopped(&self) -> Option<StopReason> {
        self.stopped
    }

    /// What was computed so far.
    pub fn timings(&self) -> Timings {
        self.timings
    }

    /// The next token, or why there is none.
    fn advance(&mut self) -> Result<Result<u32, StopReason>, Error> {
        if self.left == 0 {
            return Ok(Err(StopReason::Limit));
        }
        if self.ready.is_empty() {
            let stopped = if self.sampled { self.step()? } else { self.compute_prompt()? };
            if let Some(why) = stopped {
                return Ok(Err(why));
            }
        }
        let Some(token) = self.ready.pop_front() else { return Ok(Err(StopReason::Interrupted)) };
        if self.end.contains(&token) {
            return Ok(Err(StopReason::EndToken(token)));
        }
        self.left -= 1;
        Ok(Ok(token))
    }

    fn interrupted(&self) -> bool {
        self.interrupt.is_some_and(|asked| asked())
    }

    /// Known tokens that are in the cache.
    fn computed(&self) -> Result<usize, Error> {
        Ok(self.engine.len(self.sequence)? - self.first)
    }

    /// Takes the prompt in chunks and samples the token after it; why not, if it does not.
    fn compute_prompt(&mut self) -> Result<Option<StopReason>, Error> {
        let start = Instant::now();
        let most = self.engine.limits().tokens;
        while !self.sampled {
            if self.interrupted() {
                return Ok(Some(StopReason::Interrupted));
            }
            let computed = self.computed()?;
            let rest = &self.tokens[computed..];
            let from = self.first + computed;
            if let (Some(tile), Some(encoder)) = (self.images.missing(from), &mut self.encoder) {
                let tile = tile.clone();
                // Those before it need not wait for it, but nobody is there who would be served meanwhile.
                self.images.fill(tile.id(), &encoder.encode(&tile)?);
                continue;
            }
            let tokens = &rest[..self.images.cut(from, rest.len().min(most))];
            let whole = tokens.len() == rest.len();
            let outputs = if whole { Outputs::Last } else { Outputs::None };
            let count = tokens.len();
            let entry = BatchEntry { sequence: self.sequence, tokens, outputs };
            let logits = self.engine.step_with(&[entry], &[&self.images.insets()])?;
            let sampled = whole.then(|| self.sampler.sample(logits.row(0)));
            self.timings.prompt_tokens += count;
            self.timings.prompt = start.elapsed();
            if let Some(speculator) = self.speculator() {
                speculator.alone().took(Taken { row: 0, position: computed, count });
            }
            match sampled {
                None => self.guess(0)?,
                Some(token) => {
                    self.tokens.push(token);
                    self.ready.push_back(token);
                    self.sampled = true;
                }
            }
        }
        Ok(None)
    }

    /// What guesses, if all tokens are known.
    fn speculator(&mut self) -> Option<&mut Speculator> {
        self.speculator.as_deref_mut().filter(|_| self.first == 0 && self.images.is_empty())
    }

    /// Has at most `room` tokens guessed behind those that the last step took.
    fn guess(&mut self, room: usize) -> Result<(), Error> {
        // Of the fields one by one, which a method would borrow together.
        let known = self.first == 0 && self.images.is_empty();
        match self.speculator.as_deref_mut().filter(|_| known) {
            None => Ok(()),
            Some(speculator) => {
                let text = (self.tokens.as_slice(), &self.sampler);
                speculator.guess_alone(self.engine, text, self.sequence, room)
            }
        }
    }

    /// Computes what was sampled, with a guess if there is one, and samples on.
    fn step(&mut self) -> Result<Option<StopReason>, Error> {
        let (computed, context) = (self.computed()?, self.engine.context());
        if self.first + self.tokens.len() > context {
            return Ok(Some(StopReason::Context));
        }
        if self.interrupted() {
            return Ok(Some(StopReason::Interrupted));
        }
        let start = Instant::now();
        let known = self.tokens.len() - computed;
        let room = self.left.min(context + 1 - self.first - self.tokens.len());
        self.guess(room.saturating_sub(1))?;
        let guessing = start.elapsed();
        let limits = self.engine.limits();
        let most = limits.outputs.min(limits.tokens + 1 - known) - 1;
        let mut batch = self.tokens[computed..].to_vec();
        if let Some(speculator) = self.speculator() {
            let ahead = speculator.alone();
            ahead.shorten(most);
            batch.extend_from_slice(ahead.guess());
        }
        if batch.len() > known && !self.engine.checkpoint_within(self.sequence, known)? {
            batch.truncate(known);
        }
        let guessed = batch.len() - known;
        let outputs = Outputs::Tail(1 + guessed);
        let entry = BatchEntry { sequence: self.sequence, tokens: &batch, outputs };
        let logits = self.engine.step_with(&[entry], &[&self.images.insets()])?;
        let before = self.tokens.len();
        for row in 0..=guessed {
            let token = self.sampler.sample(logits.row(row));
            self.tokens.push(token);
            self.ready.push_back(token);
            if self.end.contains(&token) || batch.get(known + row) != Some(&token) {
                break;
            }
        }
        let sampled = self.tokens.len() - before;
        // The last one was not guessed, or it ends the text.
        let right = sampled - 1;
        if right < guessed {
            self.engine.truncate(self.sequence, self.first + computed + known + right)?;
        }
        self.timings.guessed += guessed;
        self.timings.right += right;
        self.timings.tokens += sampled;
        if let Some(speculator) = self.speculator() {
            let taken = Taken { row: 0, position: computed, count: batch.len() };
            speculator.alone().shorten(guessed);
            speculator.alone().took(taken);
            if guessed > 0 {
                speculator.alone().learn(right);
            }
            speculator.observe(1, guessed, sampled, start.elapsed() - guessing);
        }
        self.timings.generation += start.elapsed();
        Ok(None)
    }
}

impl Iterator for Generation<'_> {
    type Item = Result<u32, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.stopped.is_some() {
            return None;
        }
        match self.advance() {
            Ok(Ok(token)) => Some(Ok(token)),
            Ok(Err(why)) => {
                self.stopped = Some(why);
                None
            }
            Err(e) => Some(Err(e)),
        }
    }
}
