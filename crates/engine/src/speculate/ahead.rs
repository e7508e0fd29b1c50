//! What is guessed ahead of one text.

use crate::sampler::Sampler;
use crate::sequence::SeqId;

/// Steps without a guess after guesses that all were wrong, at most.
const LONGEST_PAUSE: u32 = 16;

/// The part of what is known that each new token replaces.
const NEW: f64 = 1.0 / 8.0;

/// A text that goes on.
pub(crate) struct Text<'a> {
    /// All of its tokens that are known, the last sampled one included.
    pub tokens: &'a [u32],
    /// Those of them that are in the cache.
    pub computed: usize,
    pub sequence: SeqId,
    /// What picks its tokens.
    pub sampler: &'a Sampler,
    /// Tokens of a guess that it has room for; none if it is not to have one.
    pub room: usize,
    pub ahead: &'a mut Ahead,
}

/// A text's guess, and what those who guess remember of the text.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ahead {
    length: Length,
    wanted: usize,
    guess: Vec<u32>,
    /// What holds its pages in a smaller model.
    pub(super) draft: Option<SeqId>,
    /// Its tokens in the model's last step, if it had any.
    pub(super) last: Option<Taken>,
    /// Its first positions of which the predicting layer has keys and values.
    pub(super) predicted: usize,
}

/// Tokens of a text in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    /// The number of the first in the step.
    pub row: usize,
    /// Its position in the text.
    pub position: usize,
    pub count: usize,
}

impl Ahead {
    /// The same for another text that has begun alike, whose keys and values are copied.
    pub(crate) fn fork(&self) -> Ahead {
        Ahead { length: self.length, predicted: self.predicted, ..Ahead::default() }
    }

    /// The text has lost its pages.
    pub(crate) fn give_up(&mut self) {
        (self.last, self.predicted) = (None, 0);
        self.guess.clear();
    }

    /// The text is not in the model's next step, so what it had in the last one cannot be read later.
    pub(crate) fn pause(&mut self) {
        self.last = None;
    }

    /// Begins a guess of at most `most` tokens, of which each takes the part `cost` of a step without guesses.
    pub(super) fn begin(&mut self, most: usize, cost: f64) {
        self.guess.clear();
        self.wanted = if most == 0 { 0 } else { self.length.next(most, cost) };
    }

    /// Tokens that are to be guessed, at most.
    pub(super) fn wanted(&self) -> usize {
        self.wanted
    }

    /// Adds a token to the guess.
    pub(crate) fn push(&mut self, token: u32) {
        self.guess.push(token);
    }

    /// What may come next.
    pub(crate) fn guess(&self) -> &[u32] {
        &self.guess
    }

    /// Keeps the first `n` tokens of the guess.
    pub(crate) fn shorten(&mut self, n: usize) {
        self.guess.truncate(n);
    }

    /// The guess was computed, and its first `right` tokens came true.
    pub(crate) fn learn(&mut self, right: usize) {
        self.length.learn(self.guess.len(), right);
        self.guess.clear();
    }

    /// The text had these tokens in the model's last step.
    pub(crate) fn took(&mut self, taken: Taken) {
        self.last = Some(taken);
    }
}

/// How long guesses are: as far as it pays, if each further token comes true as often as the last ones did.
#[derive(Clone, Copy, Debug)]
struct Length {
    /// The share of tokens that come true when all before them have.
    right: f64,
    misses: u32,
    pause: u32,
}

impl Default for Length {
    fn default() -> Length {
        Length { right: 0.75, misses: 0, pause: 0 }
    }
}

impl Length {
    /// How many tokens to guess, at most `most`, when each takes the part `cost` of a step without guesses.
    fn next(&mut self, most: usize, cost: f64) -> usize {
        if self.pause > 0 {
            self.pause -= 1;
            return 0;
        }
        let (mut tokens, mut all) = (1.0, 1.0);
        let gains = (1..=most).map(|length| {
            all *= self.right;
            tokens += all;
            tokens / (1.0 + cost * length as f64)
        });
        let best = gains.enumerate().max_by(|(_, a), (_, b)| a.total_cmp(b));
        best.map_or(0, |(at, _)| at + 1)
    }

    /// Of `guessed` tokens so many were right.
    fn learn(&mut self, guessed: usize, right: usize) {
        for _ in 0..right {
            self.right += (1.0 - self.right) * NEW;
        }
        if right < guessed {
            self.right -= self.right * NEW;
        }
        match right {
            0 => {
                // One alone may be a word that was changed.
                self.pause = (1 << self.misses) - 1;
                self.misses = (self.misses + 1).min(LONGEST_PAUSE.ilog2());
            }
            _ => self.misses = 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guesses_are_as_long_as_it_pays() {
        let mut length = Length::default();
        assert_eq!(length.next(8, 0.0), 8, "what costs nothing");
        // By 0.75: 2.31 tokens in 1.2 steps, 2.73 in 1.3, 3.05 in 1.4, 3.29 in 1.5.
        assert_eq!(length.next(8, 0.1), 5);
        assert_eq!(length.next(3, 0.1), 3);
        (0..20).for_each(|_| length.learn(1, 1));
        assert_eq!(length.next(8, 0.1), 8);
        (0..8).for_each(|_| length.learn(2, 1));
        assert!((1..=4).contains(&length.next(8, 0.1)), "{length:?}");
        assert_eq!(length.next(8, 2.0), 1, "the least that tells something");
    }

    #[test]
    fn guesses_pause_when_they_are_wrong() {
        let mut length = Length::default();
        for pause in [0, 1, 3, 7, 15, 15] {
            length.learn(2, 0);
            let lengths: Vec<usize> = (0..=pause).map(|_| length.next(8, 0.1)).collect();
            assert!(lengths[..pause].iter().all(|l| *l == 0), "{lengths:?}");
            assert!(lengths[pause] > 0);
        }
        length.learn(1, 1);
        length.learn(1, 0);
        assert!(length.next(8, 0.1) > 0, "it begins anew");
    }
}
