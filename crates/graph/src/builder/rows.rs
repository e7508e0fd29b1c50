//! Rows of numbers that a step has in place of tokens ([`Inset`](crate::Inset)), and what becomes of several of them.

use super::{Builder, Tensors};
use crate::error::Error;
use crate::op::{Added, Merging, RopeId};
use crate::operators::{EmbedOp, HiddenOp, MergeOp, RowsOp};
use crate::placement::{Cut, Placement};
use crate::tensor::{Bundle, Domain};
use crate::weight::{Layout, MatrixId, Part, SplitBy, block_cols};
use gguf::TensorType;

impl Builder<'_> {
    /// Rows of a table for the step's tokens, times `scale`; tokens with [rows](crate::Inset) have the first token's.
    pub fn embed_ids(&mut self, table: MatrixId, scale: f32) -> Bundle {
        let widths = self.everywhere(self.graph.matrix(table).parts[0].cols);
        let op = EmbedOp { table, scale, added: Added::default(), insets: false };
        self.push(op, Placement::Replicated, Domain::Tokens, &widths)
    }

    /// `width` columns of the step's rows, from column `from` on.
    pub fn rows(&mut self, from: usize, width: usize) -> Bundle {
        let widths = self.everywhere(width);
        let op = RowsOp { x: None, from, matrix: None };
        self.push(op, Placement::Replicated, Domain::Tokens, &widths)
    }

    /// The same as the columns of `matrix` are split.
    pub fn rows_for(&mut self, from: usize, matrix: MatrixId) -> Bundle {
        let m = self.graph.matrix(matrix);
        let widths: Vec<usize> = (0..self.graph.nodes()).map(|n| m.input_width(n)).collect();
        let op = RowsOp { x: None, from, matrix: Some(matrix) };
        self.push(op, Placement::Split, Domain::Tokens, &widths)
    }

    /// `x` plus the columns from `from` on of rows of the tokens that have some.
    pub fn add_rows(&mut self, x: Bundle, from: usize) -> Bundle {
        let (width, _) = self.expect(x, Placement::Replicated, "rows");
        let widths = self.everywhere(width);
        let op = RowsOp { x: Some(x), from, matrix: None };
        self.push(op, Placement::Replicated, Domain::Tokens, &widths)
    }

    /// Has each pair of a rotary embedding follow an axis of [places](crate::Spot).
    pub fn follow(&mut self, rope: RopeId, axes: Vec<u8>) {
        self.graph.tables.ropes[rope.0 as usize].axes = axes;
    }

    /// Declares a matrix, `(rows, cols)`, whose columns are cut over the nodes.
    ///
    /// # Errors
    /// When there is no such tensor, or it has another shape.
    pub fn by_columns(
        &mut self,
        what: &str,
        tensor: &str,
        (rows, cols): (usize, usize),
    ) -> Result<MatrixId, Error> {
        let ty = self.wanted(tensor, rows, cols)?;
        let cut = Cut::summed(cols, block_cols(ty), 1, &self.shares);
        let scale = self.scale(tensor, ty, 1)?;
        let part = Part { scale, ..Part::plain(tensor, ty, (rows, cols), cut) };
        Ok(self.add_matrix(what, SplitBy::Cols, vec![part]))
    }

    /// Declares a matrix, `(rows, cols)`, that every node has and whose rows are the columns of a tensor.
    ///
    /// # Errors
    /// When there is no such tensor, it has another shape, or `rows` are no whole tiles.
    pub fn turned(
        &mut self,
        what: &str,
        tensor: &str,
        (rows, cols): (usize, usize),
    ) -> Result<MatrixId, Error> {
        if !rows.is_multiple_of(kernels::TILE_ROWS) {
            let (what, need) = ("columns of a matrix that is turned", "a multiple of 16");
            return Err(Error::BadDimension { what, value: rows, need });
        }
        // Columns of blocks are no blocks.
        let ty = match self.wanted(tensor, cols, rows)? {
            ty @ (TensorType::F32 | TensorType::BF16) => ty,
            _ => TensorType::F16,
        };
        let cut = Cut::replicated(vec![0..rows; self.graph.nodes()]);
        let layout = Layout::Columns { len: rows, step: cols };
        let part = Part { layout, ..Part::plain(tensor, ty, (rows, cols), cut) };
        Ok(self.add_matrix(what, SplitBy::Rows, vec![part]))
    }

    /// Declares a matrix from `width` elements to `between`, rows cut over the nodes, and one from these to `output`,
    /// cut alike by columns.
    ///
    /// # Errors
    /// When there is no such tensor, or it has another shape.
    pub fn projection(
        &mut self,
        [what, up, down]: [&str; 3],
        (width, between, output): (usize, usize, usize),
    ) -> Result<(MatrixId, MatrixId), Error> {
        let block = block_cols(self.catalog.wanted(down, output, between)?);
        let cut = Cut::summed(between, block, 1, &self.shares);
        let parts = self.stack(Tensors::Apart([up]), [(between, cut.clone())], width)?;
        let up = self.add_matrix(&format!("{what}_up"), SplitBy::Rows, parts);
        let part = self.part(down, output, 0, Layout::Rows, (output, between), cut)?;
        Ok((up, self.add_matrix(&format!("{what}_down"), SplitBy::Cols, vec![part])))
    }

    /// Of each output the rows of `count` tokens, its own and those behind it, as one row.
    pub fn merge(&mut self, x: Bundle, count: usize, how: Merging) -> Bundle {
        let (width, _) = self.expect(x, Placement::Replicated, "merge");
        let width = how.width(count, width);
        let widths = self.everywhere(width);
        let op = MergeOp { x, count, how };
        self.push(op, Placement::Replicated, Domain::Outputs, &widths)
    }

    /// Hands hidden states to the caller from element `at` of his rows on.
    pub fn hidden_at(&mut self, x: Bundle, at: usize) -> Bundle {
        let (width, domain) = self.expect(x, Placement::Replicated, "hidden states");
        self.push(HiddenOp { x, at }, Placement::Whole(0), domain, &[width])
    }
}
