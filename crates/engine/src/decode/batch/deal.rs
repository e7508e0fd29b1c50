//! The shares that requests have in a step.
//!
//! A step has one token of every running answer; the rest of it goes to prompts, half of it to the prompt that ranks
//! highest ([`Running::rank`]) and half to the shortest, as far as [`Pace`] allows. A prompt is begun when the pages for
//! all of it are free, and no prompt of lower rank is begun before it. When an answer grows and no page is free, the
//! request of lowest rank gives up its pages and is computed again later, as far as the prefix cache has not kept them.
//!
//! Rows of an image that attend to each other cannot be cut. Such a piece is computed whole, whatever the pace allows;
//! the pace is charged for it, and so decides how often that happens. A step has at most one piece beyond the pace. If
//! a piece does not fit together with the answers, some of them are left out of the step, but never of two steps in a
//! row; if it does not fit together with other prompts, the next step begins with it.

use super::stuck::{past_limits, past_pages};
use super::{Batch, Helpers, Share};
use crate::decode::Pace;
use crate::decode::running::Running;
use crate::engine::Engine;
use crate::error::Error;
use crate::sequence::SeqId;
use crate::speculate::Text;
use std::cmp::Reverse;

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

/// Whether it waits for its prompt to be computed.
fn is_prompt(request: &Running) -> bool {
    request.pending() > 0 && !request.is_answering()
}

/// Tokens and rows of outputs.
#[derive(Clone, Copy)]
struct Rooms {
    tokens: usize,
    outputs: usize,
}

impl Rooms {
    /// Needs of `tokens` tokens; `each`: whether each has an output, and not only the last.
    fn of(tokens: usize, each: bool) -> Rooms {
        Rooms { tokens, outputs: if each { tokens } else { 1 } }
    }

    fn have(self, of: Rooms) -> bool {
        of.tokens <= self.tokens && of.outputs <= self.outputs
    }
}

impl Batch {
    /// Finds what every request has in the next step, and takes the pages for it.
    pub(super) fn deal(
        &mut self,
        engine: &mut Engine,
        helpers: &mut Helpers<'_>,
    ) -> Result<Vec<Share>, Error> {
        if let Some(speculator) = &mut helpers.speculator {
            let context = engine.context();
            let texts = self.running.iter_mut().filter_map(|request| request.text(context));
            let mut texts: Vec<Text<'_>> = texts.collect();
            speculator.guess(engine, &mut texts)?;
        }
        let mut shares = self.deal_answers(engine)?;
        self.deal_prompts(engine, &mut shares)?;
        self.drop_stale(&mut shares);
        if shares.is_empty() && self.left_out {
            // The piece that answers were left out for did not get its pages.
            shares = self.deal_answers(engine)?;
        }
        Ok(shares)
    }

    /// Shares of the running answers, with their guesses.
    fn deal_answers(&mut self, engine: &mut Engine) -> Result<Vec<Share>, Error> {
        let limits = engine.limits();
        let mut shares = Vec::with_capacity(self.running.len());
        let answering = self.running.iter().filter(|r| r.is_answering()).count();
        // Guesses leave something for prompts.
        let kept = answering + usize::from(self.running.iter().any(is_prompt));
        let mut spare = limits.tokens.saturating_sub(kept);
        let mut outputs = limits.outputs.saturating_sub(kept);
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
        Ok(shares)
    }

    /// Adds parts of prompts to the `shares` of answers, some of which may be left out for them.
    fn deal_prompts(&mut self, engine: &mut Engine, shares: &mut Vec<Share>) -> Result<(), Error> {
        let mut answers_stay = std::mem::take(&mut self.left_out);
        let mut room = self.room_beside(engine, shares);
        let answers = shares.len();
        let rows: usize = shares.iter().map(|share| share.tokens).sum();
        let mut prompts: Vec<Prompt> = (0..self.running.len())
            .filter(|&at| is_prompt(&self.running[at]))
            .map(|at| Prompt::of(at, &self.running[at]))
            .collect();
        let waiting = prompts.iter().map(|prompt| Pace::weight(prompt.pending)).sum();
        // A text whose tokens see those behind them is one step.
        let whole_texts = engine.reads_texts();
        let part = if whole_texts { room.tokens } else { prompt_part(engine, room.tokens) };
        let mut left = match &mut self.pace {
            Some(pace) if !whole_texts => pace.prompt_tokens(rows, answers, waiting, part),
            _ => part,
        };
        if left == 0 {
            return Ok(());
        }
        let first = first_share(&mut prompts, left);
        let highest = prompts.first().map(|prompt| prompt.request);
        let owed = self.owed.take();
        if let Some(at) = prompts.iter().position(|p| Some(self.running[p.request].id()) == owed) {
            prompts[..=at].rotate_right(1);
        }
        // Whether a prompt did not find its pages, and whether a piece beyond the pace was taken.
        let (mut none_begins, mut beyond) = (false, false);
        for at in prompts.into_iter().map(|prompt| prompt.request) {
            if room.outputs == 0 || room.tokens == 0 {
                break;
            }
            if self.running[at].sequence.is_none()
                && (none_begins || !self.begin(engine, at, rows)?)
            {
                none_begins = true;
                continue;
            }
            let request = &self.running[at];
            let most = if Some(at) == highest && !whole_texts { first } else { left };
            let mut tokens = request.share(most.min(room.tokens), room.outputs, whole_texts);
            let piece = request.piece(whole_texts);
            if tokens == 0 && piece > 0 && !beyond {
                let needs = Rooms::of(piece, request.wants_whole_prompt());
                let limits =
                    Rooms { tokens: engine.limits().tokens, outputs: engine.limits().outputs };
                if !limits.have(needs) {
                    self.refuse(at, past_limits(piece, &engine.limits()));
                    continue;
                }
                if !room.have(needs) && !answers_stay && shares.len() == answers {
                    self.leave_out(engine, shares, needs);
                    room = self.room_beside(engine, shares);
                }
                answers_stay = true;
                beyond = room.have(needs);
                match beyond {
                    true => tokens = piece,
                    false => _ = self.owed.get_or_insert(self.running[at].id()),
                }
            }
            if tokens == 0 {
                continue;
            }
            let Some(sequence) = self.reserve(engine, at, tokens)? else { continue };
            let request = &self.running[at];
            let rows = match request.wants_whole_prompt() {
                true => tokens,
                false => usize::from(tokens == request.pending()),
            };
            room = Rooms { tokens: room.tokens - tokens, outputs: room.outputs - rows };
            left = left.saturating_sub(tokens);
            let (answered, hidden) = (request.has_answer(), request.wants_hidden());
            shares.push(Share { request: at, sequence, tokens, answered, hidden });
            if left == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Room of a step that these shares leave.
    fn room_beside(&self, engine: &Engine, shares: &[Share]) -> Rooms {
        let limits = engine.limits();
        let guessed = |share: &Share| self.running[share.request].ahead.guess().len();
        let tokens: usize = shares.iter().map(|share| share.tokens).sum();
        let outputs: usize = shares.iter().map(|share| 1 + guessed(share)).sum();
        Rooms { tokens: limits.tokens - tokens, outputs: limits.outputs - outputs }
    }

    /// Leaves answers out of the step, those that rank lowest, until there is room for a piece of a prompt.
    fn leave_out(&mut self, engine: &Engine, shares: &mut Vec<Share>, piece: Rooms) {
        while !self.room_beside(engine, shares).have(piece) && shares.pop().is_some() {
            self.left_out = true;
        }
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
                // There are more than the context needs.
                self.refuse(at, past_pages(tokens, engine.pages().total));
                return Ok(None);
            }
            self.give_up(engine, last)?;
        }
        Ok(None)
    }

    /// Has a request give up its pages.
    pub(super) fn give_up(&mut self, engine: &mut Engine, at: usize) -> Result<(), Error> {
        let request = &mut self.running[at];
        if let Some(sequence) = request.sequence {
            engine.free(sequence)?;
        }
        request.give_up();
        self.done.preemptions += 1;
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
