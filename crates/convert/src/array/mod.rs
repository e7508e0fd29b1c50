//! Tensors that are not made yet: what is stored, and what is to be done with it.
//!
//! An [`Array`] is a matrix of which any block can be made by itself, so nothing is ever held whole: rows of
//! a permuted, split or stacked tensor are read where they lie. Its shape is as in the folder, the outermost
//! dimension first; rows are those of all dimensions but the last.

mod blocks;

use blocks::{Behind, Columns, Each, Folded, Gather, Ternary, Turned, Values, Zeros};
use gguf::TensorType;
use half::f16;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// What blocks of `f32` are read from.
pub(crate) trait Blocks: Send + Sync {
    /// Reads `rows` × `cols` to `out`, row by row.
    fn block(&self, rows: Range<usize>, cols: Range<usize>, out: &mut [f32]);

    /// Appends whole rows in the type that the array [keeps](Array::kept).
    fn packed(&self, rows: Range<usize>, out: &mut Vec<u8>) {
        let _ = (rows, out);
        unreachable!("only what keeps its type is asked for it");
    }
}

/// A tensor by how it is made.
#[derive(Clone)]
pub(crate) struct Array {
    shape: Vec<usize>,
    from: Arc<dyn Blocks>,
    /// Results of arithmetic are rounded to half precision, as they are where the folder has it.
    half: bool,
    /// A type of the file that rows are in already.
    kept: Option<TensorType>,
}

impl std::fmt::Debug for Array {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Array").field(&self.shape).finish()
    }
}

impl Array {
    /// An array of blocks that have this many rows and columns.
    pub(crate) fn new(shape: &[usize], half: bool, from: impl Blocks + 'static) -> Array {
        Array { shape: shape.to_vec(), from: Arc::new(from), half, kept: None }
    }

    /// Rows that are in a type of the file already, and are to stay so.
    pub(crate) fn in_type(shape: &[usize], ty: TensorType, from: impl Blocks + 'static) -> Array {
        Array { kept: Some(ty), ..Array::new(shape, false, from) }
    }

    /// The type that rows are in already.
    pub(crate) fn kept(&self) -> Option<TensorType> {
        self.kept
    }

    /// Appends whole rows in that type.
    pub(crate) fn packed(&self, rows: Range<usize>, out: &mut Vec<u8>) {
        self.from.packed(rows, out);
    }

    /// Numbers that are known.
    pub(crate) fn of_values(values: Vec<f32>) -> Array {
        Array::new(&[values.len()], false, Values(values))
    }

    /// Outermost dimension first.
    pub(crate) fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Elements of the last dimension; 1 of a vector, whose elements are its rows.
    pub(crate) fn cols(&self) -> usize {
        if self.shape.len() < 2 { 1 } else { self.shape[self.shape.len() - 1] }
    }

    /// All dimensions but the last.
    pub(crate) fn rows(&self) -> usize {
        self.elements().checked_div(self.cols()).unwrap_or(0)
    }

    /// Elements of all dimensions.
    pub(crate) fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Reads whole rows.
    pub(crate) fn read(&self, rows: Range<usize>, out: &mut [f32]) {
        self.from.block(rows, 0..self.cols(), out);
    }

    /// All elements, of an array small enough to be held.
    pub(crate) fn all(&self) -> Vec<f32> {
        let mut values = vec![0.0; self.elements()];
        self.read(0..self.rows(), &mut values);
        values
    }

    /// Reads a block of rows and columns.
    pub(crate) fn read_block(&self, rows: Range<usize>, cols: Range<usize>, out: &mut [f32]) {
        self.from.block(rows, cols, out);
    }

    /// The outermost dimension cut to a range.
    pub(crate) fn part(&self, outer: Range<usize>) -> Array {
        let each = self.rows() / self.shape[0].max(1);
        let mut shape = self.shape.clone();
        shape[0] = outer.len();
        let run = outer.start * each..outer.end * each;
        self.with(shape, std::iter::once(run).collect())
    }

    /// Rows by their numbers: runs of the present rows, one behind the other, in a new shape of the same
    /// columns.
    fn with(&self, shape: Vec<usize>, runs: Vec<Range<usize>>) -> Array {
        let mut starts = Vec::with_capacity(runs.len());
        let mut at = 0;
        for run in &runs {
            starts.push(at);
            at += run.len();
        }
        let gather = Gather { from: self.from.clone(), runs, starts };
        Array { shape, from: Arc::new(gather), ..self.clone() }
    }

    /// Runs of rows one behind the other, as a matrix; of a vector, of its elements.
    pub(crate) fn runs(&self, runs: Vec<Range<usize>>) -> Array {
        let rows = runs.iter().map(|run| run.len()).sum();
        let shape = if self.shape.len() < 2 { vec![rows] } else { vec![rows, self.cols()] };
        self.with(shape, runs)
    }

    /// The rows of `self`, in the order that `from` gives for each row, in the same shape.
    pub(crate) fn reordered(&self, from: impl Fn(usize) -> usize) -> Array {
        let mut runs: Vec<Range<usize>> = Vec::new();
        for row in 0..self.rows() {
            let source = from(row);
            match runs.last_mut() {
                Some(run) if run.end == source => run.end += 1,
                _ => runs.push(source..source + 1),
            }
        }
        self.with(self.shape.clone(), runs)
    }

    /// Rows of heads whose halves RoPE pairs, brought to neighbours in pairs.
    pub(crate) fn interleaved(&self, heads: usize) -> Array {
        let dim = self.rows() / heads.max(1);
        self.reordered(|row| {
            let (head, i) = (row / dim, row % dim);
            head * dim + i % 2 * (dim / 2) + i / 2
        })
    }

    /// Cuts the last dimension but one into so many equal parts. Of more dimensions, each member is cut.
    pub(crate) fn split(&self, parts: usize) -> Vec<Array> {
        let rank = self.shape.len();
        let whole = self.shape[rank.saturating_sub(2)];
        let each = whole / parts;
        let members = self.rows() / whole.max(1);
        let part = |n: usize| {
            let runs = (0..members).map(|m| m * whole + n * each..m * whole + (n + 1) * each);
            let mut shape = self.shape.clone();
            shape[rank.saturating_sub(2)] = each;
            self.with(shape, runs.collect())
        };
        (0..parts).map(part).collect()
    }

    /// Every `step`th of the last dimension but one, from `first` on.
    pub(crate) fn every(&self, step: usize, first: usize) -> Array {
        let rank = self.shape.len();
        let mut shape = self.shape.clone();
        shape[rank.saturating_sub(2)] /= step;
        let runs = (0..self.rows()).skip(first).step_by(step).map(|row| row..row + 1);
        self.with(shape, runs.collect())
    }

    /// The same elements in another shape.
    pub(crate) fn reshaped(&self, shape: &[usize]) -> Array {
        let shaped = Array { shape: shape.to_vec(), ..self.clone() };
        match shaped.cols() == self.cols() {
            true => shaped,
            false => Array {
                from: Arc::new(Folded {
                    from: self.from.clone(),
                    before: self.cols(),
                    cols: shaped.cols(),
                }),
                kept: None,
                ..shaped
            },
        }
    }

    /// The same without dimensions of 1.
    pub(crate) fn squeezed(&self) -> Array {
        let mut shape: Vec<usize> = self.shape.iter().copied().filter(|&d| d != 1).collect();
        if shape.is_empty() {
            shape.push(1);
        }
        self.reshaped(&shape)
    }

    /// The last two dimensions exchanged.
    pub(crate) fn turned(&self) -> Array {
        let rank = self.shape.len();
        let (rows, cols) = (self.shape[rank - 2], self.shape[rank - 1]);
        let mut shape = self.shape.clone();
        shape.swap(rank - 2, rank - 1);
        Array {
            shape,
            from: Arc::new(Turned { from: self.from.clone(), rows, cols }),
            half: self.half,
            kept: None,
        }
    }

    /// Columns by their numbers.
    pub(crate) fn columns(&self, from: Vec<usize>) -> Array {
        let (all, mut shape) = (self.cols(), self.shape.clone());
        *shape.last_mut().expect("what has columns has dimensions") = from.len();
        Array {
            shape,
            from: Arc::new(Columns { from: self.from.clone(), order: from, all }),
            half: self.half,
            kept: None,
        }
    }

    /// Every element changed.
    pub(crate) fn each(&self, change: impl Fn(f32) -> f32 + Send + Sync + 'static) -> Array {
        let half = self.half;
        let each = Each {
            from: self.from.clone(),
            change: Box::new(move |x| {
                let y = change(x);
                if half { f16::from_f32(y).to_f32() } else { y }
            }),
        };
        Array { shape: self.shape.clone(), from: Arc::new(each), half, kept: None }
    }

    /// Every element as -1, 0 or 1 times the mean of all magnitudes: the nearest, as BitNet has it.
    pub(crate) fn ternary(&self) -> Array {
        let (from, mean) = (self.from.clone(), OnceLock::new());
        let ternary = Ternary { from, rows: self.rows(), cols: self.cols(), mean };
        let half = self.half;
        let array = Array::new(&self.shape, half, ternary);
        if half { array.each(|x| x) } else { array }
    }

    /// Arrays of the same columns, one behind the other along the outermost dimension.
    pub(crate) fn joined(parts: Vec<Array>) -> Array {
        let mut shape = parts[0].shape.clone();
        shape[0] = parts.iter().map(|part| part.shape[0]).sum();
        Array::behind(shape, parts)
    }

    /// Arrays of one shape as members of a new outermost dimension.
    pub(crate) fn stacked(parts: Vec<Array>) -> Array {
        let shape = std::iter::once(parts.len()).chain(parts[0].shape.iter().copied()).collect();
        // Vectors become rows of a matrix.
        let row = |part: Array| match part.shape.len() {
            1 => part.reshaped(&[1, part.shape[0]]),
            _ => part,
        };
        Array::behind(shape, parts.into_iter().map(row).collect())
    }

    fn behind(shape: Vec<usize>, parts: Vec<Array>) -> Array {
        let (half, kept) = (parts[0].half, parts[0].kept);
        let kept = kept.filter(|_| parts.iter().all(|part| part.kept == kept));
        let mut ends = Vec::with_capacity(parts.len());
        let mut end = 0;
        for part in &parts {
            end += part.rows();
            ends.push(end);
        }
        let parts = parts.into_iter().map(|part| part.from).collect();
        Array { shape, from: Arc::new(Behind { parts, ends }), half, kept }
    }

    /// With rows of zeros behind, up to so many of the outermost dimension.
    pub(crate) fn padded(&self, outer: usize) -> Array {
        if outer <= self.shape[0] {
            return self.clone();
        }
        let mut zeros = self.shape.clone();
        zeros[0] = outer - self.shape[0];
        Array::joined(vec![self.clone(), Array::new(&zeros, self.half, Zeros)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Element (row, column) is `10 row + column`.
    struct Grid;

    impl Blocks for Grid {
        fn block(&self, rows: Range<usize>, cols: Range<usize>, out: &mut [f32]) {
            let at = rows.flat_map(|r| cols.clone().map(move |c| (10 * r + c) as f32));
            out.iter_mut().zip(at).for_each(|(out, x)| *out = x);
        }
    }

    fn grid(shape: &[usize]) -> Array {
        Array::new(shape, false, Grid)
    }

    fn all(array: &Array) -> Vec<f32> {
        let mut whole = vec![0.0; array.elements()];
        array.read(0..array.rows(), &mut whole);
        // Row by row it is the same.
        for row in 0..array.rows() {
            let mut one = vec![0.0; array.cols()];
            array.read(row..row + 1, &mut one);
            assert_eq!(one, whole[row * array.cols()..][..array.cols()]);
        }
        whole
    }

    #[test]
    fn halves_of_heads_become_neighbours() {
        let q = grid(&[8, 1]).interleaved(2);
        assert_eq!(all(&q), [0.0, 20.0, 10.0, 30.0, 40.0, 60.0, 50.0, 70.0]);
        let bias = Array::of_values((0..4).map(|x| x as f32).collect()).interleaved(1);
        assert_eq!((all(&bias), bias.shape()), (vec![0.0, 2.0, 1.0, 3.0], &[4][..]));
    }

    #[test]
    fn members_are_split_each() {
        let experts = grid(&[2, 4, 1]);
        let [gate, up] = &experts.split(2)[..] else { unreachable!() };
        assert_eq!((all(gate), gate.shape()), (vec![0.0, 10.0, 40.0, 50.0], &[2, 2, 1][..]));
        assert_eq!(all(up), [20.0, 30.0, 60.0, 70.0]);
        assert_eq!(all(&experts.every(2, 1)), [10.0, 30.0, 50.0, 70.0]);
        assert_eq!(all(&experts.part(1..2)), [40.0, 50.0, 60.0, 70.0]);
    }

    #[test]
    fn matrices_are_turned_each() {
        let turned = grid(&[2, 2, 3]).turned();
        assert_eq!(turned.shape(), [2, 3, 2]);
        assert_eq!(
            all(&turned),
            [0.0, 10.0, 1.0, 11.0, 2.0, 12.0, 20.0, 30.0, 21.0, 31.0, 22.0, 32.0]
        );
        let mut part = [0.0; 3];
        turned.from.block(2..5, 1..2, &mut part);
        assert_eq!(part, [12.0, 30.0, 31.0]);
    }

    #[test]
    fn shapes_change_and_elements_stay() {
        let vector = Array::of_values((0..6).map(|x| x as f32).collect());
        let folded = vector.reshaped(&[2, 3]);
        assert_eq!(all(&folded), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!(all(&folded.reshaped(&[3, 2])), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!(folded.turned().shape(), [3, 2]);
        assert_eq!(grid(&[4, 1, 3]).squeezed().shape(), [4, 3]);
    }

    #[test]
    fn arrays_go_one_behind_the_other() {
        let stacked = Array::stacked(vec![grid(&[2, 2]), grid(&[2, 2]).each(|x| x + 100.0)]);
        assert_eq!(stacked.shape(), [2, 2, 2]);
        assert_eq!(all(&stacked), [0.0, 1.0, 10.0, 11.0, 100.0, 101.0, 110.0, 111.0]);
        assert_eq!(all(&grid(&[1, 2]).padded(2)), [0.0, 1.0, 0.0, 0.0]);
        assert_eq!(all(&grid(&[2, 3]).columns(vec![2, 0, 1])), [2.0, 0.0, 1.0, 12.0, 10.0, 11.0]);
        let vectors = Array::stacked(vec![Array::of_values(vec![1.0, 2.0]); 2]);
        assert_eq!((all(&vectors), vectors.shape()), (vec![1.0, 2.0, 1.0, 2.0], &[2, 2][..]));
    }

    #[test]
    fn numbers_become_three() {
        let of = Array::of_values(vec![3.0, -0.5, 0.25, -2.25]).reshaped(&[2, 2]);
        // The mean is 1.5; half of it is nearer to none.
        assert_eq!(all(&of.ternary()), [1.5, 0.0, 0.0, -1.5]);
    }

    #[test]
    fn arithmetic_is_rounded_where_the_folder_is_half() {
        let half = Array::new(&[1], true, Values(vec![1.0 / 1024.0])).each(|x| x + 1.0);
        let exact = Array::new(&[1], false, Values(vec![1.0 / 4096.0])).each(|x| x + 1.0);
        let rounded = Array::new(&[1], true, Values(vec![1.0 / 4096.0])).each(|x| x + 1.0);
        assert_eq!(
            [all(&half)[0], all(&exact)[0], all(&rounded)[0]],
            [1025.0 / 1024.0, 4097.0 / 4096.0, 1.0]
        );
    }
}
