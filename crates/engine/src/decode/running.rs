//! A request that is being served: where it stands. What is sampled of it: [`sampling`].

pub(super) mod sampling;

use super::asked::{Answer, Asked, Event, Left};
use super::guided::Bell;
use super::pooled::{Gives, Pooled};
use super::request::{RequestSummary, Rows, StopReason, Timings};
use super::standing::{Standing, Waits};
use crate::engine::BatchEntry;
use crate::error::Error;
use crate::images::{Encoded, Images};
use crate::sampler::Logprobs;
use crate::sequence::SeqId;
use crate::speculate::{Ahead, ROWS, Text};
use graph::{Adapted, Outputs};
use models::Projection;
use std::cmp::Reverse;
use std::sync::Arc;
use std::time::{Duration, Instant};
use vision::Tile;

/// An answer that is being given, or several whose prompt is not computed yet.
pub(crate) struct Running {
    pub answers: Vec<Answer>, // at least one
    /// What holds its pages; `None` before it is begun and after it gave them up.
    pub sequence: Option<SeqId>,
    /// What is guessed ahead of it.
    pub ahead: Ahead,
    /// Those of its prompt.
    pub images: Images,
    /// Prompt and answer.
    tokens: Vec<u32>,
    prompt: usize,
    /// What is to be computed of them, and the guess, which the next step takes together; empty if nothing
    /// is guessed.
    guessed: Vec<u32>,
    /// Tokens in the cache.
    computed: usize,
    /// Tokens behind them in steps that are under way.
    sent: usize,
    /// Tokens of the prompt that were there when it was begun first.
    cached: Option<usize>,
    prompt_logprobs: Option<(usize, Vec<Logprobs>)>,
    /// What is still to be sampled from: the mask for it is not there.
    held: Option<Held>,
    /// Tokens of the guess that have come true so far.
    right: usize,
    /// What was computed, encoded and sampled of it, counted.
    progress: u64,
    adapters: Vec<Adapted>,
    /// Of its prompt, if that is all that is wanted.
    pooled: Option<Pooled>,
    deadline: Option<Instant>,
    priority: i8,
    id: u64,
    ended: Option<Ended>,
    queued: Duration,
    began: Instant,
    timings: Timings,
}

/// Copies of rows of logits, which the next step overwrites.
struct Held {
    rows: Vec<f32>,
    width: usize,
}

enum Ended {
    Stopped(StopReason),
    Failed(Box<dyn Fn() -> Error + Send>),
}

impl Running {
    /// The request of this number: those with smaller ones came earlier.
    pub(crate) fn new(id: u64, asked: Asked) -> Running {
        let now = Instant::now();
        let nothing = asked.gives.is_none() && asked.answers.iter().all(|a| a.left == 0);
        Running {
            answers: asked.answers,
            sequence: None,
            ahead: Ahead::default(),
            images: asked.images,
            guessed: Vec::new(),
            prompt: asked.prompt.len(),
            tokens: asked.prompt,
            computed: 0,
            sent: 0,
            cached: None,
            prompt_logprobs: asked.prompt_logprobs.map(|top| (top, Vec::new())),
            held: None,
            right: 0,
            progress: 0,
            adapters: asked.adapters,
            pooled: asked.gives.map(Pooled::new),
            deadline: asked.deadline,
            priority: asked.priority,
            id,
            ended: nothing.then_some(Ended::Stopped(StopReason::Limit)),
            queued: now - asked.submitted,
            began: now,
            timings: Timings::default(),
        }
    }

    /// Starts the constraints of its answers, with masks of `words` words.
    pub(crate) fn guide(&mut self, words: usize, bell: &Bell) {
        if !self.is_ended() && !self.wants_no_answer() {
            self.answers.iter_mut().for_each(|answer| answer.guide(words, bell));
        }
    }

    /// Its number in the queue.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Where it stands, for a watchdog.
    pub(crate) fn standing(&self) -> Standing {
        let waits = match self.sequence {
            None => Waits::Pages(self.tokens.len()),
            Some(_) if self.is_held() => Waits::Mask,
            Some(_) if self.waits_for_image().is_some() => Waits::Image,
            Some(_) => Waits::Step,
        };
        Standing { id: self.id, progress: self.progress, waits }
    }

    /// Who ranks higher comes first and keeps its pages longest: a higher priority, then whoever was
    /// submitted earlier.
    pub(crate) fn rank(&self) -> (Reverse<i8>, u64) {
        (Reverse(self.priority), self.id)
    }

    pub(crate) fn priority(&self) -> i8 {
        self.priority
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.ended.is_some()
    }

    /// Tokens that are to be computed before the next one can be sampled.
    pub(crate) fn pending(&self) -> usize {
        let done = self.computed + self.sent;
        // A guess that is under way is no part of them.
        if self.is_ended() { 0 } else { self.tokens.len().saturating_sub(done) }
    }

    /// Whether its prompt was computed.
    pub(crate) fn has_answer(&self) -> bool {
        self.tokens.len() > self.prompt
    }

    /// Whether a step takes its last token, which somebody waits for. There may be some before that were computed
    /// once, with a guess that was wrong.
    pub(crate) fn is_answering(&self) -> bool {
        let few = (1..=ROWS).contains(&self.pending());
        self.sequence.is_some() && few && self.has_answer()
    }

    /// Prompt and answer, as far as they are known.
    pub(crate) fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// The adapters of its sequence.
    pub(crate) fn adapters(&self) -> &[Adapted] {
        &self.adapters
    }

    /// Whether it wants something of every token of its prompt.
    pub(crate) fn wants_whole_prompt(&self) -> bool {
        self.prompt_logprobs.as_ref().is_some_and(|(_, found)| found.len() + 1 < self.prompt)
            || self.pooled.as_ref().is_some_and(|pooled| pooled.gives.wants_all())
    }

    /// Whether it wants something of its prompt, and no answer.
    pub(crate) fn wants_no_answer(&self) -> bool {
        self.pooled.is_some()
    }

    /// Whether it wants hidden states, and no logits.
    pub(crate) fn wants_hidden(&self) -> bool {
        let logits = Gives::Rows(Rows::Logits);
        self.pooled.as_ref().is_some_and(|pooled| pooled.gives != logits)
    }

    /// What each answer has left; the first has the prompt.
    pub(crate) fn lefts(&self) -> impl Iterator<Item = Left> {
        Left::of(self.prompt.saturating_sub(self.computed), &self.answers)
    }

    /// Drops answers that nobody waits for any more; true if none is left.
    pub(crate) fn is_cancelled(&mut self) -> bool {
        self.answers.retain(|answer| !answer.is_cancelled());
        self.answers.is_empty()
    }

    /// Ends it if it is late.
    pub(crate) fn check_deadline(&mut self, now: Instant) {
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            self.end(StopReason::Deadline);
        }
    }

    /// Ends it, unless it has ended.
    pub(crate) fn end(&mut self, why: StopReason) {
        self.ended.get_or_insert(Ended::Stopped(why));
    }

    /// It holds pages now, `len` tokens of it are in them. If it never did before, how many tokens
    /// its prompt has and how many of those that were.
    pub(crate) fn begin(&mut self, sequence: SeqId, len: usize) -> Option<(usize, usize)> {
        self.sequence = Some(sequence);
        (self.computed, self.sent) = (len, 0);
        let first = self.cached.is_none();
        let cached = *self.cached.get_or_insert(len);
        if first {
            self.answers.iter().for_each(|answer| answer.tell(Event::Begun { cached }));
        }
        first.then_some((self.prompt, cached))
    }

    /// It has given up its pages.
    pub(crate) fn give_up(&mut self) {
        self.sequence = None;
        (self.computed, self.sent) = (0, 0);
        (self.held, self.right) = (None, 0);
        self.ahead.give_up();
    }

    /// The text so far, for those who guess; `None` while it has no pages. `context`: tokens that there can be.
    pub(crate) fn text(&mut self, context: usize) -> Option<Text<'_>> {
        let answering = self.is_answering();
        // What stands for images is no text.
        let is_text = self.pooled.is_none() && self.images.is_empty();
        let known = self.sent == 0 && self.held.is_none();
        let sequence = self.sequence.filter(|_| is_text && known)?;
        let answer = &self.answers[0];
        // The step gives a token more than was guessed.
        let room = answer.left.min(context + 1 - self.tokens.len()).saturating_sub(1);
        Some(Text {
            tokens: &self.tokens,
            computed: self.computed,
            sequence,
            sampler: &answer.sampler,
            room: if answering { room } else { 0 },
            ahead: &mut self.ahead,
        })
    }

    /// A tile that is to be encoded before more of its prompt can be computed.
    pub(crate) fn waits_for_image(&self) -> Option<Arc<Tile>> {
        let waits = self.sequence.is_some() && !self.is_ended();
        self.images.missing(self.computed).filter(|_| waits).cloned()
    }

    /// Takes what the encoder gave of a tile.
    pub(crate) fn take_image(&mut self, id: [u8; 16], rows: &Encoded) {
        self.images.fill(id, rows);
        self.progress += 1;
    }

    /// It cannot go on without an image.
    pub(crate) fn lacks_image(&mut self, error: &Error) {
        let why = error.to_string();
        self.fail_with(move || Error::Image(why.clone()));
    }

    /// Ends it with an error, unless it has ended.
    pub(crate) fn fail_with(&mut self, error: impl Fn() -> Error + Send + 'static) {
        self.ended.get_or_insert_with(|| Ended::Failed(Box::new(error)));
    }

    /// Tokens of which a step takes all or none; none while an image is not encoded. `whole`: texts are not cut.
    pub(crate) fn piece(&self, whole: bool) -> usize {
        if whole { self.pending() } else { self.images.piece(self.computed + self.sent) }
    }

    /// Tokens that it has in a step with room for `most`, and for as many rows as `outputs`; none if these are no whole
    /// piece.
    pub(crate) fn share(&self, most: usize, outputs: usize, whole: bool) -> usize {
        let most = if self.wants_whole_prompt() { most.min(outputs) } else { most };
        let tokens = self.pending().min(most);
        match whole && tokens < self.pending() {
            true => 0,
            false => self.images.cut(self.computed + self.sent, tokens),
        }
    }

    /// Takes the first `n` tokens of its guess into the next step.
    pub(crate) fn take_guess(&mut self, n: usize) {
        self.ahead.shorten(n);
        self.guessed.clear();
        if n > 0 {
            self.guessed.extend_from_slice(&self.tokens[self.computed..]);
            self.guessed.extend_from_slice(self.ahead.guess());
        }
    }

    /// Its next `n` tokens for a step, and how many rows of logits or hidden states they give.
    pub(crate) fn entry(&self, sequence: SeqId, n: usize) -> (BatchEntry<'_>, usize) {
        let guess = self.ahead.guess().len();
        if guess > 0 {
            let (tokens, outputs) = (self.guessed.as_slice(), Outputs::Tail(1 + guess));
            return (BatchEntry { sequence, tokens, outputs }, 1 + guess);
        }
        let (all, last) = match self.wants_hidden() {
            true => (Outputs::AllHidden, Outputs::LastHidden),
            false => (Outputs::All, Outputs::Last),
        };
        let (outputs, rows) = match (self.wants_whole_prompt(), n == self.pending()) {
            (true, _) => (all, n),
            (false, true) => (last, 1),
            (false, false) => (Outputs::None, 0),
        };
        let tokens = &self.tokens[self.computed + self.sent..][..n];
        (BatchEntry { sequence, tokens, outputs }, rows)
    }

    /// Its next `n` tokens, those of its guess included, are in a step that is under way.
    pub(crate) fn sent(&mut self, n: usize) {
        self.sent += n;
    }

    /// That step has come back.
    pub(crate) fn came_back(&mut self, n: usize) {
        self.sent = self.sent.saturating_sub(n);
    }

    /// The step with its next `n` tokens is done: whether the last of them was. How many of the prompt's there
    /// were is counted.
    pub(crate) fn computed(&mut self, n: usize) -> bool {
        if !self.has_answer() {
            self.timings.prompt_tokens += n;
        }
        self.progress += n as u64;
        self.computed += n;
        self.computed == self.tokens.len()
    }

    /// A step, with guessing and sampling, took `time`; `answered`: it had an answer before.
    pub(crate) fn took(&mut self, answered: bool, time: Duration) {
        if answered {
            self.timings.generation += time;
        } else {
            self.timings.prompt = self.began.elapsed();
        }
    }

    /// What was computed so far, and how long it took.
    pub(crate) fn timings(&self) -> Timings {
        self.timings
    }

    /// The same for one that wants no answer: `rows` of hidden states or logits. With the last it has ended.
    pub(crate) fn pool<'l>(
        &mut self,
        n: usize,
        rows: impl Iterator<Item = &'l [f32]>,
        projection: Option<&Projection>,
    ) {
        let before = self.computed;
        let whole = self.computed(n);
        let Some(pooled) = &mut self.pooled else { return };
        pooled.add(before, rows);
        if whole {
            let vector = pooled.take();
            let vector = match (projection, pooled.gives) {
                (Some(projection), Gives::Vector(_)) => projection.apply(&vector),
                _ => vector,
            };
            self.answers.iter().for_each(|answer| answer.tell(Event::Pooled(vector.clone())));
            self.ended = Some(Ended::Stopped(StopReason::Limit));
        }
    }

    /// Tokens that were computed so far.
    pub(crate) fn len(&self) -> usize {
        self.computed
    }

    /// Of the tokens that were computed only so many are in the cache any more.
    pub(crate) fn keep(&mut self, computed: usize) {
        self.computed = computed;
    }

    /// Tells the callers how it ended, if it has.
    pub(crate) fn finish(self, replica: usize) {
        let tokens = self.tokens.len() - self.prompt;
        for answer in &self.answers {
            answer.tell(match &self.ended {
                Some(Ended::Stopped(stopped)) => Event::Done(RequestSummary {
                    stopped: *stopped,
                    replica,
                    tokens,
                    cached: self.cached.unwrap_or(0),
                    queued: self.queued,
                    timings: self.timings,
                }),
                Some(Ended::Failed(error)) => Event::Failed(error()),
                None => Event::Failed(Error::ReplicasClosed),
            });
        }
    }

    /// Tells the callers that it failed.
    pub(crate) fn fail(self, error: impl Fn() -> Error) {
        self.answers.iter().for_each(|answer| answer.tell(Event::Failed(error())));
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::asked;
    use super::*;
    use crate::kv::{KvCache, Sizes};
    use std::iter::once;

    #[test]
    fn who_is_begun_anew_has_no_guess_from_before() {
        let sizes = Sizes { sequences: 1, context: 64, interval: 1024 };
        let mut kv = KvCache::new(sizes, [(None, 2)]);
        let sequence = kv.create(&[]).unwrap();
        let mut request = Running::new(1, asked(3, 5));
        assert_eq!(request.begin(sequence, 1), Some((3, 1)));
        assert!(request.computed(2));
        let mut logits = vec![0.0; 32];
        logits[9] = 1.0;
        let sampled = request.sample(once(&*logits), None);
        assert!(sampled.tokens == 1 && request.is_answering());
        request.ahead.push(7);
        request.ahead.push(8);
        request.take_guess(1);
        let (entry, rows) = request.entry(sequence, 2);
        assert_eq!((entry.tokens, entry.outputs, rows), (&[9, 7][..], Outputs::Tail(2), 2));

        request.give_up();
        kv.remove(sequence).unwrap();
        let again = kv.create(&[]).unwrap();
        assert_ne!(again, sequence, "what a step was to have for the old one is told apart");
        assert_eq!(request.begin(again, 2), None);
        let (entry, rows) = request.entry(again, 2);
        assert_eq!((entry.tokens, entry.outputs, rows), (&[0, 9][..], Outputs::Last, 1));
    }
}
