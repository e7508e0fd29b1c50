//! Cosines and sines of the positions of a step's tokens.

use super::prelude::*;
use crate::op::Rope;

/// The table of a rotary embedding: `[tokens, cosines | sines]`.
#[derive(Clone, Debug)]
pub(crate) struct RopeTableInstr {
    /// Number of the embedding in its graph.
    pub rope: usize,
    pub out: BufId,
}

impl Instruction for RopeTableInstr {
    fn name(&self) -> &'static str {
        "rope_table"
    }

    fn claims(&self, claims: &mut Claims) {
        claims.row_by_row([], self.out);
    }

    fn work(&self, entry: &mut Entry<'_>) {
        let pairs = entry.tables().ropes[self.rope].inv_freq.len();
        entry.write(self.out, pairs * 2 * FLOAT);
    }

    fn run(&self, run: Run<'_>) {
        let Rope { inv_freq, amplitude, axes, .. } = &run.tables().ropes[self.rope];
        let amplitude = f64::from(*amplitude);
        let (tokens, mut out) = (run.thread.input.tokens, run.target(self.out));
        for t in run.rows {
            let row = out.row(t, inv_freq.len() * 2);
            let (cos, sin) = row.split_at_mut(inv_freq.len());
            for (i, ((freq, cos), sin)) in inv_freq.iter().zip(cos).zip(sin).enumerate() {
                let axis = axes.get(i).map_or(0, |&axis| usize::from(axis));
                // The angle is rounded to f32 as every reference does; its sine is then exact.
                let angle = f64::from(tokens[t].spot[axis] as f32 * freq);
                *cos = (angle.cos() * amplitude) as f32;
                *sin = (angle.sin() * amplitude) as f32;
            }
        }
    }
}
