//! From one subgraph per node back to one graph (ArcLight §3.3).

use super::prelude::*;
use threads::View;

/// Joins the groups of the pool to one: from here on there is a single tensor.
///
/// Lowering puts it after the last operator that nodes share, which is one of append mode
/// [`Gather`](crate::Append::Gather): that operator writes what all groups have into the single tensor. It does not wait.
/// Nothing follows it in its program, and the threads of all groups join at the end of a step.
#[derive(Clone, Debug)]
pub(crate) struct GatherInstr;

impl Instruction for GatherInstr {
    fn name(&self) -> &'static str {
        "gather"
    }

    fn claims(&self, _: &mut Claims) {}

    fn work(&self, _: &mut Entry<'_>) {}

    fn view(&self) -> Option<View> {
        Some(View::One)
    }

    fn run(&self, run: Run<'_>) {
        run.worker.join();
    }
}
