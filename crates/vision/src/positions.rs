//! Embeddings of positions for grids of any shape.

use crate::resample;
use models::VisionFamily;

/// A table for a square of patches, and how it is fitted to other grids; or one for columns and one for rows.
#[derive(Clone, Debug)]
pub(crate) struct Positions {
    side: usize,
    width: usize,
    values: Vec<f32>, // [side * side, width], or [2, side, width]
}

impl Positions {
    pub(crate) fn new(side: usize, width: usize, values: Vec<f32>) -> Positions {
        Positions { side, width, values }
    }

    /// Rows for a grid, `[rows * columns, width]`, row by row.
    pub(crate) fn of(&self, family: VisionFamily, (rows, cols): (usize, usize)) -> Vec<f32> {
        match family {
            VisionFamily::Gemma4 => self.of_axes(rows, cols),
            _ if (rows, cols) == (self.side, self.side) => self.values.clone(),
            VisionFamily::Qwen3 => self.between(rows, cols),
            _ => resample::table(&self.values, (self.side, self.width), (rows, cols)),
        }
    }

    /// The sum of a column's and a row's.
    fn of_axes(&self, rows: usize, cols: usize) -> Vec<f32> {
        let (of_cols, of_rows) = self.values.split_at(self.side * self.width);
        let own = |at: usize| at * self.width..(at + 1) * self.width;
        let mut all = Vec::with_capacity(rows * cols * self.width);
        for row in 0..rows {
            let of_row = &of_rows[own(row)];
            for col in 0..cols {
                let of_col = &of_cols[own(col)];
                all.extend(of_col.iter().zip(of_row).map(|(x, y)| x + y));
            }
        }
        all
    }

    /// Between the four nearest, corners on corners.
    fn between(&self, rows: usize, cols: usize) -> Vec<f32> {
        let spread = |count: usize| -> Vec<(usize, usize, f32)> {
            let last = self.side - 1;
            let step = if count > 1 { last as f32 / (count - 1) as f32 } else { 0.0 };
            let at = |i: usize| {
                let exact = i as f32 * step;
                let low = (exact as usize).min(last);
                (low, (low + 1).min(last), exact - low as f32)
            };
            (0..count).map(at).collect()
        };
        let row =
            |y: usize, x: usize| &self.values[(y * self.side + x) * self.width..][..self.width];
        let (down, across) = (spread(rows), spread(cols));
        let mut all = Vec::with_capacity(rows * cols * self.width);
        for &(top, bottom, v) in &down {
            for &(left, right, u) in &across {
                let corners =
                    [row(top, left), row(top, right), row(bottom, left), row(bottom, right)];
                let weights = [(1.0 - v) * (1.0 - u), (1.0 - v) * u, v * (1.0 - u), v * u];
                let sum =
                    |i: usize| corners.iter().zip(weights).map(|(c, w)| c[i] * w).sum::<f32>();
                all.extend((0..self.width).map(sum));
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_stays_a_line() {
        let values: Vec<f32> = (0..16).map(|i| (i % 4) as f32).collect();
        let positions = Positions::new(4, 1, values);
        // Corners on corners: from 0 to 3 in seven steps.
        let wide = positions.of(VisionFamily::Qwen3, (2, 7));
        assert_eq!(wide[..7], [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0]);
        // Areas on areas: halves of it.
        let half = positions.of(VisionFamily::Lfm2, (1, 2));
        assert!(
            (half[0] - 5.0 / 7.0).abs() < 1e-6 && (half[1] - 16.0 / 7.0).abs() < 1e-6,
            "{half:?}"
        );
    }
}
