//! Rows and scales of a block, by least weighted squared error.
//!
//! First every sub-block looks for the scale that it would like, over a range of them with the best
//! rows for each. Then the block's scale is chosen such that odd multiples of it come near to those.
//! Then, with the multiples that there are, the rows are chosen again, and once more the block's
//! scale.

use half::f16;

use super::codebook::Codebook;
use crate::blocks::half_scale;
use crate::search::extreme;
use crate::{Error, TensorType};

/// Elements of a block.
pub(super) const LEN: usize = 256;
/// Most groups of elements that share a row.
pub(super) const GROUPS: usize = LEN / 4;
/// Most sub-blocks, each with a scale.
pub(super) const SUBS: usize = LEN / 16;

/// How a type stores 256 values: as rows of `W` values of a table with `L` levels.
pub(super) struct Format<const W: usize, const L: usize> {
    pub(super) ty: TensorType,
    pub(super) table: &'static [[i8; W]],
    pub(super) book: Codebook<W, L>,
    pub(super) levels: [i8; L],
    /// What may be added to the values of a row; to all rows of a sub-block the same, or to each its
    /// own.
    pub(super) shifts: &'static [f32],
    pub(super) shift_by_row: bool,
    /// Elements that share a scale.
    pub(super) sub: usize,
    /// Most steps of a scale, which is twice the steps and one.
    pub(super) steps: u8,
    /// What the scale in the file is divided by.
    pub(super) divisor: f32,
    /// The first scale to try, as a share of that with which the largest value is the highest level;
    /// and by what each further one is larger.
    pub(super) range: (f32, f32),
}

/// A row, and what is added to its values.
#[derive(Clone, Copy, Default)]
pub(super) struct Choice {
    pub(super) row: u16,
    pub(super) shift: f32,
}

/// A block as a type stores it.
pub(super) struct Made {
    pub(super) half: f16,
    /// Steps of the scales, sub-block after sub-block.
    pub(super) steps: [u8; SUBS],
    /// Rows, group after group.
    pub(super) rows: [Choice; GROUPS],
}

/// What least squares needs of values `x`, weights `w` and the values `v` of their rows.
#[derive(Clone, Copy, Default)]
struct Sums {
    /// Σwxv.
    wxv: f32,
    /// Σwv².
    wvv: f32,
}

impl Sums {
    /// The scale with the least error.
    fn scale(self) -> f32 {
        if self.wvv > 0.0 { (self.wxv / self.wvv).max(0.0) } else { 0.0 }
    }

    /// How much less than Σwx² the error then is.
    fn gain(self) -> f32 {
        self.scale() * self.wxv
    }
}

/// Scales tried for a sub-block, besides the best one after those. With twice as many, no error is
/// less by a third of a per cent.
const TRIES: usize = 8;

impl<const W: usize, const L: usize> Format<W, L> {
    /// Block `block`: values `x`, in which signs that are stored apart are not.
    ///
    /// # Errors
    /// [`Error::ScaleOverflow`].
    pub(super) fn make(&self, x: &[f32; LEN], w: &[f32; LEN], block: usize) -> Result<Made, Error> {
        let zero = Made { half: f16::ZERO, steps: [0; SUBS], rows: [Choice::default(); GROUPS] };
        let largest = extreme(x).abs();
        if !(1.0 / largest).is_finite() {
            return Ok(zero);
        }
        // So that no square is too large or too small for a single.
        let x = &x.map(|x| x / largest);
        let half = |scale: f32| half_scale(scale * largest * self.divisor, self.ty, block, LEN);
        let back = |half: f16| half.to_f32() / largest / self.divisor;

        let subs = || x.chunks(self.sub).zip(w.chunks(self.sub));
        let mut wishes = [Sums::default(); SUBS];
        for (wish, (x, w)) in wishes.iter_mut().zip(subs()) {
            *wish = self.wish(x, w);
        }
        let unit = back(half(self.share(&wishes))?);
        if unit <= 0.0 {
            return Ok(zero);
        }
        let mut made = zero;
        // Sums over the block, with the multiples that there are.
        let mut all = Sums::default();
        let rows = made.rows.chunks_mut(self.sub / W);
        for ((((x, w), rows), steps), wish) in subs().zip(rows).zip(&mut made.steps).zip(&wishes) {
            let sums = self.settle(x, w, wish.scale() / unit, unit, rows, steps);
            let odd = f32::from(2 * *steps + 1);
            all.wxv += odd * sums.wxv;
            all.wvv += odd * odd * sums.wvv;
        }
        made.half = half(all.scale())?;
        Ok(made)
    }

    /// The best choice of rows at any scale.
    fn wish(&self, x: &[f32], w: &[f32]) -> Sums {
        let top = f32::from(*self.levels.iter().max().expect("levels"));
        let whole = extreme(x).abs() / top;
        let (first, factor) = self.range;
        let mut best = Sums::default();
        let mut rows = [Choice::default(); GROUPS];
        let mut look = |scale: f32, best: &mut Sums| {
            for shifts in self.shifts() {
                self.choose(x, w, scale, shifts, &mut rows);
                let sums = self.sums(x, w, &rows);
                if sums.gain() > best.gain() {
                    *best = sums;
                }
            }
        };
        let mut scale = whole * first;
        for _ in 0..TRIES {
            look(scale, &mut best);
            scale *= factor;
        }
        look(best.scale(), &mut best);
        // Values that are all alike: the tables have such rows of the lowest level, far from the range.
        let smallest = x.iter().fold(f32::INFINITY, |least, x| least.min(x.abs()));
        let lowest = f32::from(self.levels[0]);
        if lowest > 0.0 && smallest > 0.9 * extreme(x).abs() {
            look(smallest / lowest, &mut best);
        }
        best
    }

    /// The shifts among which the rows of a sub-block may choose.
    fn shifts(&self) -> impl Iterator<Item = &[f32]> {
        self.shifts.chunks(if self.shift_by_row { self.shifts.len() } else { 1 })
    }

    /// The scale of which odd multiples come nearest to what the sub-blocks wish.
    fn share(&self, wishes: &[Sums; SUBS]) -> f32 {
        let most = wishes.iter().fold(0f32, |most, wish| most.max(wish.scale()));
        let end = f32::from(2 * self.steps + 1);
        let mut best = (f32::INFINITY, 0.0);
        for i in 0..=48 {
            let unit = most / (end + 4.0 - i as f32 * 0.25);
            let miss = |wish: &Sums| {
                let scale = wish.scale();
                wish.wvv * (f32::from(2 * self.steps_of(scale / unit) + 1) * unit - scale).powi(2)
            };
            let error: f32 = wishes.iter().map(miss).sum();
            if error < best.0 {
                best = (error, unit);
            }
        }
        best.1
    }

    /// The steps of the odd number nearest to `multiple`.
    fn steps_of(&self, multiple: f32) -> u8 {
        ((multiple * 0.5) as u8).min(self.steps)
    }

    /// The best rows, and the better of the two odd multiples of `unit` about the `multiple` wished.
    fn settle(
        &self,
        x: &[f32],
        w: &[f32],
        multiple: f32,
        unit: f32,
        rows: &mut [Choice],
        steps: &mut u8,
    ) -> Sums {
        let low = ((multiple - 1.0) * 0.5) as u8;
        let mut most = f32::NEG_INFINITY;
        let mut now = [Choice::default(); GROUPS];
        let now = &mut now[..rows.len()];
        for candidate in [low, low.saturating_add(1)].map(|steps| steps.min(self.steps)) {
            let scale = unit * f32::from(2 * candidate + 1);
            for shifts in self.shifts() {
                let gain = self.choose(x, w, scale, shifts, now);
                if gain > most {
                    (most, *steps) = (gain, candidate);
                    rows.copy_from_slice(now);
                }
            }
        }
        self.sums(x, w, rows)
    }

    /// The best rows for a scale, and what is gained.
    fn choose(&self, x: &[f32], w: &[f32], scale: f32, shifts: &[f32], rows: &mut [Choice]) -> f32 {
        let mut sum = 0.0;
        for ((x, w), to) in x.as_chunks().0.iter().zip(w.as_chunks().0).zip(rows) {
            let mut most = f32::NEG_INFINITY;
            for &shift in shifts {
                let found = self.book.best(&self.gains(x, w, scale, shift));
                if found.gain > most {
                    most = found.gain;
                    *to = Choice { row: found.row, shift };
                }
            }
            sum += most;
        }
        sum
    }

    /// What each level gains at each place: w(x² − (x − v)²), v being the scaled level.
    fn gains(&self, x: &[f32; W], w: &[f32; W], scale: f32, shift: f32) -> [[f32; L]; W] {
        let values = self.levels.map(|level| scale * (f32::from(level) + shift));
        std::array::from_fn(|i| values.map(|v| w[i] * v * (2.0 * x[i] - v)))
    }

    fn sums(&self, x: &[f32], w: &[f32], rows: &[Choice]) -> Sums {
        let mut sums = Sums::default();
        let groups = x.as_chunks::<W>().0.iter().zip(w.as_chunks::<W>().0);
        for ((x, w), choice) in groups.zip(rows) {
            for (i, &value) in self.table[usize::from(choice.row)].iter().enumerate() {
                let v = f32::from(value) + choice.shift;
                sums.wxv += w[i] * x[i] * v;
                sums.wvv += w[i] * v * v;
            }
        }
        sums
    }
}
