//! Layers that predict further tokens (multi-token prediction; DeepSeek-V3, section 2.2).
//!
//! They take the hidden state of a token and the embedding of the next one, and give the hidden state of that, of
//! which the head makes logits of the token after it. They are operators behind the model's, in a list of their
//! own: a step runs one list or the other ([`Variant::predicts`](crate::Variant)).

use super::Builder;
use crate::error::Error;
use crate::op::Norm;
use crate::operators::{ConcatOp, RecallOp, RememberOp};
use crate::placement::{Cut, Placement};
use crate::tensor::{Bundle, Domain};
use crate::weight::{MatrixId, Part, SplitBy, block_cols};

impl Builder<'_> {
    /// Keeps hidden states for [`recall`](Builder::recall) in later steps.
    pub fn remember(&mut self, x: Bundle) {
        let (width, domain) = self.expect(x, Placement::Replicated, "remember");
        assert_eq!(domain, Domain::Tokens, "hidden states of all tokens");
        let widths = self.everywhere(width);
        self.push(RememberOp { x }, Placement::Replicated, domain, &widths);
    }

    /// Ends the model's list. What follows predicts, and takes of the model what is
    /// [remembered](Builder::remember) alone.
    pub fn begin_predicting(&mut self) {
        assert!(self.graph.model_ops.is_none(), "a model predicts in one list");
        self.graph.model_ops = Some(self.graph.ops.len());
    }

    /// Hidden states of earlier steps, `width` elements each, as the step says for each of its tokens.
    pub fn recall(&mut self, width: usize) -> Bundle {
        let widths = self.everywhere(width);
        self.push(RecallOp, Placement::Replicated, Domain::Tokens, &widths)
    }

    /// Declares a matrix of two rows of `hidden` elements beside each other, whose columns are cut over the nodes.
    ///
    /// # Errors
    /// When there is no such tensor, or it has another shape.
    pub fn of_two(&mut self, name: &str, hidden: usize) -> Result<MatrixId, Error> {
        let ty = self.wanted(name, hidden, 2 * hidden)?;
        let cut = Cut::summed(2 * hidden, block_cols(ty), 1, &self.shares);
        let scale = self.scale(name, ty, 1)?;
        let part = Part { scale, ..Part::plain(name, ty, (hidden, 2 * hidden), cut) };
        Ok(self.add_matrix("of_two", SplitBy::Cols, vec![part]))
    }

    /// `matrix · [norm(x) | norm(y)]`, partial.
    pub fn combine(&mut self, rows: [(Bundle, Norm); 2], matrix: MatrixId) -> Bundle {
        let [(x, of_x), (y, of_y)] = rows;
        let (_, domain) = self.expect(x, Placement::Replicated, "combine");
        self.expect(y, Placement::Replicated, "combine");
        let m = self.graph.matrix(matrix);
        let widths: Vec<usize> = (0..self.graph.nodes()).map(|n| m.input_width(n)).collect();
        let op = ConcatOp { x, y, norms: [of_x, of_y], matrix };
        let both = self.push(op, Placement::Split, domain, &widths);
        self.linear(both, matrix)
    }
}
