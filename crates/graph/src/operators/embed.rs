//! Rows of the embedding matrix.

use super::prelude::*;
use crate::op::Added;
use crate::plan::Mode;

/// Token ids to rows of the embedding matrix. Gives replicated.
#[derive(Clone, Debug)]
pub(crate) struct EmbedOp {
    /// `[vocab, hidden]`, rows cut over the nodes.
    pub table: MatrixId,
    /// Factor on each row.
    pub scale: f32,
    /// What is added.
    pub added: Added,
    /// Whether tokens with [rows](crate::Inset) have those instead; otherwise they have the first token's.
    pub insets: bool,
}

impl Operator for EmbedOp {
    fn name(&self) -> &'static str {
        "embed"
    }

    fn inputs(&self) -> Vec<Bundle> {
        Vec::new()
    }

    fn vectors(&self) -> Vec<VectorId> {
        self.added.positions.into_iter().chain(self.added.types).collect()
    }

    fn table(&self) -> Option<MatrixId> {
        Some(self.table)
    }

    fn lower(&self, node: &Node, to: &mut Lowering<'_>) -> BufId {
        // The residual stream, or inputs of layers.
        let role = if node.out.0 == 0 { "x".to_owned() } else { format!("x{}", node.out.0) };
        let shared = to.buffer(&role, node.out, Some(0), Work::Rows);
        to.emit_rows(node, Work::Rows, EmbedInstr { of: self.clone(), out: shared });
        match to.work(node) {
            Work::Rows => shared,
            Work::Private => {
                let own = to.buffer(&role, node.out, node.layer, Work::Private);
                let width = to.width(node.out);
                to.emit_rows(node, Work::Private, LoadInstr { x: shared, out: own, width });
                own
            }
        }
    }
}

/// Rows of the embedding matrix, read from the node that holds them, and those of positions and types.
#[derive(Clone, Debug)]
struct EmbedInstr {
    of: EmbedOp,
    out: BufId,
}

impl Instruction for EmbedInstr {
    fn name(&self) -> &'static str {
        "embed"
    }

    fn claims(&self, claims: &mut Claims) {
        claims.row_by_row([], self.out);
    }

    fn work(&self, entry: &mut Entry<'_>) {
        let (desk, table) = (entry.desk, self.of.table);
        let bytes = desk.tables.matrix(table).parts[0].cols * FLOAT;
        let homes = match desk.plan.mode {
            Mode::Pipeline => (desk.home)(table)..(desk.home)(table) + 1,
            _ => 0..desk.tables.nodes(),
        };
        for home in homes {
            let from = What::Read(Memory::Table(table), home);
            entry.per(Per::Lookup(table, home), from, bytes);
        }
        entry.write(self.out, bytes);
    }

    fn run(&self, run: Run<'_>) {
        let EmbedOp { table, scale, added, insets } = self.of;
        let (thread, kernels, mut out) = (run.thread, run.kernels(), run.target(self.out));
        let tokens = &thread.input.tokens;
        let part = &run.tables().matrix(table).parts[0];
        let own = part.scale.map_or(1.0, |own| run.vector(own)[0]);
        let vector = |of: VectorId| run.vector(of);
        let (positions, types) = (added.positions.map(vector), added.types.map(vector));
        let cut = &part.cut;
        for t in run.rows.clone() {
            if let Some(row) = thread.input.row(t).filter(|_| insets) {
                out.row(t, part.cols).copy_from_slice(&row[..part.cols]);
                continue;
            }
            let [id, ty, position] =
                [tokens[t].id, tokens[t].ty, tokens[t].position].map(|n| n as usize);
            let owner = cut.owner(id);
            let row = id - cut.range(owner).start;
            let packed = &thread.step.weights.shard(table, owner, thread.group).parts[0];
            let tile = packed.tile(row / kernels::TILE_ROWS);
            let to = out.row(t, packed.cols);
            let within = row % kernels::TILE_ROWS;
            kernels.unpack_row(packed.ty, tile, packed.cols, within, &mut *to);
            for factor in [own, scale].into_iter().filter(|&factor| factor != 1.0) {
                kernels.scale(to, factor);
            }
            for (all, at) in [(types, ty), (positions, position)] {
                if let Some(all) = all {
                    kernels.add_assign(to, &all[at * packed.cols..(at + 1) * packed.cols]);
                }
            }
        }
    }
}

/// Copies shared rows into the thread's own buffer.
#[derive(Clone, Debug)]
struct LoadInstr {
    x: BufId,
    out: BufId,
    width: usize,
}

impl Instruction for LoadInstr {
    fn name(&self) -> &'static str {
        "load"
    }

    fn claims(&self, claims: &mut Claims) {
        claims.read([self.x], Reach::Group);
        claims.write([self.out], Reach::Group);
    }

    fn work(&self, entry: &mut Entry<'_>) {
        entry.copy(self.x, self.out, self.width);
    }

    fn run(&self, run: Run<'_>) {
        run.copy_rows(self.x, self.out, self.width);
    }
}
