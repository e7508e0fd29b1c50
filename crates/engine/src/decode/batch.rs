//! Requests that are answered, a step at a time.
//!
//! A step has one token of every running answer; what is left of it goes to prompts, half of it to the one
//! that ranks highest ([`Running::rank`]) and half to the shortest, as far as [`Pace`] allows. A prompt is begun when the pages for all
//! of it are there. When an answer grows and there are none left, whoever ranks lowest gives up its
//! pages and is computed again later; what of them is still in the prefix cache then need not be.

use super::asked::Asked;
use super::counters::Counters;
use super::pace::Pace;
use super::running::Running;
use crate::engine::staged::SentStep;
use crate::engine::{BatchEntry, Engine};
use crate::error::Error;
use crate::images::Encoder;
use crate::kv::SeqId;
use crate::speculate::{Speculator, Taken, Text};
use graph::Logits;
use models::Projection;
use std::cmp::Reverse;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

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
    mask: Vec<u32>,
    /// What was done since somebody took it.
    pub done: Counters,
    /// Steps that other hosts take now, and when the last one came back.
    flights: VecDeque<Flight>,
    came_back: Option<Instant>,
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

/// What is to be done when a step's results are taken.
#[derive(Default)]
struct Results {
    /// Whose guess was wrong.
    wrong: Vec<Share>,
    /// Answers that go on from copies of sequences.
    copies: Vec<(Running, SeqId)>,
    /// Tokens that were guessed, and those that there are more.
    guesses: usize,
    generated: usize,
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

/// A prompt that waits to be computed, or to be computed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Prompt {
    request: usize,
    priority: i8,
    /// Tokens of it that are still to be computed.
    pending: usize,
}

impl Prompt {
    fn of(request: usize, running: &Running) -> Prompt {
        Prompt { request, priority: running.priority(), pending: running.pending() }
    }
}

/// Puts prompts, which come by rank, into the order in which they get tokens of a step that has `left`:
/// the first of all, then the others, of one priority the shortest first. How many the first gets: half,
/// or all that the others of its priority leave. So no prompt waits for a much longer one before it, and
/// none for ever.
fn first_share(prompts: &mut [Prompt], left: usize) -> usize {
    let Some((first, others)) = prompts.split_first_mut() else { return left };
    others.sort_by_key(|prompt| (Reverse(prompt.priority), prompt.pending));
    let alike = others.iter().filter(|prompt| prompt.priority == first.priority);
    let want = alike.map(|prompt| prompt.pending).sum::<usize>();
    left.div_ceil(2).max(left.saturating_sub(want))
}

impl Batch {
    /// Without requests; `prefix_cache`: whether what was computed of other prompts is used.
    pub(crate) fn new(pace: Option<Pace>, prefix_cache: bool) -> Batch {
        let (running, mask, done) = (Vec::new(), Vec::new(), Counters::default());
        let (flights, came_back) = (VecDeque::new(), None);
        Batch { running, pace, prefix_cache, mask, done, flights, came_back }
    }

    /// Takes requests with their numbers.
    pub(crate) fn add(&mut self, requests: impl IntoIterator<Item = (u64, Asked)>) {
        self.running.extend(requests.into_iter().map(|(id, asked)| Running::new(id, asked)));
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
            Ok(rows) => request.images.fill(tile.id(), &rows),
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
        if engine.is_staged() {
            while self.flights.len() < engine.depth() && self.send(engine, helpers)? {}
            return self.land(engine, helpers);
        }
        let begin = Instant::now();
        let shares = self.deal(engine, helpers)?;
        self.compute(engine, helpers, (&shares, begin))
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

    /// Finds what every request has in the next step, and takes the pages for it.
    fn deal(
        &mut self,
        engine: &mut Engine,
        helpers: &mut Helpers<'_>,
    ) -> Result<Vec<Share>, Error> {
        let limits = engine.limits();
        if let Some(speculator) = &mut helpers.speculator {
            let context = engine.context();
            let texts = self.running.iter_mut().filter_map(|request| request.text(context));
            let mut texts: Vec<Text<'_>> = texts.collect();
            speculator.guess(engine, &mut texts)?;
        }
        let mut shares = Vec::with_capacity(self.running.len());
        let answering = self.running.iter().filter(|r| r.is_answering()).count();
        let mut spare = limits.tokens.saturating_sub(answering);
        let mut outputs = limits.outputs.saturating_sub(answering);
        let most_answers = self.answers_of_step(engine);
        for at in 0..self.running.len() {
            if !self.running[at].is_answering() || shares.len() == most_answers {
                continue;
            }
            let before = (self.running[at].pending() - 1).min(spare);
            let guess = self.guess(engine, at, (spare - before).min(outputs))?;
            if let Some(sequence) = self.reserve(engine, at, before + 1 + guess)? {
                spare -= before + guess;
                outputs -= guess;
                let tokens = before + 1 + guess;
                let share = Share { request: at, sequence, tokens, answered: true, hidden: false };
                shares.push(share);
            }
        }
        self.drop_stale(&mut shares);
        let rows: usize = shares.iter().map(|share| share.tokens).sum();
        let guessed: usize =
            shares.iter().map(|s| self.running[s.request].ahead.guess().len()).sum();
        let answers = shares.len();
        let waiting = |r: &Running| r.pending() > 0 && !r.is_answering();
        let mut prompts: Vec<Prompt> = (0..self.running.len())
            .filter(|&at| waiting(&self.running[at]))
            .map(|at| Prompt::of(at, &self.running[at]))
            .collect();
        let most = (limits.tokens - rows).min(prompt_part(engine, limits.tokens));
        let waiting = prompts.iter().map(|prompt| Pace::weight(prompt.pending)).sum();
        // A text whose tokens see those behind them is one step.
        let whole_texts = engine.reads_texts();
        let mut left = match &mut self.pace {
            Some(pace) if !whole_texts => pace.prompt_tokens(rows, answers, waiting, most),
            _ => most,
        };
        let first = first_share(&mut prompts, left);
        let mut outputs = limits.outputs - answers - guessed;
        for (nth, prompt) in prompts.into_iter().enumerate() {
            let at = prompt.request;
            let begun = self.running[at].sequence.is_some();
            if left == 0 || outputs == 0 || !begun && !self.begin(engine, at, rows)? {
                break;
            }
            let request = &self.running[at];
            let whole = request.wants_whole_prompt();
            let most = if nth == 0 && !whole_texts { first } else { left };
            let most = if whole { most.min(outputs) } else { most };
            let tokens = request.pending().min(most);
            if whole_texts && tokens < request.pending() {
                continue;
            }
            let tokens = request.images.cut(request.len(), tokens);
            if tokens == 0 {
                continue;
            }
            let Some(sequence) = self.reserve(engine, at, tokens)? else { break };
            outputs -=
                if whole { tokens } else { usize::from(tokens == self.running[at].pending()) };
            left -= tokens;
            let answered = self.running[at].has_answer();
            let hidden = self.running[at].wants_hidden();
            shares.push(Share { request: at, sequence, tokens, answered, hidden });
        }
        self.drop_stale(&mut shares);
        Ok(shares)
    }

    /// How many answers a step has at most: all, or those of one of as many groups as there are steps under way.
    fn answers_of_step(&self, engine: &Engine) -> usize {
        let running = self.running.iter().filter(|r| r.sequence.is_some() && r.has_answer());
        running.count().div_ceil(engine.depth())
    }

    /// Drops the shares of those that gave up their pages to others afterwards, even if they are begun
    /// anew by now.
    fn drop_stale(&self, shares: &mut Vec<Share>) {
        shares.retain(|share| self.running[share.request].sequence == Some(share.sequence));
    }

    /// How many tokens of its guess a request takes into the step: none for which others would have
    /// to give up pages, or without a way back.
    fn guess(&mut self, engine: &mut Engine, at: usize, most: usize) -> Result<usize, Error> {
        let request = &mut self.running[at];
        let (known, n) = (request.pending(), request.ahead.guess().len().min(most));
        let takes = match request.sequence.filter(|_| n > 0) {
            None => false,
            Some(sequence) => {
                engine.has_room(sequence, known + n, 0)?
                    && engine.checkpoint_within(sequence, known)?
            }
        };
        let n = if takes { n } else { 0 };
        request.take_guess(n);
        Ok(n)
    }

    /// Begins a request, or begins it anew, if there are pages for all that it has, and a page more
    /// for each of `rows` running answers.
    pub(crate) fn begin(
        &mut self,
        engine: &mut Engine,
        at: usize,
        rows: usize,
    ) -> Result<bool, Error> {
        let request = &self.running[at];
        let (sequence, len) = match self.prefix_cache && !engine.reads_texts() {
            // What was cached tells nothing of logits or hidden states.
            true if !request.wants_whole_prompt() => {
                engine.begin_among(request.tokens(), &request.images, request.adapters())?
            }
            true => (engine.begin_with(&[], request.adapters())?.0, 0),
            false => (engine.new_sequence_with(request.adapters())?, 0),
        };
        let others = self.running.iter().any(|r| r.sequence.is_some());
        let more = self.running[at].tokens().len() - len;
        if others && !engine.has_room(sequence, more, rows)? {
            engine.free(sequence)?;
            return Ok(false);
        }
        if let Some((prompt, cached)) = self.running[at].begin(sequence, len) {
            self.done.prompt_tokens += prompt as u64;
            self.done.cached_tokens += cached as u64;
        }
        self.done.restored_tokens += engine.take_restored();
        Ok(true)
    }

    /// Takes pages for `tokens` more tokens of a request, from those that rank below it if none are
    /// free. `None` if it has to wait, or has itself given up its pages.
    fn reserve(
        &mut self,
        engine: &mut Engine,
        at: usize,
        tokens: usize,
    ) -> Result<Option<SeqId>, Error> {
        while let Some(sequence) = self.running[at].sequence {
            match engine.reserve(sequence, tokens) {
                Ok(()) => return Ok(Some(sequence)),
                Err(Error::NoPages { .. }) => {}
                Err(error) => return Err(error),
            }
            let holds = |r: &Running| r.sequence.is_some();
            let last = self.running.iter().rposition(holds).unwrap_or(at);
            if last == at && !self.running[..at].iter().any(holds) {
                // Alone it has all pages: there are more than the context needs.
                return Err(Error::NoPages { pages: engine.pages().total });
            }
            let request = &mut self.running[last];
            if let Some(sequence) = request.sequence {
                engine.free(sequence)?;
            }
            request.give_up();
            self.done.preemptions += 1;
        }
        Ok(None)
    }

    fn compute(
        &mut self,
        engine: &mut Engine,
        helpers: &mut Helpers<'_>,
        (shares, begin): (&[Share], Instant),
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
        let projection = engine.projection();
        let logits = engine.step_with(&batch, &insets)?;
        drop(insets);
        let took = start.elapsed();
        self.note(shares, answering, took);
        let results = self.sample((shares, &rows), logits, projection.as_deref());
        self.settle(engine, helpers, (shares, answering, begin), (results, start))?;
        Ok(took)
    }

    /// Sends a step to the other hosts, if there is anything to compute that is not under way.
    fn send(&mut self, engine: &mut Engine, helpers: &mut Helpers<'_>) -> Result<bool, Error> {
        let begin = Instant::now();
        let shares = self.deal(engine, helpers)?;
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
        let logits = engine.finish(step)?;
        let start = self.came_back.map_or(begin, |before| before.max(begin));
        self.came_back = Some(Instant::now());
        let took = start.elapsed();
        self.note(&shares, answering, took);
        for share in &shares {
            if let Some(at) = self.find(share) {
                self.running[at].came_back(share.tokens);
            }
        }
        let results = self.sample((&shares, &rows), logits, None);
        self.settle(engine, helpers, (&shares, answering, begin), (results, start))?;
        Ok(took)
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
            pace.observe(answering, tokens - answering, took.as_secs_f64());
        }
        self.done.steps += 1;
        self.done.step_time += took;
        self.done.computed_tokens += (tokens - answering) as u64;
    }

    /// Gives requests what a step has computed for them: `rows` of logits or hidden states of each share.
    fn sample(
        &mut self,
        (shares, rows): (&[Share], &[usize]),
        logits: Logits<'_>,
        projection: Option<&Projection>,
    ) -> Results {
        let mut results = Results::default();
        let (mut first, generated) = (0, self.done.generated_tokens);
        let (mut row, mut hidden) = (0, 0);
        for (share, &rows) in shares.iter().zip(rows) {
            let (at_row, at_hidden) = (row, hidden);
            *(if share.hidden { &mut hidden } else { &mut row }) += rows;
            let taken_row = first;
            first += share.tokens;
            let Some(at) = self.find(share) else { continue };
            let request = &mut self.running[at];
            let taken = Taken { row: taken_row, position: request.len(), count: share.tokens };
            request.ahead.took(taken);
            if request.wants_hidden() {
                let states = (at_hidden..hidden).map(|row| logits.hidden(row));
                request.pool(share.tokens, states, projection);
                continue;
            }
            if request.wants_no_answer() {
                let all = (at_row..row).map(|row| logits.row(row));
                request.pool(share.tokens, all, None);
                continue;
            }
            if request.wants_whole_prompt() {
                let before = request.len();
                (0..rows).for_each(|i| request.note_prompt(before + i, logits.row(at_row + i)));
            }
            let guessed = request.ahead.guess().len();
            results.guesses += guessed;
            if guessed > 0 {
                request.computed(share.tokens - guessed);
                let rows = (at_row..row).map(|row| logits.row(row));
                let (sampled, right) = request.sample_guess(rows, &mut self.mask);
                self.done.generated_tokens += sampled as u64;
                self.done.drafted_tokens += guessed as u64;
                self.done.accepted_tokens += right as u64;
                results.wrong.extend((right < guessed).then_some(*share));
                continue;
            }
            if request.computed(share.tokens) {
                let logits = logits.row(row - 1);
                let others = request.split_off();
                let mut sample = |request: &mut Running| {
                    let token = request.sample(logits, &mut self.mask);
                    self.done.generated_tokens += u64::from(token);
                };
                sample(request);
                results.copies.extend(others.into_iter().map(|mut other| {
                    sample(&mut other);
                    (other, share.sequence)
                }));
            }
        }
        results.generated = (self.done.generated_tokens - generated) as usize;
        results
    }

    /// Does what is to be done behind a step's results, which began to be computed at `start`.
    fn settle(
        &mut self,
        engine: &mut Engine,
        helpers: &mut Helpers<'_>,
        (shares, answering, begin): (&[Share], usize, Instant),
        (Results { wrong, copies, guesses, generated }, start): (Results, Instant),
    ) -> Result<(), Error> {
        let tokens: usize = shares.iter().map(|share| share.tokens).sum();
        if let Some(speculator) = helpers.speculator.as_mut().filter(|_| answering == tokens) {
            speculator.observe(shares.len(), guesses, generated, start.elapsed());
        }
        let all = begin.elapsed();
        for share in shares {
            if let Some(at) = self.find(share) {
                self.running[at].took(share.answered, all);
            }
        }
        for share in wrong {
            let Some(at) = self.find(&share) else { continue };
            let request = &mut self.running[at];
            // A state may have to go back further than the guess: what was right is computed again.
            let kept = engine.truncate(share.sequence, request.len())?;
            request.keep(kept);
        }
        for (mut copy, of) in copies {
            copy.sequence = Some(engine.fork(of)?);
            copy.took(false, all);
            self.running.push(copy);
        }
        Ok(())
    }
}

/// Tokens of prompts that a step has at most: all that it has room for, or a part where another step is to be in the
/// next stage meanwhile.
fn prompt_part(engine: &Engine, most: usize) -> usize {
    match engine.depth() {
        1 => most,
        stages => (most / (2 * stages)).max(SMALL_PART),
    }
}

/// Tokens of a part of a prompt for which weights and links are used well.
const SMALL_PART: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_prompts_need_not_wait_for_long_ones() {
        let mut at = 0..;
        let mut prompt =
            |priority, pending| Prompt { request: at.next().unwrap(), priority, pending };
        let mut prompts =
            [(1, 8000), (1, 500), (1, 40), (1, 40), (0, 3)].map(|(p, n)| prompt(p, n));
        assert_eq!(first_share(&mut prompts, 101), 51);
        assert_eq!(prompts.map(|p| p.request), [0, 2, 3, 1, 4]);
        // What the others do not want is the first's; those of a lower priority are not asked.
        assert_eq!(first_share(&mut prompts, 2000), 2000 - 580);
        assert_eq!(first_share(&mut prompts[..1], 101), 101);
        let mut two = [prompts[0], prompts[4]];
        assert_eq!(first_share(&mut two, 101), 101);
        assert_eq!(first_share(&mut [], 101), 101);
    }
}
