//! Images in prompts, and their places there.
//!
//! In a prompt an image has ids where others have tokens. They are made of a hash of its pixels ([`Tile::ids`]), so the
//! prefix cache finds an image that it has seen and takes no other for it.

use crate::error::Error;
use graph::{Inset, Spot, Together};
use std::ops::Range;
use std::sync::Arc;
use vision::{Piece, Tile};

/// Outputs of a tile, `[outputs, width]`.
pub(crate) type Encoded = Arc<Vec<f32>>;

/// Outputs of a tile in a prompt.
#[derive(Clone, Debug)]
pub struct ImagePart {
    at: usize,
    tile: Arc<Tile>,
    outputs: Range<usize>,
    spots: Vec<Spot>,
    span: usize,
    rows: Option<Encoded>,
}

impl ImagePart {
    /// Outputs of `tile` from position `at` of a prompt on.
    ///
    /// # Panics
    /// When the tile has no such outputs.
    pub fn new(at: usize, tile: Arc<Tile>, outputs: Range<usize>) -> ImagePart {
        assert!(!outputs.is_empty() && outputs.end <= tile.outputs(), "outputs of the tile");
        let (spots, span) = tile.spots(outputs.clone());
        ImagePart { at, tile, outputs, spots, span, rows: None }
    }

    /// Positions in the prompt.
    pub fn range(&self) -> Range<usize> {
        self.at..self.at + self.outputs.len()
    }

    /// The tile.
    pub fn tile(&self) -> &Arc<Tile> {
        &self.tile
    }

    /// Which of its outputs.
    pub fn outputs(&self) -> Range<usize> {
        self.outputs.clone()
    }

    /// For [`Engine::step_with`](crate::Engine::step_with), with all that the [encoder](crate::Encoder::encode) gave of the tile.
    pub fn inset_of<'a>(&'a self, all: &'a [f32]) -> Inset<'a> {
        let width = all.len() / self.tile.outputs();
        let own = self.outputs.start * width..self.outputs.end * width;
        // Nothing is known of a tile that is not encoded.
        self.inset_with(all.get(own).unwrap_or_default())
    }

    fn inset(&self) -> Inset<'_> {
        self.inset_of(self.rows.as_ref().map_or(&[], |all| all))
    }

    fn inset_with<'a>(&'a self, rows: &'a [f32]) -> Inset<'a> {
        Inset {
            at: self.at,
            len: self.outputs.len(),
            rows,
            spots: &self.spots,
            span: self.span,
            together: self.tile.together(),
            runs: &[],
        }
    }
}

/// A prompt of tokens and images.
#[derive(Clone, Debug, Default)]
pub struct Prompt {
    /// Tokens, and ids of the images' outputs where these stand.
    pub tokens: Vec<u32>,
    /// The images, in the order of their positions.
    pub images: Vec<ImagePart>,
}

impl Prompt {
    /// A prompt of pieces, whose text `encode` makes tokens of; it is told whether it is the prompt's beginning.
    ///
    /// # Errors
    /// Those of `encode`.
    pub fn of<E>(
        pieces: &[Piece],
        mut encode: impl FnMut(&str, bool) -> Result<Vec<u32>, E>,
    ) -> Result<Prompt, E> {
        let mut prompt = Prompt::default();
        let (mut text, mut begun) = (String::new(), false);
        for piece in pieces {
            match piece {
                Piece::Text(more) => text.push_str(more),
                Piece::Outputs(tile, outputs) => {
                    prompt.tokens.extend(encode(&text, !begun)?);
                    (begun, text) = (true, String::new());
                    let at = prompt.tokens.len();
                    prompt.images.push(ImagePart::new(at, tile.clone(), outputs.clone()));
                    prompt.tokens.extend(tile.ids(outputs.clone()));
                }
            }
        }
        if !text.is_empty() || !begun {
            prompt.tokens.extend(encode(&text, !begun)?);
        }
        Ok(prompt)
    }
}

/// The most that a step has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StepSize {
    pub tokens: usize,
    /// Rows of outputs, where those of all tokens are wanted.
    pub rows: Option<usize>,
}

/// The images of a prompt that is computed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Images(Vec<ImagePart>);

impl Images {
    /// # Errors
    /// When they are no parts of a prompt of `tokens` tokens, or one that has to be one step has more tokens, or more rows
    /// of outputs, than a step.
    pub(crate) fn new(
        parts: Vec<ImagePart>,
        tokens: usize,
        step: StepSize,
    ) -> Result<Images, Error> {
        let mut end = 0;
        for part in &parts {
            let own = part.range();
            if own.start < end || own.end > tokens {
                return Err(Error::ImagePlace { at: own.start });
            }
            let whole = part.tile.together() != Together::No;
            if whole && own.len() > step.tokens {
                return Err(Error::ImageStep { outputs: own.len(), most: step.tokens });
            }
            if let Some(most) = step.rows.filter(|most| whole && own.len() > *most) {
                return Err(Error::ImageOutputs { outputs: own.len(), most });
            }
            end = own.end;
        }
        Ok(Images(parts))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// For a step.
    pub(crate) fn insets(&self) -> Vec<Inset<'_>> {
        self.0.iter().map(ImagePart::inset).collect()
    }

    /// Whether there is no token at a position.
    pub(crate) fn have(&self, position: usize) -> bool {
        self.0.iter().any(|part| part.range().contains(&position))
    }

    /// The first tile from a position on that is still to be encoded.
    pub(crate) fn missing(&self, from: usize) -> Option<&Arc<Tile>> {
        let missing = |part: &&ImagePart| part.rows.is_none() && part.range().end > from;
        self.0.iter().find(missing).map(|part| &part.tile)
    }

    /// What the encoder gave of a tile.
    pub(crate) fn fill(&mut self, id: [u8; 16], rows: &Encoded) {
        let parts = self.0.iter_mut().filter(|part| part.tile.id() == id);
        parts.for_each(|part| part.rows = Some(rows.clone()));
    }

    /// Of the `tokens` from position `from` on, how many a step can take: no image that is not encoded yet, and rows that
    /// see each other all or not at all.
    pub(crate) fn cut(&self, from: usize, tokens: usize) -> usize {
        let mut end = from + tokens;
        for part in &self.0 {
            let own = part.range();
            if own.end <= from || own.start >= end {
                continue;
            }
            if part.rows.is_none() || part.tile.together() != Together::No && own.end > end {
                end = own.start.max(from);
            }
        }
        end - from
    }

    /// Of the tokens from position `from` on, how many a step has to take at least: all rows of an image that see each
    /// other; none while the image is not encoded.
    pub(crate) fn piece(&self, from: usize) -> usize {
        let part = self.0.iter().find(|part| part.range().contains(&from));
        part.map_or(1, |part| match part.tile.together() {
            _ if part.rows.is_none() => 0,
            Together::No => 1,
            _ => part.range().end - from,
        })
    }

    /// Where a sequence can go on of which `len` tokens are there: not within rows that see each other.
    pub(crate) fn resume(&self, len: usize) -> usize {
        let within = |part: &&ImagePart| {
            part.tile.together() != Together::No
                && part.range().start < len
                && len < part.range().end
        };
        self.0.iter().find(within).map_or(len, |part| part.range().start)
    }
}
