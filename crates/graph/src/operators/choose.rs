//! The experts that each token goes to.

use super::prelude::*;
use crate::router::{MOST_CHOSEN, Router};

/// The experts that each token goes to, and their weights. Takes and gives replicated.
#[derive(Clone, Debug)]
pub(crate) struct ChooseOp {
    /// A score for each expert.
    pub scores: Bundle,
    /// How they are chosen.
    pub router: Box<Router>,
}

impl Operator for ChooseOp {
    fn name(&self) -> &'static str {
        "choose"
    }

    fn inputs(&self) -> Vec<Bundle> {
        vec![self.scores]
    }

    fn vectors(&self) -> Vec<VectorId> {
        self.router.bias.into_iter().collect()
    }

    fn lower(&self, node: &Node, to: &mut Lowering<'_>) -> BufId {
        let out = to.own_buffer(&format!("choice {}", to.width(self.scores)), node);
        let (scores, router) = (to.value(self.scores), self.router.clone());
        to.emit_rows(node, to.work(node), ChooseInstr { scores, router, out });
        out
    }
}

/// Scores to the experts of each token and their weights.
#[derive(Clone, Debug)]
struct ChooseInstr {
    scores: BufId,
    router: Box<Router>,
    out: BufId,
}

impl Instruction for ChooseInstr {
    fn name(&self) -> &'static str {
        "choose"
    }

    fn claims(&self, claims: &mut Claims) {
        claims.read([self.scores], Reach::Group);
        claims.row_by_row([], self.out);
    }

    fn work(&self, entry: &mut Entry<'_>) {
        entry.read(self.scores, self.router.experts * FLOAT);
        entry.write(self.out, 2 * self.router.chosen * FLOAT);
        entry.pass(self.router.experts);
    }

    fn scratch(&self, _tables: &Tables, _tokens: usize) -> Scratch {
        Scratch { floats: self.router.experts, ..Scratch::default() }
    }

    fn run(&self, run: Run<'_>) {
        let router = &self.router;
        let (scores, mut out) = (run.source(self.scores), run.target(self.out));
        let bias = router.bias.map(|bias| run.vector(bias));
        let own = &mut run.scratch[..router.experts];
        let mut chosen = [(0, 0.0); MOST_CHOSEN];
        let chosen = &mut chosen[..router.chosen];
        for row in run.rows {
            own.copy_from_slice(scores.row(row, router.experts));
            router.choose(own, bias, chosen);
            let (experts, weights) = out.row(row, 2 * router.chosen).split_at_mut(router.chosen);
            for ((expert, weight), own) in experts.iter_mut().zip(weights).zip(&*chosen) {
                (*expert, *weight) = (own.0 as f32, own.1);
            }
        }
    }
}
