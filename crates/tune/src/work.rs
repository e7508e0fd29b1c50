//! What a step is asked to do: so many new tokens of one sequence, after so many others.

/// New tokens of one sequence.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Work {
    /// New tokens: 1 when decoding, a chunk of the prompt when not.
    pub tokens: usize,
    /// Tokens that stand before them.
    pub context: usize,
}

impl Work {
    /// The token after `context` others.
    pub fn decode(context: usize) -> Work {
        Work { tokens: 1, context }
    }

    /// `tokens` tokens of a prompt after `context` others.
    pub fn prompt(tokens: usize, context: usize) -> Work {
        Work { tokens, context }
    }

    /// Tokens whose keys and values are read when no token sees more than `window`: each once.
    pub fn read(self, window: usize) -> f64 {
        let all = self.context + self.tokens;
        all.min(window.saturating_add(self.tokens) - 1) as f64
    }

    /// Pairs of a new token and a token that it sees, of which there are at most `window` for each.
    /// The new token i, from 0, sees `context + i + 1`.
    pub fn pairs(self, window: usize) -> f64 {
        let growing = self.tokens.min(window.saturating_sub(self.context));
        let grown = (self.tokens - growing) as f64;
        let growing = growing as f64;
        let full = if grown > 0.0 { grown * window as f64 } else { 0.0 };
        growing * (self.context as f64 + (growing + 1.0) / 2.0) + full
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_seen_is_what_counting_gives() {
        for (tokens, context, window) in [
            (1, 0, 99),
            (1, 7, 8),
            (1, 8, 8),
            (20, 0, 8),
            (6, 5, 8),
            (4, 100, 8),
            (3, 4, usize::MAX),
        ] {
            let work = Work::prompt(tokens, context);
            let sees = |i: usize| (context + i + 1).min(window);
            let pairs: usize = (0..tokens).map(sees).sum();
            let first = context + 1 - sees(0);
            let read = context + tokens - first;
            assert_eq!(
                (work.pairs(window), work.read(window)),
                (pairs as f64, read as f64),
                "{work:?}"
            );
        }
    }
}
