//! Lowering: a model's operators become instructions over buffers.

use crate::buffer::{BufId, Buffers, Home, Pool as Storage};
use crate::claims::Work;
use crate::graph::Graph;
use crate::instr::Instr;
use crate::list::Append;
use crate::operator::{Lowering, Node};
use crate::operators::{GatherInstr, ReceiveInstr, RopeTableInstr, ScatterInstr, SendInstr};
use crate::tensor::{Bundle, Domain};
use crate::variant::Variant;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use threads::View;

/// Lowers the operators `ops` of `graph`, the model's, a pipeline's stage or those that predict, in the form `variant`. Buffers are
/// declared in `buffers`, which all variants and stages of a graph share.
pub fn lower(
    graph: &Graph,
    variant: Variant,
    ops: Range<usize>,
    buffers: &mut Buffers,
) -> Vec<Instr> {
    let mut last_use = HashMap::new();
    for (at, node) in graph.ops.iter().enumerate() {
        for b in node.op.does().inputs() {
            last_use.insert(b, at);
        }
    }
    let mut lowering = Lowering {
        tables: &graph.tables,
        ops: &graph.ops,
        hidden: graph.hidden_width(),
        variant,
        buffers,
        values: HashMap::new(),
        sums: HashMap::new(),
        told: HashMap::new(),
        lows: HashMap::new(),
        last_use,
        out: Vec::new(),
    };
    let nodes = &graph.ops[ops.clone()];
    let view = nodes.first().map_or(View::One, |node| node.append.view());
    if view == View::Groups {
        lowering.push_rows(None, Domain::Tokens, Work::Private, ScatterInstr);
    }
    lowering.rope_tables();
    let model = graph.model_ops();
    if ops.start > 0 && !variant.predicts {
        lowering.receive(ops.start);
    }
    for node in nodes {
        assert_eq!(
            node.append.view(),
            view,
            "one graph or a subgraph per node, from first to last"
        );
        let out = node.op.does().lower(node, &mut lowering);
        lowering.check(node, out);
        lowering.values.insert(node.out, out);
    }
    if ops.end < model.end {
        lowering.send(ops.end);
    }
    if view == View::Groups {
        lowering.push_rows(None, Domain::Tokens, Work::Private, GatherInstr);
    }
    lowering.out
}

impl Lowering<'_> {
    /// Checks an operator's append mode against the home of its result: one buffer per node from the scatter on, a single
    /// one after a gather.
    fn check(&self, node: &Node, out: BufId) {
        let single = self.buffers.get(out).home == Home::Host;
        let wanted = match node.append {
            Append::Scatter | Append::Parallel => false,
            Append::Gather => true,
            // The caller's results are single with one node too.
            Append::Serial => return,
        };
        let (op, append) = (node.op.name(), node.append);
        assert_eq!(single, wanted, "the result of {op}, which is appended in {append} mode");
    }

    fn rope_tables(&mut self) {
        for rope in 0..self.tables.ropes.len() {
            let bytes = self.tables.ropes[rope].inv_freq.len() * 2 * size_of::<f32>();
            let out = self.buffers.rope(rope, bytes);
            self.push_rows(None, Domain::Tokens, Work::Rows, RopeTableInstr { rope, out });
        }
    }

    /// The one value that operators from `at` on take from those before.
    fn crossing(&self, at: usize) -> Bundle {
        let made: HashSet<Bundle> = self.ops[..at].iter().map(|n| n.out).collect();
        let taken = self.ops[at..].iter().flat_map(|n| n.op.does().inputs());
        let crossing: HashSet<Bundle> = taken.filter(|b| made.contains(b)).collect();
        assert_eq!(crossing.len(), 1, "layers hand on the residual stream and nothing else");
        crossing.into_iter().next().expect("one")
    }

    fn handoffs(&mut self, x: Bundle) -> [BufId; 2] {
        let widths = self.widths(x);
        [0, 1].map(|half| {
            let role = format!("handoff.{half}");
            self.buffers.declare(&role, Home::Node, Storage::Tokens, &widths)
        })
    }

    /// Begins a pipeline's later stage.
    fn receive(&mut self, at: usize) {
        let x = self.crossing(at);
        let (domain, width) = (self.tables.bundle(x).domain, self.tables.bundle(x).width);
        let (work, from) = (self.variant.work(domain), self.handoffs(x));
        let out = self.buffer("x", x, None, work);
        self.push_rows(None, domain, work, ReceiveInstr { from, out, width });
        self.values.insert(x, out);
    }

    /// Ends a pipeline's earlier stage.
    fn send(&mut self, at: usize) {
        let x = self.crossing(at);
        let (domain, width) = (self.tables.bundle(x).domain, self.tables.bundle(x).width);
        let (x, to) = (self.value(x), self.handoffs(x));
        self.push_rows(None, domain, Work::Rows, SendInstr { x, to, width });
    }
}
