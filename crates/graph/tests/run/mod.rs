//! Running a graph of a test: two threads to a node, and one sequence.

use arclight_graph::{Executor, Graph, Limits, Outputs, PageTable, Plan, SeqInput};
use gguf::Gguf;
use kernels::Kernels;
use topology::{CpuId, Group, Machine};

/// Two threads a node, wherever the system lets them run.
pub(crate) fn plan(nodes: usize) -> Plan {
    let group = Group::unbound(vec![CpuId(0); 2]);
    Plan { pin: false, ..Plan::new(vec![group; nodes]) }
}

pub(crate) fn executor(gguf: &Gguf<'_>, graph: Graph, plan: Plan, limits: Limits) -> Executor {
    let (kernels, machine) = (Kernels::detect().unwrap(), Machine::read().unwrap());
    Executor::new(graph, plan, limits, kernels, &machine, gguf, &mut |_| {}).unwrap()
}

/// A step of the sequence of which `past` tokens have been seen: rows of logits. Allocates nothing.
pub(crate) fn step<'a>(
    executor: &'a mut Executor,
    tokens: &[u32],
    past: usize,
    tables: &[PageTable],
    outputs: Outputs,
) -> impl Iterator<Item = &'a [f32]> + use<'a> {
    let input = SeqInput::new(tokens, past, tables, outputs);
    let logits = executor.step([input].into_iter()).unwrap();
    (0..logits.len()).map(move |i| logits.row(i))
}
