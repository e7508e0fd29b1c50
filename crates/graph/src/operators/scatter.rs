//! From one graph to one subgraph per node (ArcLight §3.3).

use super::prelude::*;
use threads::View;

/// Splits the pool into groups: from here on there is one tensor per node, and each group works on its own.
///
/// Lowering puts it before the first operator whose [append mode](crate::Append) is not serial. The tokens of a step,
/// which all threads read, are what is scattered; no views of tensors are made, because every group finds the tensors
/// of its node by its number.
#[derive(Clone, Debug)]
pub(crate) struct ScatterInstr;

impl Instruction for ScatterInstr {
    fn name(&self) -> &'static str {
        "scatter"
    }

    fn claims(&self, _: &mut Claims) {}

    fn work(&self, _: &mut Entry<'_>) {}

    fn view(&self) -> Option<View> {
        Some(View::Groups)
    }

    fn run(&self, run: Run<'_>) {
        run.worker.switch(View::Groups);
    }
}
