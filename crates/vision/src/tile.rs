//! What goes through an encoder at a time, and the rows of numbers that are made of it.

use crate::picture::Picture;
use models::Together;
use std::ops::Range;

/// A picture of the size that the encoder sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tile {
    pub(crate) picture: Picture,
    pub(crate) id: [u8; 16],
    /// Outputs, `(rows, columns)`.
    pub(crate) grid: (usize, usize),
    /// Whether places have rows and columns.
    pub(crate) spread: bool,
    /// In which layers of the language model its outputs see each other.
    pub(crate) together: Together,
}

impl Tile {
    /// A hash of the pixels and of the processor: equal tiles have equal outputs.
    pub fn id(&self) -> [u8; 16] {
        self.id
    }

    /// The picture.
    pub fn picture(&self) -> &Picture {
        &self.picture
    }

    /// The same of other pixels of the same number.
    ///
    /// # Panics
    /// When the picture has another size.
    #[must_use]
    pub fn with(&self, picture: Picture) -> Tile {
        let size = |of: &Picture| (of.width(), of.height());
        assert_eq!(size(&picture), size(&self.picture), "a picture of the same size");
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.id).update(picture.rgb());
        let id = *hasher.finalize().as_bytes().first_chunk().expect("a hash has 32 bytes");
        Tile { picture, id, ..*self }
    }

    /// Rows and columns of outputs.
    pub fn grid(&self) -> (usize, usize) {
        self.grid
    }

    /// Outputs: rows that stand for it in a text.
    pub fn outputs(&self) -> usize {
        self.grid.0 * self.grid.1
    }

    /// In which layers of the language model its outputs see those behind them, too.
    pub fn together(&self) -> Together {
        self.together
    }

    /// Where some outputs stand in a text, counted from the first of the tile, on the axes of time, height and width, and
    /// how many places they take. No places: they stand one behind the other.
    pub fn spots(&self, outputs: Range<usize>) -> (Vec<[u32; 3]>, usize) {
        if !self.spread {
            return (Vec::new(), outputs.len());
        }
        let (rows, cols) = self.grid;
        let spot = |at: usize| [0, (at / cols) as u32, (at % cols) as u32];
        (outputs.map(spot).collect(), rows.max(cols))
    }

    /// Ids that stand for outputs where those of tokens stand: above every vocabulary, and alike for equal outputs.
    pub fn ids(&self, outputs: Range<usize>) -> Vec<u32> {
        const MARK: u32 = 1 << 31;
        let mut stream = blake3::Hasher::new().update(&self.id).finalize_xof();
        stream.set_position(4 * outputs.start as u64);
        let mut bytes = vec![0; 4 * outputs.len()];
        stream.fill(&mut bytes);
        bytes.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word) | MARK).collect()
    }
}

/// The input of an encoder: a row for each patch, those of an output behind each other.
#[derive(Clone, Debug, PartialEq)]
pub struct Rows {
    /// `[patches, width]`: pixels, and the embedding of the position where there is one.
    pub values: Vec<f32>,
    /// Patches.
    pub count: usize,
    /// Where each stands: time, row and column.
    pub spots: Vec<[u32; 3]>,
    /// Ends of the runs of patches that see each other in layers with windows; none without such.
    pub runs: Vec<u32>,
    /// Patches of an output.
    pub each: usize,
    /// Which output each is, of those row by row, where windows put them into another order; none: as they come.
    pub order: Vec<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_tell_tiles_apart_and_go_on_where_a_part_begins() {
        let tile = |id| Tile {
            picture: Picture::from_rgb(1, 1, vec![0; 3]),
            id: [id; 16],
            grid: (2, 3),
            spread: true,
            together: Together::No,
        };
        let all = tile(1).ids(0..6);
        assert!(all.iter().all(|&id| id >> 31 == 1));
        assert_eq!(tile(1).ids(2..5), all[2..5]);
        assert_ne!(tile(2).ids(0..6)[0], all[0]);
        assert_eq!(tile(1).spots(2..4), (vec![[0, 0, 2], [0, 1, 0]], 3));
    }
}
