//! Speculative decoding: tokens that are guessed and then computed all in one step.
//!
//! A step that decodes reads every weight whether it has one token or several, so a right guess is
//! nearly free (Leviathan, Kalman and Matias, 2023). Guesses come from the text itself, what followed
//! the last tokens when they stood there before (prompt lookup), or from a smaller model of the same
//! vocabulary.
//!
//! Exactness: after the step the request's own sampler picks a token from each row of logits in
//! order, as it would without guesses, and goes on as long as the guess was that token. So greedy
//! and seeded answers have the same tokens with and without guesses, and the distribution of
//! others is the model's. A smaller model guesses with a copy of the request's sampler, random
//! numbers included, so that two distributions that are alike pick the same token.

use super::draft::Draft;
use super::running::Running;
use crate::error::Error;

/// Rows of a step up to which it takes little longer: guesses fill it up to here.
const ROWS: usize = 16;

/// Tokens that must stand there again for what followed them to be a guess.
const AGAIN: std::ops::RangeInclusive<usize> = 2..=4;

/// Steps without a guess after guesses that all were wrong, at most.
const LONGEST_PAUSE: u32 = 16;

/// How well a request's tokens are guessed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Luck {
    length: usize,
    misses: u32,
    pause: u32,
}

impl Default for Luck {
    fn default() -> Luck {
        Luck { length: 4, misses: 0, pause: 0 }
    }
}

impl Luck {
    /// How many tokens to guess, at most.
    fn length(&mut self) -> usize {
        if self.pause > 0 {
            self.pause -= 1;
            return 0;
        }
        self.length
    }

    /// Of `guessed` tokens so many were right.
    pub(crate) fn learn(&mut self, guessed: usize, right: usize) {
        if right == 0 {
            self.misses = (self.misses + 1).min(LONGEST_PAUSE.ilog2());
            self.pause = (1 << self.misses) - 1;
        } else {
            self.misses = 0;
        }
        // As far as was right and somewhat farther.
        self.length = if right == guessed { self.length.max(right + 2) } else { right + 1 };
    }
}

/// Where guesses come from.
pub(crate) enum Source {
    /// The text.
    Lookup,
    /// A smaller model.
    Draft(Box<Draft>),
}

/// Guesses for the next step.
pub(crate) struct Guesses {
    pub source: Source,
    /// Tokens of a guess, at most.
    pub most: usize,
}

impl Guesses {
    /// Gives every request that is answering a guess, or none.
    pub(crate) fn make(&mut self, running: &mut [Running], context: usize) -> Result<(), Error> {
        let answering = running.iter().filter(|r| r.is_answering()).count();
        let most = self.most.min((ROWS / answering.max(1)).saturating_sub(1));
        let mut wanted = Vec::with_capacity(answering);
        for (at, request) in running.iter_mut().enumerate() {
            request.shorten_guess(0);
            if !request.is_answering() {
                continue;
            }
            // The step gives a token more than was guessed.
            let room = request.answers[0].left.min(context + 1 - request.tokens().len());
            let length = request.luck.length().min(most).min(room.saturating_sub(1));
            if length == 0 {
                continue;
            }
            match self.source {
                Source::Lookup => {
                    let guess = lookup(request.tokens(), length);
                    guess.into_iter().for_each(|token| request.push_guess(token));
                }
                Source::Draft(_) => wanted.push((at, length)),
            }
        }
        match &mut self.source {
            Source::Lookup => Ok(()),
            Source::Draft(draft) => draft.guess(running, &wanted),
        }
    }

    /// Forgets a request that has ended.
    pub(crate) fn forget(&mut self, request: &mut Running) -> Result<(), Error> {
        match &mut self.source {
            Source::Lookup => Ok(()),
            Source::Draft(draft) => draft.forget(request),
        }
    }
}

/// What followed the last tokens when as many as possible of them stood there before, at most `most`;
/// of several places the last.
fn lookup(tokens: &[u32], most: usize) -> Vec<u32> {
    for len in AGAIN.rev() {
        let Some(before) = tokens.len().checked_sub(len + 1) else { continue };
        let last = &tokens[tokens.len() - len..];
        if let Some(at) = (0..=before).rev().find(|&at| tokens[at..at + len] == *last) {
            let next = &tokens[at + len..];
            return next[..next.len().min(most)].to_vec();
        }
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stood_there_before_is_the_guess() {
        assert_eq!(lookup(&[1, 2, 3, 4, 9, 1, 2], 3), [3, 4, 9]);
        // A longer repetition is better than a later one.
        assert_eq!(lookup(&[5, 1, 2, 3, 8, 1, 2, 7, 5, 1, 2], 2), [3, 8]);
        // Of two alike the later one; it may reach into the end.
        assert_eq!(lookup(&[1, 2, 3, 1, 2, 4, 1, 2], 9), [4, 1, 2]);
        assert_eq!(lookup(&[6, 6, 6, 6], 4), [6]);
        // One token alone says little.
        assert_eq!(lookup(&[1, 2, 3, 2], 4), [0; 0]);
        assert_eq!(lookup(&[1], 4), [0; 0]);
        assert_eq!(lookup(&[], 4), [0; 0]);
    }

    #[test]
    fn guesses_grow_with_luck_and_pause_without() {
        let mut luck = Luck::default();
        assert_eq!(luck.length(), 4);
        luck.learn(4, 4);
        assert_eq!(luck.length(), 6);
        luck.learn(6, 1);
        assert_eq!(luck.length(), 2);
        for pause in [1, 3, 7, 15, 15] {
            luck.learn(2, 0);
            let lengths: Vec<usize> = (0..=pause).map(|_| luck.length()).collect();
            assert!(lengths[..pause].iter().all(|l| *l == 0), "{lengths:?}");
            assert_eq!(lengths[pause], 1);
        }
        luck.learn(1, 1);
        assert_eq!(luck.length(), 3);
    }
}
