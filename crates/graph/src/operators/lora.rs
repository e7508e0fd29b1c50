//! Adapters: products of low rank beside those of matrices ([`crate::exec`] adds them to the products).

use super::prelude::*;
use crate::adapter::{Low, Lows};
use crate::buffer::Home;
use crate::exec::{
    A_ROWS, Area, B_ROWS, LowSums, Source, Target, Thread, as_usize, blocks, columns, copy,
};
use crate::placement::share;
use kernels::{Acts, Piece, Product, RowsMut, TILE_ROWS};

impl Lowering<'_> {
    /// The result of A of the adapters beside `matrix` for `x`, if it has any in this form.
    pub(crate) fn lora_a(
        &mut self,
        x: Bundle,
        matrix: MatrixId,
        layer: Option<usize>,
    ) -> Option<BufId> {
        let lows = self.tables.lows(matrix).filter(|_| self.variant.adapts)?;
        let domain = self.tables.bundle(x).domain;
        let role =
            format!("{}.low.{}", self.tables.matrix(matrix).name, layer.map_or(0, |l| l % 2));
        let widths = vec![lows.width * FLOAT; self.tables.nodes()];
        let (rows, told) = (self.rows(domain, Work::Rows), lows.told);
        let out = self.buffers.declare(&role, Home::Node, rows, &widths);
        let x = self.value(x);
        self.push(layer, domain, LoraAInstr { x, matrix, out, told });
        Some(out)
    }

    /// What B of the adapters beside the matrix that gave the summands `partial` adds to their sum.
    pub(crate) fn lora_b(
        &mut self,
        partial: Bundle,
        layer: Option<usize>,
    ) -> Option<(BufId, MatrixId)> {
        let &(low, matrix) = self.lows.get(&partial)?;
        let info = self.tables.bundle(partial);
        let (domain, bytes) = (info.domain, info.width.next_multiple_of(TILE_ROWS) * FLOAT);
        let role =
            format!("{}.delta.{}", self.tables.matrix(matrix).name, layer.map_or(0, |l| l % 2));
        let (rows, widths) = (self.rows(domain, Work::Rows), vec![bytes; self.tables.nodes()]);
        let out = self.buffers.declare(&role, Home::Node, rows, &widths);
        self.push(layer, domain, LoraBInstr { low, matrix, out });
        Some((out, matrix))
    }
}

/// Products with A of the adapters beside a matrix, segment by segment. Where nodes share its columns, all get them.
#[derive(Clone, Debug)]
struct LoraAInstr {
    x: BufId,
    matrix: MatrixId,
    out: BufId,
    told: bool,
}

impl Instruction for LoraAInstr {
    fn name(&self) -> &'static str {
        "lora_a"
    }

    fn claims(&self, claims: &mut Claims) {
        claims.read([self.x], Reach::Group);
        claims.write([self.out], if self.told { Reach::All } else { ITEMS });
    }

    fn work(&self, entry: &mut Entry<'_>) {
        let (desk, node) = (entry.desk, entry.desk.node());
        let Some(lows) = desk.tables.lows(self.matrix) else { return };
        let at = lows.node(node);
        let (cols, segments) = (lows.columns.len(at), lows.columns.leaves(at).len());
        for low in &lows.pairs {
            let row = Per::Adapted(low.adapter, entry.rows);
            let bytes = low.tiles() * low.a_tile_bytes(lows, node);
            let weights = What::Read(Memory::Weights(self.matrix), desk.place);
            entry.per(Per::Adapter(low.adapter), weights, bytes);
            entry.per(row, What::Read(Memory::Rows(self.x), desk.place), cols * FLOAT);
            entry.per(row, What::Multiply(Product::of(low.types[0])), low.rank * cols);
            for place in desk.places().filter(|place| self.told || *place == desk.place) {
                let bytes = low.padded() * segments * FLOAT;
                entry.per(row, What::Write(Memory::Rows(self.out), place), bytes);
            }
        }
    }

    fn run(&self, run: Run<'_>) {
        let (x, out) = (run.source(self.x), run.target(self.out));
        run.thread.lora_a(x, self.matrix, run.domain, out, run.room);
    }
}

/// Products with B of the adapters beside a matrix whose columns nodes share, on every node.
#[derive(Clone, Debug)]
struct LoraBInstr {
    low: BufId,
    matrix: MatrixId,
    out: BufId,
}

impl Instruction for LoraBInstr {
    fn name(&self) -> &'static str {
        "lora_b"
    }

    fn claims(&self, claims: &mut Claims) {
        claims.read([self.low], Reach::Group);
        claims.write([self.out], ITEMS);
    }

    fn work(&self, entry: &mut Entry<'_>) {
        entry.lora_b(self.matrix, self.low);
        let (tables, rows) = (entry.tables(), entry.own_rows(self.matrix));
        for pair in tables.lows(self.matrix).iter().flat_map(|lows| &lows.pairs) {
            let to = What::Write(Memory::Rows(self.out), entry.desk.place);
            entry.per(Per::Adapted(pair.adapter, entry.rows), to, rows * FLOAT);
        }
    }

    fn run(&self, run: Run<'_>) {
        let (matrix, domain) = (self.matrix, run.domain);
        let low = LowSums { of: run.source(self.low), matrix, domain };
        run.thread.lora_b(low, run.target(self.out), run.room);
    }
}

impl Entry<'_> {
    /// The products with B of the adapters beside a matrix, of the node's rows.
    pub(crate) fn lora_b(&mut self, id: MatrixId, low: BufId) {
        let (desk, node) = (self.desk, self.desk.node());
        let Some(lows) = desk.tables.lows(id) else { return };
        for pair in &lows.pairs {
            let row = Per::Adapted(pair.adapter, self.rows);
            let rows = desk.tables.matrix(id).rows(pair.part, node).len();
            let weights = What::Read(Memory::Weights(id), desk.place);
            let bytes = rows.div_ceil(TILE_ROWS) * pair.b_tile_bytes();
            self.per(Per::Adapter(pair.adapter), weights, bytes);
            let sums = pair.padded() * lows.columns.leaf_count() * FLOAT;
            self.per(row, What::Read(Memory::Rows(low), desk.place), sums);
            self.per(row, What::Multiply(Product::of(pair.types[1])), pair.rank * rows);
        }
    }
}

impl Thread<'_> {
    /// The products with A: tiles by segments, dealt over the team.
    fn lora_a(
        &self,
        x: Source<'_>,
        matrix: MatrixId,
        domain: Domain,
        mut out: Target<'_>,
        room: &mut [f32],
    ) {
        let (lows, uses) = (self.lows(matrix), self.uses(domain));
        let of = |low: &Low| {
            let own = uses.iter().filter(|one| one.adapter == low.adapter);
            own.map(|one| one.rows.len()).sum::<usize>()
        };
        let node = lows.node(self.node);
        let segments = lows.columns.leaves(node).len();
        let items = |low: &Low| if of(low) > 0 { low.tiles() * segments } else { 0 };
        let mine = share(lows.pairs.iter().map(items).sum(), self.size, self.rank);
        let packed = self.step.weights.lows(matrix, self.node, self.group);
        let mut before = 0;
        for (low, packed) in lows.pairs.iter().zip(packed) {
            let all = before..before + items(low);
            before = all.end;
            for item in mine.start.max(all.start)..mine.end.min(all.end) {
                let (tile, segment) =
                    ((item - all.start) / segments, (item - all.start) % segments);
                let (cols, bytes) = self.segment(lows, low, segment);
                let number = lows.columns.leaves(node).start + segment;
                let to = low.at + number * low.padded() + tile * TILE_ROWS;
                let weights = packed.a(tile, bytes);
                let own = uses.iter().filter(|one| one.adapter == low.adapter);
                for rows in own.flat_map(|one| blocks(as_usize(&one.rows), A_ROWS)) {
                    let sums = &mut room[..rows.len() * TILE_ROWS];
                    let view = RowsMut::new(sums, rows.len(), TILE_ROWS, TILE_ROWS);
                    let pieces = Piece::whole(cols.len());
                    let acts = Acts::F32(x.columns(rows.clone(), cols.clone()));
                    self.step.kernels.matmul(low.types[0], weights, &pieces, acts, view);
                    let cols = to..to + TILE_ROWS;
                    out.claim(rows.clone(), cols.clone());
                    if !lows.told {
                        copy(sums, out.columns(rows, cols));
                        continue;
                    }
                    let nodes = self.step.tables.nodes();
                    for node in (0..nodes).map(|i| (self.node + i) % nodes) {
                        copy(sums, out.columns_on(self.place_of(node), rows.clone(), cols.clone()));
                    }
                }
            }
        }
    }

    /// Columns of the node's input that a segment of its own is, and where a tile of A has them.
    fn segment(&self, lows: &Lows, low: &Low, segment: usize) -> (Range<usize>, Range<usize>) {
        let node = lows.node(self.node);
        let first = lows.columns.range(node).start;
        let mut begin = 0;
        for (at, cols) in lows.columns.segments(node).enumerate() {
            let end = begin + kernels::tile_bytes(low.types[0], cols.len());
            if at == segment {
                return (cols.start - first..cols.end - first, begin..end);
            }
            begin = end;
        }
        unreachable!("a segment of the node")
    }

    /// The products with B beside a matrix whose columns nodes share, of tiles that are dealt over the team.
    fn lora_b(&self, low: LowSums<'_>, mut out: Target<'_>, room: &mut [f32]) {
        let all = self.step.tables.matrix(low.matrix).parts[0].rows.div_ceil(TILE_ROWS);
        let tiles = share(all, self.size, self.rank);
        if tiles.is_empty() {
            return;
        }
        out.claim(0..usize::MAX, columns(0, &tiles));
        for one in self.uses(low.domain) {
            for rows in blocks(as_usize(&one.rows), B_ROWS) {
                let mut to = out.columns(rows.clone(), columns(0, &tiles));
                (0..rows.len()).for_each(|row| to.row_mut(row).fill(0.0));
            }
        }
        // All adapters of a row, whoever it was that made it zero.
        let (mut first, mut last) = (usize::MAX, 0);
        for one in self.uses(low.domain) {
            let own = as_usize(&one.rows);
            (first, last) = (first.min(own.start), last.max(own.end));
        }
        for rows in blocks(first.min(last)..last, B_ROWS) {
            let mut to = out.columns(rows.clone(), columns(0, &tiles));
            let area = Area { rows, tiles: tiles.clone() };
            self.adapt(low, 0, &area, &mut to, room);
        }
    }
}
