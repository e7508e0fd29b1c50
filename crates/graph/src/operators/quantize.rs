//! Rows of activations as the kernels of a matrix take them.

use super::prelude::*;
use crate::buffer::Home;
use crate::exec::keep;
use crate::weight::SplitBy;
use kernels::ActKind;

impl Lowering<'_> {
    /// The activations as `matrix` takes them: of one kind, or of several when its parts differ.
    pub(crate) fn operand(&mut self, x: Bundle, matrix: MatrixId, layer: Option<usize>) -> Operand {
        let (from, domain) = (self.value(x), self.tables.bundle(x).domain);
        let m = self.tables.matrix(matrix);
        let mut quantized = |kind: ActKind, name: &str| {
            m.takes(kind).then(|| {
                let work = self.variant.work(domain);
                let bytes: Vec<usize> = (0..self.tables.nodes())
                    .map(|n| kernels::most_row_bytes(kind, m.input_width(n)))
                    .collect();
                let rows = self.rows(domain, work);
                let out = match work {
                    Work::Private => self.buffers.declare(name, Home::Thread, rows, &bytes),
                    Work::Rows => {
                        let role = format!("{}.{name}.{}", m.name, layer.map_or(0, |l| l % 2));
                        self.buffers.declare(&role, Home::Node, rows, &bytes)
                    }
                };
                self.push_rows(layer, domain, work, QuantizeInstr { x: from, kind, matrix, out });
                out
            })
        };
        let (bf16, q8) = (quantized(ActKind::Bf16, "bf16"), quantized(ActKind::Q8, "q8"));
        let f32 = match m.clamp {
            Some(_) => quantized(ActKind::F32, "limited"),
            None => m.takes(ActKind::F32).then_some(from),
        };
        Operand { f32, bf16, q8 }
    }
}

/// Rows of f32 to rows of another kind, as wide as the input of `matrix`, kept between its limits before; of the same
/// kind where there are such.
#[derive(Clone, Debug)]
struct QuantizeInstr {
    x: BufId,
    kind: ActKind,
    matrix: MatrixId,
    out: BufId,
}

impl Instruction for QuantizeInstr {
    fn name(&self) -> &'static str {
        "quantize"
    }

    fn claims(&self, claims: &mut Claims) {
        claims.row_by_row([self.x], self.out);
    }

    fn work(&self, entry: &mut Entry<'_>) {
        let cols = entry.tables().matrix(self.matrix).input_width(entry.desk.node());
        let each = entry.each;
        entry.read(self.x, each * cols * FLOAT);
        entry.write(self.out, each * kernels::most_row_bytes(self.kind, cols));
        entry.pass(each * cols);
    }

    fn is_split(&self, tables: &Tables) -> bool {
        let matrix = tables.matrix(self.matrix);
        matrix.by_head.is_some() || matrix.split == SplitBy::Cols
    }

    fn run(&self, run: Run<'_>) {
        let kernels = run.kernels();
        let matrix = run.tables().matrix(self.matrix);
        let cols = matrix.input_width(run.thread.node);
        let bytes = kernels.row_bytes(self.kind, cols);
        let (x, mut out) = (run.source(self.x), run.target(self.out));
        if let Some(clamp) = matrix.clamp {
            let limits = run.thread.limits_of(clamp);
            let limited = &mut run.scratch[..cols];
            for row in run.rows {
                limited.copy_from_slice(x.row(row, cols));
                keep(limits, limited);
                match self.kind {
                    ActKind::Q8 => kernels.quantize_q8(limited, out.bytes(row, bytes)),
                    ActKind::Bf16 => kernels.round_bf16(limited, out.bytes(row, bytes)),
                    ActKind::F32 => out.row(row, cols).copy_from_slice(limited),
                }
            }
            return;
        }
        for row in run.rows.clone() {
            let from = x.row(row, cols);
            match self.kind {
                ActKind::Q8 if row + 1 < run.rows.end => {
                    let (to, place) = out.bytes_and_next(row, bytes);
                    let next = (x.row(row + 1, cols), place);
                    kernels.quantize_q8_before(from, to, Some(next));
                }
                ActKind::Q8 => kernels.quantize_q8(from, out.bytes(row, bytes)),
                ActKind::Bf16 => kernels.round_bf16(from, out.bytes(row, bytes)),
                ActKind::F32 => unreachable!("f32 is what there is"),
            }
        }
    }
}
