//! Mixtures of experts: routers, banks, and the operators over them.

use super::{Builder, Tensors};
use crate::bank::Bank;
use crate::error::Error;
use crate::op::Expert;
use crate::operators::{ChooseOp, ExpertsDownOp, ExpertsUpOp};
use crate::placement::{Cut, Placement};
use crate::router::Router;
use crate::tensor::{Bundle, Domain};
use crate::weight::{Matrix, MatrixId, Part, SplitBy, VectorId, block_cols};

impl Builder<'_> {
    /// Declares a router, which every node has: a row for each of `experts` experts.
    pub fn router(&mut self, name: &str, experts: usize, hidden: usize) -> Result<MatrixId, Error> {
        let cut = Cut::replicated(vec![0..experts; self.graph.nodes()]);
        let parts = self.stack(Tensors::Apart([name]), [(experts, cut)], hidden)?;
        let name = if experts == 1 { "shared_gate" } else { "router" };
        Ok(self.add_matrix(name, SplitBy::Rows, parts))
    }

    /// Declares `experts` feed-forward layers of `width`: the banks of the matrix `up` or the pair
    /// `[gate, up]`, and that of the down projection. Nodes share every expert ([`Bank`]).
    pub fn experts<'n, const N: usize>(
        &mut self,
        up: impl Into<Tensors<'n, N>>,
        down: &str,
        hidden: usize,
        (experts, width): (usize, usize),
    ) -> Result<(MatrixId, MatrixId), Error> {
        let up = up.into();
        let ty = self.catalog.wanted_bank(down, experts, hidden, width)?;
        // Packed blocks of 32 come in pairs.
        let (block, pair) = (block_cols(ty), 64);
        let unit = if block < pair && width.is_multiple_of(pair) { pair } else { block };
        let bank = Bank::new(experts, width, unit, &self.shares);
        let mut parts = Vec::new();
        for class in 0..bank.classes() {
            for at in 0..N {
                let (name, first, rows) = match up {
                    Tensors::Apart(names) => (names[at], 0, width),
                    Tensors::Fused(name) => (name, at * width, N * width),
                };
                let ty = self.wanted_bank(name, experts, rows, hidden)?;
                let scale = self.scale(name, ty, experts)?;
                let cut = bank.cut(class).clone();
                let members = Some(bank.class(class, rows));
                let plain = Part::plain(name, ty, (width, hidden), cut);
                parts.push(Part { first, scale, members, ..plain });
            }
        }
        // A layer may have two banks.
        let whose = if experts == 1 { "shared" } else { "expert" };
        let name = if N == 1 { "up" } else { "gate_up" };
        let (name, banked) = (format!("{whose}_{name}"), Some(bank.clone()));
        let (split, by_head) = (SplitBy::Rows, None);
        let up = self.add(Matrix { name, parts, split, bank: banked, by_head, clamp: None });
        let ty = self.wanted_bank(down, experts, hidden, width)?;
        let scale = self.scale(down, ty, experts)?;
        let of_class = |class| Part {
            scale,
            members: Some(bank.class(class, hidden)),
            ..Part::plain(down, ty, (hidden, width), bank.cut(class).clone())
        };
        let parts = (0..bank.classes()).map(of_class).collect();
        let (name, split) = (format!("{whose}_down"), SplitBy::Cols);
        let by_head = None;
        Ok((up, self.add(Matrix { name, parts, split, bank: Some(bank), by_head, clamp: None })))
    }

    /// Declares vectors that are added to the products with a bank, `[experts, rows]`, one for each of an
    /// expert's matrices.
    pub fn expert_biases(&mut self, bank: MatrixId, names: &[&str]) -> Result<(), Error> {
        let at = bank.0 as usize;
        let matrix = &self.graph.tables.matrices[at];
        let experts = matrix.bank.as_ref().expect("a bank of experts").experts;
        let rows: Vec<usize> = matrix.parts.iter().map(|p| p.rows).collect();
        let mut biases = Vec::new();
        for (name, rows) in names.iter().zip(rows) {
            biases.push(self.rows_of(name, experts, rows)?);
        }
        let parts = &mut self.graph.tables.matrices[at].parts;
        for (part, bias) in parts.iter_mut().zip(biases.iter().cycle()) {
            part.bias = Some(*bias);
        }
        Ok(())
    }

    /// Declares a vector for each expert, or a small matrix that every node holds, row after row.
    ///
    /// # Errors
    /// When there is no such tensor, or it has another shape.
    pub fn rows_of(&mut self, name: &str, experts: usize, len: usize) -> Result<VectorId, Error> {
        self.wanted(name, experts, len)?;
        Ok(self.add_vector(name, experts * len, None))
    }

    /// A router's scores, which every node computes for itself.
    pub fn scores(&mut self, x: Bundle, router: MatrixId) -> Bundle {
        self.everywhere_product(x, router)
    }

    /// The experts that each token goes to, by their scores, and their weights.
    ///
    /// # Errors
    /// When the router's numbers do not fit together.
    pub fn choose(&mut self, scores: Bundle, router: Router) -> Result<Bundle, Error> {
        router.check()?;
        let (_, domain) = self.expect(scores, Placement::Replicated, "choose");
        let widths = self.everywhere(2 * router.chosen);
        let op = ChooseOp { scores, router: Box::new(router) };
        Ok(self.push(op, Placement::Replicated, domain, &widths))
    }

    /// `weight * f(gate·x) * (up·x)` of the experts that [`Builder::choose`] gave, a row for each.
    pub fn experts_up(
        &mut self,
        x: Bundle,
        chosen: Bundle,
        bank: MatrixId,
        expert: Expert,
    ) -> Bundle {
        self.expect(x, Placement::Replicated, "experts");
        let (twice, _) = self.expect(chosen, Placement::Replicated, "experts");
        let (count, m) = (twice / 2, self.graph.matrix(bank));
        let widths: Vec<usize> = (0..self.graph.nodes()).map(|n| m.expert_width(n)).collect();
        let op = ExpertsUpOp { x, chosen, count, bank, expert };
        self.push(op, Placement::Split, Domain::Slots(count), &widths)
    }

    /// `Σ down·x` over these experts.
    pub fn experts_down(&mut self, x: Bundle, chosen: Bundle, bank: MatrixId) -> Bundle {
        self.expect(x, Placement::Split, "experts");
        let (twice, domain) = self.expect(chosen, Placement::Replicated, "experts");
        let widths = self.everywhere(self.graph.matrix(bank).parts[0].rows);
        let op = ExpertsDownOp { x, chosen, count: twice / 2, bank };
        self.push(op, Placement::Partial, domain, &widths)
    }
}
