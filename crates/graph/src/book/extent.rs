//! How many units of everything a step has.

use super::{Per, RowsOf};
use crate::keep::{KV_CLASSES, Keep};
use crate::step::{Seen, StepInput};
use kernels::KV_CHUNK;

/// What a step touches, in the units of the book; but for lookups, which depend on the tokens' ids.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// Tokens.
    pub tokens: u64,
    /// Rows of logits.
    pub logits: u64,
    /// Hidden states.
    pub hidden: u64,
    /// Sequences.
    pub sequences: u64,
    /// Keys that its sequences see, each once, by class.
    pub keys: [u64; KV_CLASSES],
    /// Keys that its tokens see, for each token, by KV class.
    pub pairs: [u64; KV_CLASSES],
    /// Ranges of keys that its tokens see, for each token, by KV class.
    pub ranges: [u64; KV_CLASSES],
    /// Whether every row has every adapter; of steps in which some have some, the step itself knows which.
    pub adapted: bool,
}

impl Extent {
    /// That of a step whose sequences are known.
    pub(crate) fn of(step: &StepInput) -> Extent {
        let logits = step.logits as u64;
        let hidden = step.outputs.len() as u64 - logits;
        let tokens = step.tokens.len() as u64;
        let sequences = step.sequences as u64;
        let mut extent = Extent { tokens, logits, hidden, sequences, ..Extent::default() };
        for (at, class) in step.classes.iter().enumerate() {
            let sequences = class.seen.chunk_by(|a, b| a.table == b.table);
            extent.keys[at] = sequences.map(Seen::together).sum();
            extent.pairs[at] = class.seen.iter().map(Seen::keys).sum();
            extent.ranges[at] = class.ranges.len() as u64;
        }
        extent
    }

    /// That of a step of `sequences` sequences, each with `tokens` new tokens after `past`, which gives
    /// `logits` rows of logits in all, for these classes.
    pub fn batch(
        classes: &[Keep],
        sequences: usize,
        (tokens, past): (usize, usize),
        logits: usize,
    ) -> Extent {
        let all = (sequences * tokens) as u64;
        let (logits, sequences_of) = (logits as u64, if tokens > 0 { sequences as u64 } else { 0 });
        let mut extent =
            Extent { tokens: all, logits, sequences: sequences_of, ..Extent::default() };
        let paged = classes.iter().enumerate().filter(|(_, keep)| keep.is_paged());
        for (class, keep) in paged {
            let each = |of: fn(usize, usize) -> usize| {
                let len = past + tokens;
                let token = |at: usize| of(keep.first_seen(at), keep.end_seen(at, len));
                (sequences * (past..len).map(token).sum::<usize>()) as u64
            };
            let together = past + tokens - keep.first_seen(past);
            extent.keys[class] = if tokens > 0 { (sequences * together) as u64 } else { 0 };
            extent.pairs[class] = each(|first, end| end - first);
            extent.ranges[class] = each(|first, end| end.div_ceil(KV_CHUNK) - first / KV_CHUNK);
        }
        extent
    }

    /// Rows of a kind.
    pub fn rows(&self, of: RowsOf) -> u64 {
        match of {
            RowsOf::Tokens => self.tokens,
            RowsOf::Outputs => self.logits + self.hidden,
            RowsOf::Logits => self.logits,
            RowsOf::Hidden => self.hidden,
        }
    }

    /// Units that an amount is for. Of lookups it knows only that there is one for each token, and of experts
    /// how many tokens choose on average that choose with equal chances.
    pub fn units(&self, per: Per) -> u64 {
        match per {
            Per::Step(rows) => self.rows(rows).min(1),
            Per::Row(rows) => self.rows(rows),
            Per::Key(class) => self.keys[class],
            Per::Pair(class) => self.pairs[class],
            Per::Range(class) => self.ranges[class],
            Per::Lookup(..) => self.tokens,
            Per::Sequence => self.sequences,
            Per::Expert(choice) => {
                let missed = 1.0 - f64::from(choice.chosen) / f64::from(choice.experts);
                let hit = 1.0 - missed.powf(self.tokens as f64);
                (f64::from(choice.members) * hit).round() as u64
            }
            Per::Slot(choice) => {
                let slots = self.tokens * u64::from(choice.chosen) * u64::from(choice.members);
                (slots as f64 / f64::from(choice.experts)).round() as u64
            }
            Per::Adapter(_) => self.tokens.min(u64::from(self.adapted)),
            Per::Adapted(_, rows) => self.rows(rows) * u64::from(self.adapted),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adapters_are_counted_where_every_row_has_them() {
        let units = |adapted| {
            let step = Extent { adapted, ..Extent::batch(&[Keep::All], 2, (3, 0), 2) };
            let [tokens, outputs] = [RowsOf::Tokens, RowsOf::Outputs].map(|of| Per::Adapted(0, of));
            [Per::Adapter(0), tokens, outputs].map(|per| step.units(per))
        };
        assert_eq!((units(true), units(false)), ([1, 6, 2], [0; 3]));
    }

    #[test]
    fn a_window_bounds_what_is_seen() {
        let by_hand = |window, tokens: usize, past: usize| -> (u64, u64) {
            let sees = |i: usize| (past + i + 1).min(window) as u64;
            let first = (past + 1).saturating_sub(window);
            ((past + tokens - first) as u64, (0..tokens).map(sees).sum())
        };
        for (window, tokens, past) in [(8, 1, 0), (8, 1, 7), (8, 1, 100), (8, 20, 0), (8, 6, 5)] {
            let extent = Extent::batch(&[Keep::All, Keep::Window(window)], 1, (tokens, past), 1);
            let got = (extent.keys[1], extent.pairs[1]);
            assert_eq!(got, by_hand(window, tokens, past), "{tokens} @ {past}");
        }
        let two = Extent::batch(&[Keep::All], 2, (3, 4), 2);
        assert_eq!((two.tokens, two.keys[0], two.pairs[0]), (6, 14, 2 * (5 + 6 + 7)));
        // Tokens 254 to 257 see one, one, two and two ranges of 256 keys.
        let across = Extent::batch(&[Keep::All, Keep::Window(2)], 1, (4, 254), 0);
        assert_eq!((across.ranges[0], across.ranges[1]), (6, 5));
    }
}
