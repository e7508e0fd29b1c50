//! The residual stream: what is added to it, and which norms of it live beside each other.

use super::{Lowering, Summed};
use crate::buffer::BufId;
use crate::instr::{Also, Finish, InstrKind};
use crate::op::{Norm, Op};
use crate::tensor::Bundle;
use crate::weight::VectorId;

impl Lowering<'_> {
    /// What a sum goes through.
    pub(super) fn finish(
        &self,
        partial: Bundle,
        (norm, scale, factor): (Option<Norm>, f32, Option<VectorId>),
        alone: bool,
    ) -> Finish {
        let Summed { product, bias, clamp, .. } = &self.sums[&partial];
        let (product, bias, clamp) = (*product, *bias, *clamp);
        Finish { product, bias, clamp, norm, delta: None, scale, factor, alone }
    }

    /// Whether the operator `at` and the one behind it add two products to the stream, of blocks side by side. Nobody
    /// reads the stream in between, so one instruction does both, and nodes exchange once.
    pub(super) fn pairs(&self, at: usize) -> bool {
        let ops = &self.graph.ops;
        let plain = |at: usize| match ops.get(at).map(|n| &n.op) {
            Some(Op::Residual { x: Some(x), partial, norm: None, factor: None, .. }) => {
                Some((*x, *partial))
            }
            _ => None,
        };
        let product =
            |of: Bundle| ops.iter().any(|n| n.out == of && matches!(n.op, Op::Linear { .. }));
        let (Some((_, first)), Some((x, second))) = (plain(at), plain(at + 1)) else {
            return false;
        };
        let alone = plain(at + 2).is_none_or(|(x, _)| x != ops[at + 1].out);
        let follows = x == ops[at].out && self.last_use.get(&x) == Some(&(at + 1));
        alone && follows && product(first) && product(second)
    }

    /// Adds a sum, and perhaps another, to the stream `x`, which the operator `at` reads.
    pub(super) fn residual(
        &mut self,
        node: &crate::builder::Node,
        (at, x): (usize, Option<Bundle>),
        (partial, finish): (Bundle, Finish),
        also: Option<Box<Also>>,
    ) -> BufId {
        let (layer, out) = (node.layer, node.out);
        let (domain, width) = (self.graph.bundle(out).domain, self.graph.bundle(out).width);
        let work = self.variant.work(domain);
        // The stream is updated in place unless somebody reads the old value later.
        let own = x.filter(|x| self.last_use[x] == at).map(|x| self.value(x));
        let role = match x {
            Some(_) => format!("x{}", out.0),
            None => "sum".to_owned(),
        };
        let to = own.unwrap_or_else(|| self.buffer(&role, out, layer, work));
        let from = x.map_or(to, |x| self.value(x));
        let sum = Box::new(self.sums[&partial].sum.clone());
        let (partial, gather) = (self.value(partial), self.variant.gather);
        let kind =
            InstrKind::Residual { x: from, partial, also, finish, out: to, width, gather, sum };
        self.emit_rows((layer, domain), work, kind);
        to
    }

    /// Whether something is added to it: it is the residual stream, behind a norm of the embedding.
    pub(super) fn is_stream(&self, of: Bundle) -> bool {
        let mut ops = self.graph.ops.iter();
        ops.any(|n| matches!(n.op, Op::Residual { x: Some(x), .. } if x == of))
    }

    /// Whether what another norm gave is read behind the operator that gives `out`.
    pub(super) fn norm_lives(&self, out: Bundle) -> bool {
        let ops = &self.graph.ops;
        let at = ops.iter().position(|n| n.out == out).expect("an operator of this graph");
        let before = ops[..at].iter().filter(|n| self.values.contains_key(&n.out));
        let mut norms = before.filter(|n| matches!(n.op, Op::Norm { .. }));
        norms.any(|n| self.last_use.get(&n.out).is_some_and(|&last| last > at))
    }
}
