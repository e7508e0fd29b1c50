//! Requests that are answered, a step at a time.
//!
//! What a step has of each request: [`deal`]. What is made of its rows: [`results`]. What is done when there is nothing
//! to compute, although requests wait: [`stuck`].

mod deal;
#[cfg(test)]
mod mixes;
mod results;
mod stuck;

use super::asked::Asked;
use super::counters::Counters;
use super::guided::Bell;
use super::pace::Pace;
use super::running::Running;
use crate::encoder::Encoder;
use crate::engine::hosts::SentStep;
use crate::engine::{BatchEntry, Engine};
use crate::error::Error;
use crate::sequence::SeqId;
use crate::speculate::Speculator;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The part of a step's time for which masks are waited for after it, together.
const MASKS: u32 = 4;

/// What works for an engine beside it.
#[derive(Default)]
pub struct Helpers<'a> {
    /// What guesses tokens ahead; the answer is the same.
    pub speculator: Option<&'a mut Speculator>,
    /// What encodes images.
    pub encoder: Option<&'a mut Encoder>,
}

impl Helpers<'_> {
    /// Has who guesses forget a request, and frees its pages.
    fn release(&mut self, engine: &mut Engine, request: &mut Running) -> Result<(), Error> {
        if let Some(speculator) = &mut self.speculator {
            speculator.forget(&mut request.ahead)?;
        }
        request.sequence.take().map_or(Ok(()), |sequence| engine.free(sequence))
    }
}

/// Requests that are answered.
pub(crate) struct Batch {
    pub running: Vec<Running>, // by rank
    /// How much of prompts a step takes; as much as it can have where nobody waits for it.
    pace: Option<Pace>,
    prefix_cache: bool,
    /// Words of a mask of tokens.
    words: usize,
    /// Rings when a constraint has made one.
    bell: Bell,
    /// Whether the last step left answers out, for a piece that did not fit together with them.
    left_out: bool,
    /// A request whose piece did not fit together with other prompts: the next step begins with it.
    owed: Option<u64>,
    /// State of steps that had nothing to compute.
    stuck: Stuck,
    /// When the last step ended.
    computed: Option<Instant>,
    /// What was done since somebody took it.
    pub done: Counters,
    /// Steps that other hosts take now, and when the last one came back.
    flights: VecDeque<Flight>,
    came_back: Option<Instant>,
}

/// State of steps that had nothing to compute.
#[derive(Debug, Default)]
struct Stuck {
    /// Waits in a row after which no mask had come.
    waits: u32,
    /// When a fault was logged last.
    told: Option<Instant>,
}

/// A step that is under way.
struct Flight {
    shares: Vec<Share>,
    rows: Vec<usize>,
    step: SentStep,
    begin: Instant,
    /// Tokens of running answers.
    answering: usize,
}

/// A computed step, before its results are sampled.
struct Computed<'a> {
    shares: &'a [Share],
    /// Rows of logits or hidden states of each share.
    rows: &'a [usize],
    /// Tokens of running answers.
    answering: usize,
    /// Start of the step, before its tokens were dealt.
    begin: Instant,
    /// Start of its computation.
    start: Instant,
}

/// What a request has in a step.
#[derive(Clone, Copy)]
struct Share {
    request: usize,
    sequence: SeqId,
    tokens: usize,
    /// Whether it had an answer before.
    answered: bool,
    /// Whether it wants hidden states.
    hidden: bool,
}

impl Batch {
    /// A batch without requests, for a model of `vocab` tokens; `prefix_cache`: whether keys and values of other prompts
    /// are used.
    pub(crate) fn new(pace: Option<Pace>, prefix_cache: bool, vocab: usize) -> Batch {
        Batch {
            running: Vec::new(),
            pace,
            prefix_cache,
            words: vocab.div_ceil(32),
            bell: Bell::default(),
            left_out: false,
            owed: None,
            stuck: Stuck::default(),
            computed: None,
            done: Counters::default(),
            flights: VecDeque::new(),
            came_back: None,
        }
    }

    /// Takes requests with their numbers.
    pub(crate) fn add(&mut self, requests: impl IntoIterator<Item = (u64, Asked)>) {
        if self.running.is_empty() {
            // The pause before the first request is not time between steps.
            self.computed = None;
        }
        for (id, asked) in requests {
            let mut request = Running::new(id, asked);
            request.guide(self.words, &self.bell);
            self.running.push(request);
        }
        self.running.sort_by_key(Running::rank);
    }

    /// Drops what was cancelled and ends what is late.
    pub(crate) fn drop_cancelled(
        &mut self,
        engine: &mut Engine,
        helpers: &mut Helpers<'_>,
    ) -> Result<(), Error> {
        let now = Instant::now();
        self.running.iter_mut().for_each(|r| r.check_deadline(now));
        let mut cancelled = self.running.extract_if(.., Running::is_cancelled);
        cancelled.try_for_each(|mut request| helpers.release(engine, &mut request))
    }

    /// Encodes a tile of the request that ranks highest of those that wait for one; whether there was any.
    pub(crate) fn encode(&mut self, helpers: &mut Helpers<'_>) -> bool {
        let Some(encoder) = &mut helpers.encoder else { return false };
        let mut waiting = self.running.iter_mut().filter_map(|r| Some((r.waits_for_image()?, r)));
        let Some((tile, request)) = waiting.next() else { return false };
        match encoder.encode(&tile) {
            Ok(rows) => request.take_image(tile.id(), &rows),
            Err(error) => request.lacks_image(&error),
        }
        true
    }

    /// Computes a step and samples what can be. How long the step took, without guessing and sampling. Where other
    /// hosts have layers, so many steps are under way then as there are hosts.
    pub(crate) fn step(
        &mut self,
        engine: &mut Engine,
        helpers: &mut Helpers<'_>,
    ) -> Result<Duration, Error> {
        let rings = self.bell.rings();
        self.resume(engine)?;
        if engine.is_staged() {
            while self.flights.len() < engine.depth() && self.send(engine, helpers)? {}
            if self.flights.is_empty() {
                let begin = Instant::now();
                let shares = self.idle(engine, helpers, rings)?;
                self.send_shares(engine, shares, begin)?;
            }
            return self.land(engine, helpers);
        }
        let begin = Instant::now();
        let mut shares = self.deal(engine, helpers)?;
        if shares.is_empty() {
            shares = self.idle(engine, helpers, rings)?;
        }
        self.compute(engine, helpers, &shares, begin)
    }

    /// Takes out what has ended, whose pages are freed. Its callers are still to be told.
    pub(crate) fn take_ended(
        &mut self,
        engine: &mut Engine,
        helpers: &mut Helpers<'_>,
    ) -> Result<Vec<Running>, Error> {
        let mut ended: Vec<Running> = self.running.extract_if(.., |r| r.is_ended()).collect();
        ended.iter_mut().try_for_each(|request| helpers.release(engine, request))?;
        self.done.served += ended.iter().map(|r| r.answers.len() as u64).sum::<u64>();
        Ok(ended)
    }

    /// Excludes time that other models or an image encoder had the cores from the time between steps.
    pub(crate) fn exclude(&mut self, time: Duration) {
        self.computed = self.computed.map(|at| at + time);
    }

    /// Ends all, without a word.
    pub(crate) fn abandon(
        &mut self,
        engine: &mut Engine,
        helpers: &mut Helpers<'_>,
    ) -> Result<(), Error> {
        self.flights.clear();
        self.running.drain(..).try_for_each(|mut request| helpers.release(engine, &mut request))?;
        engine.finish_all()
    }

    /// Takes out all requests, whose pages are gone.
    pub(crate) fn take_all(&mut self) -> Vec<Running> {
        self.flights.clear();
        std::mem::take(&mut self.running)
    }

    fn compute(
        &mut self,
        engine: &mut Engine,
        helpers: &mut Helpers<'_>,
        shares: &[Share],
        begin: Instant,
    ) -> Result<Duration, Error> {
        let running = &self.running;
        let entry = |share: &Share| running[share.request].entry(share.sequence, share.tokens);
        let (batch, rows): (Vec<BatchEntry<'_>>, Vec<usize>) = shares.iter().map(entry).unzip();
        if batch.is_empty() {
            return Ok(Duration::ZERO);
        }
        let answering = self.answering(shares);
        let start = Instant::now();
        let insets: Vec<_> =
            shares.iter().map(|share| running[share.request].images.insets()).collect();
        let insets: Vec<&[_]> = insets.iter().map(Vec::as_slice).collect();
        if let Some(before) = self.computed.take() {
            self.done.between_time += start.saturating_duration_since(before);
        }
        engine.step_with(&batch, &insets)?;
        drop(insets);
        let took = start.elapsed();
        self.computed = Some(start + took);
        let step = Computed { shares, rows: &rows, answering, begin, start };
        self.take_results(engine, helpers, &step, took)?;
        Ok(took)
    }

    /// Sends a step to the other hosts, if there is anything to compute that is not under way.
    fn send(&mut self, engine: &mut Engine, helpers: &mut Helpers<'_>) -> Result<bool, Error> {
        let begin = Instant::now();
        let shares = self.deal(engine, helpers)?;
        self.send_shares(engine, shares, begin)
    }

    fn send_shares(
        &mut self,
        engine: &mut Engine,
        shares: Vec<Share>,
        begin: Instant,
    ) -> Result<bool, Error> {
        let running = &self.running;
        let entry = |share: &Share| running[share.request].entry(share.sequence, share.tokens);
        let (batch, rows): (Vec<BatchEntry<'_>>, Vec<usize>) = shares.iter().map(entry).unzip();
        if batch.is_empty() {
            return Ok(false);
        }
        let answering = self.answering(&shares);
        let step = engine.send(&batch, &[])?;
        shares.iter().for_each(|share| self.running[share.request].sent(share.tokens));
        self.flights.push_back(Flight { shares, rows, step, begin, answering });
        Ok(true)
    }

    /// Takes the results of the step that was sent first. How long it took beyond the one before it.
    fn land(&mut self, engine: &mut Engine, helpers: &mut Helpers<'_>) -> Result<Duration, Error> {
        let Some(flight) = self.flights.pop_front() else { return Ok(Duration::ZERO) };
        let Flight { shares, rows, step, begin, answering } = flight;
        engine.finish(step)?;
        let start = self.came_back.map_or(begin, |before| before.max(begin));
        self.came_back = Some(Instant::now());
        let took = start.elapsed();
        for share in &shares {
            if let Some(at) = self.find(share) {
                self.running[at].came_back(share.tokens);
            }
        }
        let step = Computed { shares: &shares, rows: &rows, answering, begin, start };
        self.take_results(engine, helpers, &step, took)?;
        Ok(took)
    }

    /// Counts a step of this duration and gives its results to the requests.
    fn take_results(
        &mut self,
        engine: &mut Engine,
        helpers: &mut Helpers<'_>,
        step: &Computed<'_>,
        took: Duration,
    ) -> Result<(), Error> {
        self.note(step.shares, step.answering, took);
        let until = Instant::now() + took / MASKS;
        let results = self.sample(engine, step.shares, step.rows, until)?;
        self.settle(engine, helpers, step, results)
    }

    /// Tokens of running answers.
    fn answering(&self, shares: &[Share]) -> usize {
        let answering = shares.iter().filter(|s| self.running[s.request].is_answering());
        answering.map(|s| s.tokens).sum()
    }

    /// Where the request of a share is now; `None` if it gave up its pages or ended meanwhile.
    fn find(&self, share: &Share) -> Option<usize> {
        let is = |request: &Running| request.sequence == Some(share.sequence);
        let same = self.running.get(share.request).is_some_and(is);
        if same { Some(share.request) } else { self.running.iter().position(is) }
    }

    /// Counts a step.
    fn note(&mut self, shares: &[Share], answering: usize, took: Duration) {
        let tokens: usize = shares.iter().map(|share| share.tokens).sum();
        if let Some(pace) = &mut self.pace {
            pace.observe(answering, tokens - answering, took.as_secs_f64(), self.left_out);
        }
        self.done.steps += 1;
        self.done.step_time += took;
        self.done.computed_tokens += (tokens - answering) as u64;
    }
}
