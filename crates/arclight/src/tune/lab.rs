//! A loaded model that a search may use: one of its own ([`Steps`](super::measure::Steps)), or one that serves
//! others as well ([`Hot`](super::hot::Hot)).

use crate::error::Error;
use arclight_engine::Engine;
use std::sync::mpsc::channel;
use std::time::Duration;
use tune::tuner::{Candidate, Measure, Scheme, StepKind};

/// Something that is done with an engine at a level of its threads. The engine may belong to another thread.
pub(super) type Task = Box<dyn FnOnce(&mut Engine, usize) + Send>;

/// Who has such things done, one at a time.
pub(super) type Run<'a> = Box<dyn FnMut(Task) -> Result<(), Error> + 'a>;

/// Has something done, and gives what comes of it.
///
/// # Errors
/// When it cannot be done: the model cannot be loaded so, or is gone.
pub(super) fn ask<T: Send + 'static>(
    run: &mut Run<'_>,
    what: impl FnOnce(&mut Engine, usize) -> T + Send + 'static,
) -> Result<T, Error> {
    let (told, heard) = channel();
    run(Box::new(move |engine, level| _ = told.send(what(engine, level))))?;
    heard.recv().map_err(|_| arclight_engine::Error::ReplicasClosed.into())
}

/// A model that a search may use.
pub(super) trait Lab: Measure {
    /// As [`Measure::seconds`].
    ///
    /// # Errors
    /// Why a step cannot be run so.
    fn time(&mut self, candidate: &Candidate<'_>, kind: &StepKind) -> Result<f64, Error>;

    /// Does something at a candidate's level, its threads and products as the candidate has them.
    ///
    /// # Errors
    /// When the model cannot be so.
    fn run(&mut self, candidate: &Candidate<'_>, task: Task) -> Result<(), Error>;

    /// Takes note of what went wrong; the search goes on without it.
    fn fault(&mut self, fault: String);
}

/// What there is, or nothing: then the fault is told in the end.
pub(super) fn told<T>(lab: &mut (impl Lab + ?Sized), of: Result<T, Error>) -> Option<T> {
    of.map_err(|e| lab.fault(e.to_string())).ok()
}

/// Those of some kinds of steps, by ascending tokens, that take no longer than `most` with the default, two at
/// least. The last stands for those that are left out: they have more tokens, and where multiplying is what takes
/// the time it is the same for each. One that takes longer than a smaller one for each token was disturbed, and is
/// tried again.
pub(super) fn affordable(
    lab: &mut dyn Lab,
    kinds: Vec<StepKind>,
    default: &Scheme,
    most: Duration,
) -> Result<Vec<StepKind>, Error> {
    const TRIES: usize = 3;
    let (level, mut kept, mut past) = (default.all(), Vec::<StepKind>::new(), false);
    let (most, mut token) = (most.as_secs_f64(), f64::INFINITY);
    for kind in kinds {
        let (scheme, choices, schedules) = (default, &[][..], None);
        let candidate = Candidate { scheme, level: &level, choices, schedules };
        let over = match kept.len() {
            0 | 1 => false,
            // Larger ones take longer still: they are not timed.
            _ if past => true,
            _ => {
                let tokens = f64::from(kind.tokens);
                let mut seconds = lab.time(&candidate, &kind)?;
                for _ in 1..TRIES {
                    if seconds <= most || token * tokens > most {
                        break;
                    }
                    seconds = seconds.min(lab.time(&candidate, &kind)?);
                }
                token = seconds / tokens;
                seconds > most
            }
        };
        match kept.last_mut().filter(|_| over) {
            Some(last) => {
                past = true;
                last.weight += kind.weight * f64::from(kind.tokens) / f64::from(last.tokens);
            }
            None => kept.push(kind),
        }
    }
    Ok(kept)
}
