//! Rows of a step that no token ids stand for: an image in a text, or the patches of an image.

use crate::error::Error;
use std::ops::Range;

/// Where a token stands for a rotary embedding: one number for each axis. A token of text has the same in all.
pub type Spot = [u32; 3];

/// Rows of numbers in a sequence, in the place of embeddings of tokens. The ids that the sequence has there mean
/// nothing to a step.
#[derive(Copy, Clone, Debug)]
pub struct Inset<'a> {
    /// The position of the first row in its sequence.
    pub at: usize,
    /// How many rows there are.
    pub len: usize,
    /// `[len, width]`, the width being the graph's ([`Graph::row_width`](crate::Graph::row_width)). Empty where none
    /// of the rows is in the step.
    pub rows: &'a [f32],
    /// Where each row stands, counted from the place of the inset; empty: one behind the other on all axes.
    pub spots: &'a [Spot],
    /// Places from the inset's to that of the token behind it.
    pub span: usize,
    /// Whether the rows see each other, and not only those before them, where a layer sees tokens before it. They
    /// are one step then.
    pub together: Together,
    /// Ends of the runs of rows that see each other in layers with [`Keep::Runs`](crate::Keep); empty: one run.
    pub runs: &'a [u32],
}

/// Layers of tokens that see those before them in which the rows of an image see each other too.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Together {
    /// In none.
    #[default]
    No,
    /// In those with a window (Gemma 4).
    InWindows,
    /// In all.
    Everywhere,
}

impl Inset<'_> {
    /// Positions of its rows.
    pub(crate) fn range(&self) -> Range<usize> {
        self.at..self.at + self.len
    }

    /// Positions of the run that the row at `position` is in.
    pub(crate) fn run(&self, position: usize) -> Range<usize> {
        let own = (position - self.at) as u32;
        let after = self.runs.partition_point(|&end| end <= own);
        let start = after.checked_sub(1).map_or(0, |before| self.runs[before] as usize);
        let end = self.runs.get(after).map_or(self.len, |&end| end as usize);
        self.at + start..self.at + end
    }
}

/// Checks the insets of sequence `at` of a step, whose rows have `width` elements; `new` are the positions in the step.
pub(crate) fn check(
    insets: &[Inset<'_>],
    at: usize,
    new: Range<usize>,
    width: usize,
) -> Result<(), Error> {
    let bad = |what: String| Err(Error::BadStep(format!("sequence {at}: {what}")));
    let mut end = 0;
    for inset in insets {
        let Inset { len, rows, spots, span, together, runs, .. } = *inset;
        let own = inset.range();
        if len == 0 || own.start < end {
            return bad(format!("rows of an image begin at {}, within what is before", own.start));
        }
        end = own.end;
        if !spots.is_empty() && spots.len() != len || span == 0 {
            return bad(format!("{len} rows of an image have {} places", spots.len()));
        }
        let ascend = runs.windows(2).all(|pair| pair[0] < pair[1]) && runs.first() != Some(&0);
        if !ascend || runs.last().is_some_and(|&last| last as usize != len) {
            return bad("runs of rows must ascend to their number".to_owned());
        }
        let step = own.start.max(new.start)..own.end.min(new.end);
        if step.is_empty() {
            continue;
        }
        if width == 0 {
            return bad("this model takes no rows of numbers".to_owned());
        }
        if rows.len() != len * width {
            let got = rows.len();
            return bad(format!("{len} rows of an image have {got} numbers but need {width} each"));
        }
        if (together != Together::No || !runs.is_empty()) && step != own {
            return bad(format!("rows {} to {} of an image must be one step", own.start, own.end));
        }
    }
    Ok(())
}

/// Goes through the positions of a sequence.
pub(crate) struct Walk<'a> {
    insets: &'a [Inset<'a>],
    next: usize,
    /// What places are beyond positions, behind the insets so far.
    shift: i64,
}

impl<'a> Walk<'a> {
    pub(crate) fn new(insets: &'a [Inset<'a>]) -> Walk<'a> {
        Walk { insets, next: 0, shift: 0 }
    }

    /// The place of a position, and its row if it has one; positions ascend from call to call.
    pub(crate) fn at(&mut self, position: usize) -> (Spot, Option<&'a [f32]>) {
        while let Some(inset) = self.insets.get(self.next).filter(|i| i.range().end <= position) {
            self.shift += inset.span as i64 - inset.len as i64;
            self.next += 1;
        }
        let place = |position: usize| (position as i64 + self.shift) as u32;
        let inset = self.insets.get(self.next).filter(|i| i.at <= position);
        let Some(inset) = inset else { return ([place(position); 3], None) };
        let row = position - inset.at;
        let spot = match inset.spots.get(row) {
            Some(spot) => spot.map(|own| place(inset.at) + own),
            None => [place(position); 3],
        };
        let width = inset.rows.len() / inset.len;
        (spot, Some(&inset.rows[row * width..(row + 1) * width]))
    }
}

/// The inset that a position is in.
pub(crate) fn within<'a>(insets: &'a [Inset<'a>], position: usize) -> Option<&'a Inset<'a>> {
    insets.iter().find(|inset| inset.range().contains(&position))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Inset<'static> =
        Inset { at: 0, len: 1, rows: &[], spots: &[], span: 1, together: Together::No, runs: &[] };

    #[test]
    fn places_go_on_behind_an_image_by_its_span() {
        let rows: Vec<f32> = (0..12).map(|x| x as f32).collect();
        let spots = [[0, 0, 0], [0, 0, 1], [0, 1, 0], [0, 1, 1]];
        // Two by two at position 3, which are two places; then two rows one behind the other.
        let image = Inset { at: 3, len: 4, rows: &rows[..8], spots: &spots, span: 2, ..PLAIN };
        let plain = Inset { at: 8, len: 2, rows: &rows[8..], span: 2, ..PLAIN };
        let insets = [image, plain];
        let mut walk = Walk::new(&insets);
        let all: Vec<_> = (0..11).map(|position| walk.at(position)).collect();
        assert_eq!(all[2], ([2; 3], None));
        assert_eq!(all[5], ([3, 4, 3], Some(&rows[4..6])));
        assert_eq!(all[7], ([5; 3], None), "the image took the places 3 and 4");
        assert_eq!(all[9], ([7; 3], Some(&rows[10..])));
        assert_eq!(all[10].0, [8; 3]);
        // Beginning behind it is the same.
        assert_eq!(Walk::new(&insets).at(7), all[7]);
    }

    #[test]
    fn rows_see_their_run() {
        let inset = Inset { at: 10, len: 7, runs: &[3, 7], ..PLAIN };
        let runs: Vec<_> = [10, 12, 13, 16].map(|position| inset.run(position)).into();
        assert_eq!(runs, [10..13, 10..13, 13..17, 13..17]);
        assert_eq!(Inset { runs: &[], ..inset }.run(12), 10..17);
    }

    #[test]
    fn contradictions_are_refused() {
        let rows = [0.0; 12];
        let image = Inset { at: 2, len: 3, rows: &rows, span: 3, ..PLAIN };
        let refused = |insets: &[Inset<'_>], new| {
            check(insets, 0, new, 4).err().map(|error| error.to_string()).unwrap_or_default()
        };
        assert_eq!(refused(&[image], 0..4), "");
        assert!(refused(&[image, image], 0..9).contains("within what is before"));
        let short = Inset { rows: &rows[..8], ..image };
        assert!(refused(&[short], 0..4).contains("8 numbers but need 4 each"));
        assert_eq!(refused(&[short], 5..9), "", "none of them is in the step");
        let together = Inset { together: Together::Everywhere, ..image };
        assert!(refused(&[together], 0..4).contains("must be one step"));
        assert_eq!(refused(&[together], 0..5), "");
        assert!(refused(&[Inset { runs: &[2], ..image }], 0..9).contains("ascend to their number"));
        let error = check(&[image], 0, 0..9, 0).unwrap_err().to_string();
        assert!(error.contains("takes no rows"), "{error}");
    }
}
