//! A replica's thread: an engine and the requests that it serves, a step at a time.
//!
//! Before each step it drops what was cancelled and takes new requests for its free slots. A step
//! has one token of every request that decodes, and what is left of it goes to prompts, oldest
//! first. This loop is where a scheduler with deadlines, a prefix cache and preemption belongs:
//! it owns the engine, and nothing outside knows how it fills a step.

use super::queue::{Job, Left, Next, Shared};
use super::ticket::{Event, Outcome};
use crate::engine::{BatchEntry, Engine};
use crate::error::Error;
use crate::generate::{StopReason, Timings};
use crate::kv::SeqId;
use graph::Outputs;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// A request that is being served.
struct Running {
    job: Job,
    sequence: SeqId,
    /// Tokens of the prompt that are computed.
    computed: usize,
    /// The last token of the answer, which is not computed yet.
    last: Option<u32>,
    stopped: Option<StopReason>,
    tokens: usize,
    queued: Duration,
    began: Instant,
    timings: Timings,
}

/// Serves until told to end; a failure ends it, too, and only this replica's requests.
pub(crate) fn serve(me: usize, engine: Engine, shared: Arc<Shared>) {
    let mut runner = Runner { me, engine, shared, running: Vec::new() };
    let reason = match catch_unwind(AssertUnwindSafe(|| runner.run())) {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(error.to_string()),
        Err(panic) => Some(format!("it panicked: {}", message(&*panic))),
    };
    if let Some(reason) = &reason {
        tracing::error!("replica {me} is out of service: {reason}");
        runner.shared.fail(me, reason);
    }
    for request in runner.running {
        let error = match &reason {
            Some(reason) => Error::ReplicaFailed { replica: me, reason: reason.clone() },
            None => Error::ReplicasClosed,
        };
        let _ = request.job.events.send(Event::Failed(error));
    }
}

/// The text of a panic.
pub(crate) fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

struct Runner {
    me: usize,
    engine: Engine,
    shared: Arc<Shared>,
    running: Vec<Running>, // by arrival
}

impl Runner {
    fn run(&mut self) -> Result<(), Error> {
        while let Next::Begin(jobs) = self.shared.next(self.me) {
            for job in jobs {
                self.begin(job)?;
            }
            self.drop_cancelled()?;
            let steps = self.step()?;
            self.finish(steps)?;
        }
        Ok(())
    }

    fn begin(&mut self, job: Job) -> Result<(), Error> {
        let now = Instant::now();
        self.running.push(Running {
            sequence: self.engine.new_sequence()?,
            computed: 0,
            last: None,
            stopped: (job.left == 0).then_some(StopReason::Limit),
            tokens: 0,
            queued: now - job.submitted,
            began: now,
            timings: Timings::default(),
            job,
        });
        Ok(())
    }

    fn drop_cancelled(&mut self) -> Result<(), Error> {
        let cancelled = |r: &mut Running| r.job.cancelled.load(Relaxed);
        for request in self.running.extract_if(.., cancelled) {
            self.engine.free(request.sequence)?;
        }
        Ok(())
    }

    /// Computes one step over the running requests, if there is anything to compute. How many
    /// steps that took.
    fn step(&mut self) -> Result<u64, Error> {
        let Runner { engine, running, .. } = self;
        let pending: Vec<usize> = running.iter().map(Running::pending).collect();
        let shares = deal(engine.limits().tokens, &pending);
        let step = || running.iter().zip(&shares).filter(|(_, n)| **n > 0);
        let batch: Vec<BatchEntry<'_>> = step().map(|(r, &n)| r.entry(n)).collect();
        if batch.is_empty() {
            return Ok(0);
        }
        let start = Instant::now();
        let logits = engine.step(&batch)?;
        let mut row = 0;
        for (request, &tokens) in running.iter_mut().zip(&shares).filter(|(_, n)| **n > 0) {
            if request.compute(tokens) {
                let sampled = request.job.sampler.sample(logits.row(row));
                row += 1;
                request.accept(sampled, start);
            }
        }
        Ok(1)
    }

    /// Frees what has ended, tells the queue, then the callers: they find everything as it is now.
    fn finish(&mut self, steps: u64) -> Result<(), Error> {
        let ended: Vec<Running> = self.running.extract_if(.., |r| r.stopped.is_some()).collect();
        for request in &ended {
            self.engine.free(request.sequence)?;
        }
        let running = self.running.iter().map(Running::left);
        let done = (steps, ended.len() as u64);
        self.shared.report(self.me, running, self.engine.free_pages(), done);
        for Running { job, stopped, tokens, queued, timings, .. } in ended {
            let Some(stopped) = stopped else { continue };
            let outcome = Outcome { stopped, replica: self.me, tokens, queued, timings };
            let _ = job.events.send(Event::Done(outcome));
        }
        Ok(())
    }
}

impl Running {
    /// Tokens that could be computed in the next step.
    fn pending(&self) -> usize {
        match (self.stopped, self.last) {
            (Some(_), _) => 0,
            (None, Some(_)) => 1,
            (None, None) => self.job.prompt.len() - self.computed,
        }
    }

    fn left(&self) -> Left {
        Left { prompt: self.job.prompt.len() - self.computed, answer: self.job.left }
    }

    /// The next `n` tokens.
    fn entry(&self, n: usize) -> BatchEntry<'_> {
        let prompt = &self.job.prompt[self.computed..];
        let (tokens, goes_on) = match &self.last {
            Some(last) => (std::slice::from_ref(last), false),
            None => (&prompt[..n], n < prompt.len()),
        };
        let outputs = if goes_on { Outputs::None } else { Outputs::Last };
        BatchEntry { sequence: self.sequence, tokens, outputs }
    }

    /// `n` tokens were computed: whether the last one's logits were.
    fn compute(&mut self, n: usize) -> bool {
        if self.last.is_none() {
            self.computed += n;
            self.timings.prompt_tokens += n;
        }
        self.computed == self.job.prompt.len()
    }

    /// Takes the next token of the answer, sampled at the end of a step that began at `start`.
    fn accept(&mut self, token: u32, start: Instant) {
        match self.last {
            None => self.timings.prompt = self.began.elapsed(),
            Some(_) => {
                self.timings.tokens += 1;
                self.timings.generation += start.elapsed();
            }
        }
        if self.job.end_tokens.contains(&token) {
            self.stopped = Some(StopReason::EndToken(token));
            return;
        }
        self.last = Some(token);
        self.tokens += 1;
        self.job.left -= 1;
        // Nobody there: the next round drops it.
        let _ = self.job.events.send(Event::Token(token));
        if self.job.stop.as_mut().is_some_and(|stop| stop(token)) {
            self.stopped = Some(StopReason::Interrupted);
        } else if self.job.left == 0 {
            let limited = self.job.limited;
            self.stopped = Some(if limited { StopReason::Limit } else { StopReason::Context });
        }
    }
}

/// Tokens of each request in a step of at most `most`: one for each that has only one left, then
/// what remains to the others in order. Slots are never more than a step has tokens, so beside
/// requests that decode there is always a token for a prompt.
fn deal(most: usize, pending: &[usize]) -> Vec<usize> {
    let mut left = most;
    let mut shares: Vec<usize> = pending.iter().map(|&n| usize::from(n == 1)).collect();
    left -= shares.iter().sum::<usize>().min(left);
    for (share, &n) in shares.iter_mut().zip(pending).filter(|(_, n)| **n > 1) {
        *share = n.min(left);
        left -= *share;
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decoding_comes_before_prompts_and_old_prompts_before_new_ones() {
        assert_eq!(deal(8, &[1, 20, 1, 20]), [1, 6, 1, 0]);
        assert_eq!(deal(8, &[3, 1, 20, 0]), [3, 1, 4, 0]);
        assert_eq!(deal(2, &[1, 5]), [1, 1]);
        assert_eq!(deal(8, &[]), [0; 0]);
    }
}
