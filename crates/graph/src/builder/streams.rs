//! Several residual streams, and feed-forward layers of which only the largest gates count (Gemma 3n).

use super::Builder;
use crate::error::Error;
use crate::op::{Activation, Norm, TileSums};
use crate::operators::{ModulationOp, Streams, StreamsOp};
use crate::placement::{Cut, Placement};
use crate::recurrent::{Above, Modulation, columns};
use crate::tensor::Bundle;
use crate::weight::{Layout, MatrixId, Part, SplitBy, VectorId};
use std::ops::Range;

impl Builder<'_> {
    /// Declares the matrices of a tensor `[count, width, width]`, which every node has, as one matrix.
    ///
    /// # Errors
    /// When there is no such tensor, or it has another shape.
    pub fn stacked(
        &mut self,
        what: &str,
        tensor: &str,
        (count, width): (usize, usize),
    ) -> Result<MatrixId, Error> {
        self.of_stacked(what, tensor, (count, width), 0..count)
    }

    /// The same as a matrix each.
    ///
    /// # Errors
    /// As [`Builder::stacked`].
    pub fn each_stacked(
        &mut self,
        what: &str,
        tensor: &str,
        (count, width): (usize, usize),
    ) -> Result<Vec<MatrixId>, Error> {
        let one = |at| self.of_stacked(what, tensor, (count, width), at..at + 1);
        (0..count).map(one).collect()
    }

    /// Some of them, as one matrix.
    fn of_stacked(
        &mut self,
        what: &str,
        tensor: &str,
        (count, width): (usize, usize),
        some: Range<usize>,
    ) -> Result<MatrixId, Error> {
        let ty = self.wanted_bank(tensor, count, width, width)?;
        let scale = self.scale(tensor, ty, 1)?;
        let rows = some.len() * width;
        let cut = Cut::replicated(vec![0..rows; self.graph.nodes()]);
        let (first, layout) = (some.start * width, Layout::Rows);
        let part = Part { first, scale, layout, ..Part::plain(tensor, ty, (rows, width), cut) };
        Ok(self.add_matrix(what, SplitBy::Rows, vec![part]))
    }

    /// [`Streams::Begin`]: `x` and what `y` has of the other streams.
    pub fn begin_streams(&mut self, x: Bundle, y: Bundle, least: f32) -> Bundle {
        let (width, _) = self.expect(x, Placement::Replicated, "streams");
        let (others, _) = self.expect(y, Placement::Replicated, "streams");
        let count = others / width + 1;
        self.streams(x, Some(y), None, count, count * width, Streams::Begin { least })
    }

    /// [`Streams::Predict`].
    pub fn predict(&mut self, x: Bundle, scores: Bundle, table: VectorId) -> Bundle {
        let (count, width) = self.counted(x, scores);
        self.streams(x, None, Some(scores), count, count * width, Streams::Predict { table })
    }

    /// [`Streams::Correct`].
    pub fn correct(
        &mut self,
        x: Bundle,
        (y, scores): (Bundle, Bundle),
        (active, table): (usize, VectorId),
    ) -> Bundle {
        let (count, width) = self.counted(x, scores);
        assert_eq!(self.expect(y, Placement::Replicated, "streams").0, width, "a stream");
        let what = Streams::Correct { active, table };
        self.streams(x, Some(y), Some(scores), count, count * width, what)
    }

    /// [`Streams::Take`]: one of `count` streams.
    pub fn take_stream(
        &mut self,
        x: Bundle,
        (at, count): (usize, usize),
        factor: Option<VectorId>,
    ) -> Bundle {
        let (all, _) = self.expect(x, Placement::Replicated, "streams");
        self.streams(x, None, None, count, all / count, Streams::Take { at, factor })
    }

    /// [`Streams::TakeTwice`]: one of `count` streams and its norm.
    pub fn take_stream_twice(
        &mut self,
        x: Bundle,
        (at, count): (usize, usize),
        (norm, scale): (Norm, f32),
    ) -> Bundle {
        let (all, _) = self.expect(x, Placement::Replicated, "streams");
        self.streams(x, None, None, count, all / count, Streams::TakeTwice { at, norm, scale })
    }

    /// [`Streams::Spread`].
    pub fn spread(&mut self, x: Bundle, y: Bundle) -> Bundle {
        let (all, _) = self.expect(x, Placement::Replicated, "streams");
        let (width, _) = self.expect(y, Placement::Replicated, "streams");
        self.streams(x, Some(y), None, all / width, all, Streams::Spread)
    }

    /// [`Streams::Merge`]: `y`, brought to the length of `like`, comes to `x`.
    pub fn merge_stream(
        &mut self,
        x: Bundle,
        (y, like): (Bundle, Bundle),
        (least, scale): (f32, f32),
    ) -> Bundle {
        let (width, _) = self.expect(x, Placement::Replicated, "streams");
        self.streams(x, Some(y), Some(like), 1, width, Streams::Merge { least, scale })
    }

    /// How many streams `x` is, by the scores of each, and the width of one.
    fn counted(&self, x: Bundle, scores: Bundle) -> (usize, usize) {
        let (all, _) = self.expect(x, Placement::Replicated, "streams");
        let (count, _) = self.expect(scores, Placement::Replicated, "streams");
        (count, all / count)
    }

    fn streams(
        &mut self,
        x: Bundle,
        y: Option<Bundle>,
        z: Option<Bundle>,
        count: usize,
        width: usize,
        what: Streams,
    ) -> Bundle {
        let (_, domain) = self.expect(x, Placement::Replicated, what.name());
        let widths = self.everywhere(width);
        self.push(StreamsOp { x, y, z, count, what }, Placement::Replicated, domain, &widths)
    }

    /// `f(max(gate·x - least, 0)) * (up·x)` of a paired matrix, where `least` is the mean of all gates of a row and
    /// so many of their standard deviations. Replicated to split.
    ///
    /// # Panics
    /// When gates are no whole tiles.
    pub fn gated_above(
        &mut self,
        x: Bundle,
        matrix: MatrixId,
        (f, deviations): (Activation, f32),
    ) -> Bundle {
        let product = self.linear(x, matrix);
        self.product_mut(product).told = Some(TileSums::Moments);
        let (_, domain) = self.expect(product, Placement::Split, "gate");
        let m = self.graph.matrix(matrix);
        let width = m.parts[0].rows;
        assert!(width.is_multiple_of(kernels::TILE_ROWS), "gates are whole tiles");
        let nodes = 0..self.graph.nodes();
        let up = |node| columns((0..2).map(|p| m.rows(p, node).len()))[1];
        let spec = Modulation {
            norm: None,
            gate: Some((f, vec![0; nodes.len()])),
            above: Some(Above { deviations, width }),
            from: nodes.clone().map(up).collect(),
        };
        let widths: Vec<usize> = nodes.map(|node| m.rows(1, node).len()).collect();
        let op = ModulationOp { x: product, gate: Some(product), spec: Box::new(spec) };
        self.push(op, Placement::Split, domain, &widths)
    }
}
