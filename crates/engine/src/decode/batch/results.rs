//! The results of a step: tokens, vectors, copies of sequences.

use super::{Batch, Computed, Helpers, Share};
use crate::decode::running::Running;
use crate::decode::running::sampling::Sampled;
use crate::engine::Engine;
use crate::error::Error;
use crate::sampler::Logprobs;
use crate::sequence::SeqId;
use crate::speculate::Taken;
use graph::Logits;
use models::Projection;
use std::iter::once;
use std::ops::Range;
use std::time::{Duration, Instant};

/// Tokens of a prompt that one thread looks at in a row.
const LIKELY: usize = 8;

/// What is to be done when a step's results are taken.
#[derive(Default)]
pub(super) struct Results {
    /// Whose guess was wrong.
    wrong: Vec<Share>,
    /// Answers that go on from copies of sequences.
    copies: Vec<(Running, SeqId)>,
    /// Tokens that were guessed, and those that there are more.
    guesses: usize,
    generated: usize,
}

/// What a step has computed for a request, and what comes of it.
struct Task<'r> {
    request: &'r mut Running,
    share: Share,
    /// Its rows of logits, or of hidden states.
    rows: Range<usize>,
    /// Whether no mask has to be waited for.
    ready: bool,
    /// Tokens of its guess that the step had.
    guessed: usize,
    sampled: Sampled,
    /// Other answers to its prompt, which begin.
    others: Vec<(Running, Sampled)>,
}

/// How likely some tokens of a prompt were, by rows of logits.
struct Likely {
    /// Of the task with this number.
    task: usize,
    rows: Range<usize>,
    tokens: Vec<u32>,
    top: usize,
    found: Vec<Logprobs>,
}

impl Task<'_> {
    /// Gives the request its rows. Waits for masks until then.
    fn take(&mut self, logits: Logits<'_>, projection: Option<&Projection>, until: Instant) {
        let Task { request, share, rows, .. } = self;
        if request.wants_hidden() {
            let states = rows.clone().map(|row| logits.hidden(row));
            return request.pool(share.tokens, states, projection);
        }
        if request.wants_no_answer() {
            return request.pool(share.tokens, rows.clone().map(|row| logits.row(row)), None);
        }
        let guessed = request.ahead.guess().len();
        if !request.computed(share.tokens - guessed) {
            return;
        }
        self.guessed = guessed;
        let others = request.split_off();
        let own = (rows.end - 1 - guessed..rows.end).map(|row| logits.row(row));
        self.sampled = request.sample(own, Some(until));
        for mut other in others {
            let sampled = other.sample(once(logits.row(rows.end - 1)), Some(until));
            self.others.push((other, sampled));
        }
    }
}

impl Batch {
    /// Gives requests what a step has computed for them, on the threads of the model, each of which takes one after
    /// the other. Waits for masks until then; a request without its mask is [held](Running::is_held), and no other
    /// waits for it.
    pub(super) fn sample(
        &mut self,
        engine: &mut Engine,
        shares: &[Share],
        rows: &[usize],
        until: Instant,
    ) -> Result<Results, Error> {
        let found: Vec<Option<usize>> = shares.iter().map(|share| self.find(share)).collect();
        let mut requests: Vec<_> = self.running.iter_mut().map(Some).collect();
        let mut tasks = Vec::with_capacity(shares.len());
        let (mut first, mut row, mut hidden) = (0, 0, 0);
        for ((share, &count), at) in shares.iter().zip(rows).zip(found) {
            let next = if share.hidden { &mut hidden } else { &mut row };
            let rows = *next..*next + count;
            *next = rows.end;
            let taken_row = first;
            first += share.tokens;
            let Some(request) = at.and_then(|at| requests[at].take()) else { continue };
            let taken = Taken { row: taken_row, position: request.len(), count: share.tokens };
            request.ahead.took(taken);
            let (share, sampled, others) = (*share, Sampled::default(), Vec::new());
            let ready = request.is_ready();
            tasks.push(Task { request, share, rows, ready, guessed: 0, sampled, others });
        }
        let prompts = note_prompts(engine, &mut tasks)?;
        let mut results = Results::default();
        // Who has to be waited for comes last.
        tasks.sort_by_key(|task| !task.ready);
        let projection = engine.projection();
        engine.each(&mut tasks, |logits, task| task.take(logits, projection.as_deref(), until))?;
        let mut counted = Vec::new();
        for Task { share, guessed, sampled, others, .. } in tasks {
            counted.push(sampled);
            results.guesses += guessed;
            results.wrong.extend(sampled.is_wrong().then_some(share));
            for (other, sampled) in others {
                counted.push(sampled);
                results.copies.push((other, share.sequence));
            }
        }
        results.generated = counted.iter().map(|sampled| sampled.tokens).sum();
        counted.into_iter().for_each(|sampled| self.count(sampled));
        if let (Some(pace), Some(took)) = (&mut self.pace, prompts) {
            pace.charge(took.as_secs_f64());
        }
        Ok(results)
    }

    fn count(&mut self, sampled: Sampled) {
        self.done.generated_tokens += sampled.tokens as u64;
        self.done.drafted_tokens += sampled.guessed as u64;
        self.done.accepted_tokens += sampled.right as u64;
    }

    /// Samples held rows whose masks are there now.
    pub(super) fn resume(&mut self, engine: &mut Engine) -> Result<(), Error> {
        for at in 0..self.running.len() {
            let Some(sampled) = self.running[at].resume() else { continue };
            self.count(sampled);
            if sampled.is_wrong() {
                take_back(engine, &mut self.running[at])?;
            }
        }
        Ok(())
    }

    /// Takes back wrong guesses, starts further answers from copies, and notes times.
    pub(super) fn settle(
        &mut self,
        engine: &mut Engine,
        helpers: &mut Helpers<'_>,
        step: &Computed<'_>,
        results: Results,
    ) -> Result<(), Error> {
        let &Computed { shares, answering, begin, start, .. } = step;
        let Results { wrong, copies, guesses, generated } = results;
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
            take_back(engine, &mut self.running[at])?;
        }
        let copied = !copies.is_empty();
        for (mut copy, of) in copies {
            copy.sequence = Some(engine.fork(of)?);
            copy.took(false, all);
            self.running.push(copy);
        }
        if copied {
            self.running.sort_by_key(Running::rank);
        }
        Ok(())
    }
}

/// Notes how likely the tokens of prompts were, where that is wanted; how long it took.
fn note_prompts(engine: &mut Engine, tasks: &mut [Task<'_>]) -> Result<Option<Duration>, Error> {
    let begin = Instant::now();
    let mut parts = Vec::new();
    for (number, task) in tasks.iter().enumerate().filter(|(_, task)| !task.share.hidden) {
        let before = task.request.len();
        let Some((top, tokens)) = task.request.prompt_behind(before, task.rows.len()) else {
            continue;
        };
        let from = tokens.start - 1 - before + task.rows.start;
        for (at, tokens) in task.request.prompt(tokens).chunks(LIKELY).enumerate() {
            let rows = from + at * LIKELY..from + at * LIKELY + tokens.len();
            let (tokens, found) = (tokens.to_vec(), Vec::new());
            parts.push(Likely { task: number, rows, tokens, top, found });
        }
    }
    if parts.is_empty() {
        return Ok(None);
    }
    let kernels = engine.kernels();
    engine.each(&mut parts, |logits, Likely { rows, tokens, top, found, .. }| {
        let each = rows.clone().zip(tokens);
        found.extend(each.map(|(row, t)| Logprobs::of(kernels, logits.row(row), *t, *top)));
    })?;
    for Likely { task, found, .. } in parts {
        tasks[task].request.note_prompt(found);
    }
    Ok(Some(begin.elapsed()))
}

/// Takes back what was guessed wrong.
fn take_back(engine: &mut Engine, request: &mut Running) -> Result<(), Error> {
    let Some(sequence) = request.sequence else { return Ok(()) };
    // A state may have to go back further than the guess: what was right is computed again.
    let kept = engine.truncate(sequence, request.len())?;
    request.keep(kept);
    Ok(())
}
