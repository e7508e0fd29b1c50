//! What a text gives instead of an answer: the hidden states of its tokens as one vector, or a row for each token.
//!
//! The mean is summed token by token in f64, so it does not depend on how the text is cut into steps.

use super::request::Rows;
use models::Pooling;

/// Shortens a text from its end, but for the token that the vocabulary ends texts with.
pub fn cut(tokens: &mut Vec<u32>, most: usize) {
    if tokens.len() > most && most > 0 {
        tokens.drain(most - 1..tokens.len() - 1);
    }
}

/// The first `dimensions` values, or all, of length one together; `None` if there are not so many, or none.
pub fn unit(vector: &[f32], dimensions: Option<usize>) -> Option<Vec<f32>> {
    let some = vector.get(..dimensions.unwrap_or(vector.len())).filter(|some| !some.is_empty())?;
    let squares: f64 = some.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
    let length = if squares > 0.0 { squares.sqrt() } else { 1.0 };
    Some(some.iter().map(|&x| (f64::from(x) / length) as f32).collect())
}

/// What a text gives.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Gives {
    /// One vector.
    Vector(Pooling),
    /// A row for each token.
    Rows(Rows),
}

impl Gives {
    /// Whether it takes something of every token.
    pub(crate) fn wants_all(self) -> bool {
        self != Gives::Vector(Pooling::Last)
    }
}

/// What is pooled so far.
pub(crate) struct Pooled {
    pub gives: Gives,
    sum: Vec<f64>,
    rows: Vec<f32>,
    tokens: usize,
}

impl Pooled {
    pub(crate) fn new(gives: Gives) -> Pooled {
        Pooled { gives, sum: Vec::new(), rows: Vec::new(), tokens: 0 }
    }

    /// Takes the states of tokens, the first of which is token `at` of the text. Those that it has had
    /// are computed anew if their pages were given up.
    pub(crate) fn add<'l>(&mut self, at: usize, states: impl Iterator<Item = &'l [f32]>) {
        for (token, state) in (at..).zip(states) {
            match self.gives {
                Gives::Vector(Pooling::First) if token > 0 => {}
                Gives::Vector(Pooling::First | Pooling::Last) => {
                    self.sum = state.iter().map(|&x| f64::from(x)).collect();
                    self.tokens = 1;
                }
                _ if token != self.tokens => {}
                Gives::Vector(Pooling::Mean) => {
                    self.sum.resize(state.len(), 0.0);
                    self.sum.iter_mut().zip(state).for_each(|(sum, &x)| *sum += f64::from(x));
                    self.tokens += 1;
                }
                Gives::Rows(_) => {
                    self.rows.extend_from_slice(state);
                    self.tokens += 1;
                }
            }
        }
    }

    /// The vector, or all rows, one after the other.
    pub(crate) fn take(&mut self) -> Vec<f32> {
        if let Gives::Rows(_) = self.gives {
            return std::mem::take(&mut self.rows);
        }
        let tokens = self.tokens.max(1) as f64;
        self.sum.iter().map(|sum| (sum / tokens) as f32).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_computed_anew_counts_once() {
        let states: [&[f32]; 3] = [&[1.0, -2.0], &[3.0, 0.5], &[5.0, 9.0]];
        let mut mean = Pooled::new(Gives::Vector(Pooling::Mean));
        mean.add(0, states[..2].iter().copied());
        mean.add(0, states[..1].iter().copied());
        mean.add(1, states[1..].iter().copied());
        assert_eq!(mean.take(), [3.0, 2.5]);
        let mut first = Pooled::new(Gives::Vector(Pooling::First));
        first.add(0, states.iter().copied());
        assert_eq!(first.take(), states[0]);
        let mut last = Pooled::new(Gives::Vector(Pooling::Last));
        last.add(2, states[2..].iter().copied());
        assert_eq!(last.take(), states[2]);
        let mut rows = Pooled::new(Gives::Rows(Rows::Hidden));
        rows.add(0, states[..2].iter().copied());
        rows.add(0, states[..1].iter().copied());
        rows.add(1, states[1..].iter().copied());
        assert_eq!(rows.take(), states.concat());
    }
}
