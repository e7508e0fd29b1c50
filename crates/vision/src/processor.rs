//! What a family makes of a picture.

use crate::error::Error;
use crate::families;
use crate::picture::Picture;
use crate::positions::Positions;
use crate::tile::{Rows, Tile};
use gguf::{Gguf, Tensor};
use models::{Values, Vision, VisionFamily};
use std::ops::Range;
use std::sync::Arc;

/// A part of what stands for a picture in a text.
#[derive(Clone, Debug, PartialEq)]
pub enum Piece {
    /// Text, whose control tokens are meant as such.
    Text(String),
    /// Outputs of the encoder.
    Outputs(Arc<Tile>, Range<usize>),
}

/// The processor of an encoder's file.
#[derive(Clone, Debug)]
pub struct Processor {
    vision: Vision,
    positions: Option<Positions>,
    /// Of the encoder: what other outputs depend on than pixels.
    salt: [u8; 16],
}

impl Processor {
    /// That of a file; `read` reads its tensors.
    ///
    /// # Errors
    /// When the file is no image encoder of a supported family, or its table of positions does not fit.
    pub fn new(gguf: &Gguf<'_>, read: &Values<'_>) -> Result<Processor, Error> {
        const TABLE: &str = "v.position_embd.weight";
        let vision = Vision::read(gguf.metadata())?;
        let positions = match vision.has_positions() {
            false => None,
            true => {
                let missing = || missing(TABLE);
                let table = gguf.tensor(TABLE).ok_or_else(missing)?;
                let (rows, cols) = (table.rows(), table.cols());
                let axes = vision.family == VisionFamily::Gemma4;
                let side = if axes { rows / 2 } else { rows.isqrt() };
                let fixed = [VisionFamily::Idefics3, VisionFamily::Gemma3].contains(&vision.family);
                let why = match () {
                    () if cols != vision.hidden => "rows must be as wide as the encoder",
                    () if axes && (rows % 2 == 1 || side < vision.most_patches / vision.merge) => {
                        "it must have rows for the columns and the rows of the longest image"
                    }
                    () if !axes && side * side != rows => "it must be for a square of patches",
                    () if fixed && side != vision.image_size / vision.patch => {
                        "it must have a row for each patch"
                    }
                    () => "",
                };
                if !why.is_empty() {
                    return Err(Error::Positions { rows, cols, why });
                }
                let mut values = vec![0.0; rows * cols];
                read(table, &mut values)?;
                Some(Positions::new(side, cols, values))
            }
        };
        check_limits(&vision, gguf, read)?;
        Ok(Processor { vision, positions, salt: salt(gguf, read)? })
    }

    /// What the file says.
    pub fn vision(&self) -> &Vision {
        &self.vision
    }

    /// What chat templates of the family write where a picture stands.
    pub fn marker(&self) -> &'static str {
        families::marker(self.vision.family)
    }

    /// What stands for a picture in the text of a message, where a template has no place of its own for it.
    pub fn mark_in_text(&self) -> &'static str {
        families::mark_in_text(self.vision.family)
    }

    /// A prompt whose marks are replaced, one after the other, by what stands for pictures.
    ///
    /// # Errors
    /// When there are more or fewer marks than pictures.
    pub fn compose(&self, text: &str, pictures: &[Vec<Piece>]) -> Result<Vec<Piece>, Error> {
        let texts: Vec<&str> = text.split(self.marker()).collect();
        let marks = texts.len() - 1;
        if marks != pictures.len() {
            let marker = self.marker();
            return Err(Error::Marks { marker, marks, pictures: pictures.len() });
        }
        let mut all = Vec::new();
        for (at, text) in texts.into_iter().enumerate() {
            all.push(Piece::Text(text.to_owned()));
            all.extend(pictures.get(at).into_iter().flatten().cloned());
        }
        Ok(all)
    }

    /// What stands in the place of that mark.
    ///
    /// # Errors
    /// When one side of the picture is more than 200 times the other.
    pub fn pieces(&self, picture: &Picture) -> Result<Vec<Piece>, Error> {
        let (width, height) = (picture.width(), picture.height());
        if width.max(height) > 200 * width.min(height) {
            return Err(Error::TooNarrow { width, height });
        }
        Ok(families::pieces((&self.vision, self.salt), picture))
    }

    /// Pixels of a tile as the encoder takes them, from -1 to 1 or as mean and deviation say: `[3, height, width]`.
    pub fn pixel_values(&self, tile: &Tile) -> Vec<f32> {
        let rgb = tile.picture.rgb();
        let of = |colour: usize| {
            let (mean, deviation) = (self.vision.mean[colour], self.vision.deviation[colour]);
            let (mean, deviation) = (mean * 255.0, deviation * 255.0);
            rgb[colour..].iter().step_by(3).map(move |&x| (f32::from(x) - mean) / deviation)
        };
        (0..3).flat_map(of).collect()
    }

    /// The encoder's input for a tile.
    pub fn rows(&self, tile: &Tile) -> Rows {
        let Vision { family, patch, merge, .. } = self.vision;
        let (width, height) = (tile.picture.width(), tile.picture.height());
        let (rows, cols) = (height / patch, width / patch);
        let mut pixels = self.pixel_values(tile);
        if family == VisionFamily::Gemma4 {
            // The model brings them from 0 and 1 to -1 and 1.
            pixels.iter_mut().for_each(|x| *x = 2.0 * (*x - 0.5));
        }
        let positions = self.positions.as_ref().map(|table| table.of(family, (rows, cols)));
        let (order, runs) = families::windows(&self.vision, tile.grid);
        let usual: Vec<u32> = (0..tile.outputs() as u32).collect();
        let outputs = if order.is_empty() { &usual } else { &order };
        let count = rows * cols;
        let mut values = Vec::with_capacity(count * self.vision.row_width());
        let mut spots = Vec::with_capacity(count);
        let hidden = self.vision.hidden;
        for &output in outputs {
            let (top, left) = (output as usize / tile.grid.1, output as usize % tile.grid.1);
            for own in 0..merge * merge {
                let (y, x) = (top * merge + own / merge, left * merge + own % merge);
                for colour in 0..3 {
                    for line in y * patch..(y + 1) * patch {
                        let first = (colour * height + line) * width + x * patch;
                        values.extend_from_slice(&pixels[first..first + patch]);
                    }
                }
                if let Some(positions) = &positions {
                    values.extend_from_slice(&positions[(y * cols + x) * hidden..][..hidden]);
                }
                spots.push([0, y as u32, x as u32]);
            }
        }
        Rows { values, count, spots, runs, each: merge * merge, order }
    }
}

/// Products of one input are computed together, so what limits it is to be the same for all of them.
fn check_limits(vision: &Vision, gguf: &Gguf<'_>, read: &Values<'_>) -> Result<(), Error> {
    let together = [&["attn_q", "attn_k", "attn_v"][..], &["ffn_gate", "ffn_up"]];
    for (layer, tensors) in (0..vision.layers).flat_map(|layer| together.map(|of| (layer, of))) {
        for limit in ["input_min", "input_max"] {
            let mut all = Vec::with_capacity(tensors.len());
            for tensor in tensors {
                let stated = gguf.tensor(&format!("v.blk.{layer}.{tensor}.{limit}"));
                all.push(stated.map(|stated| numbers(stated, read)).transpose()?);
            }
            if all.iter().any(|other| *other != all[0]) {
                return Err(Error::Limits { layer, limit, tensors });
            }
        }
    }
    Ok(())
}

fn numbers(tensor: &Tensor<'_>, read: &Values<'_>) -> Result<Vec<f32>, Error> {
    let mut values = vec![0.0; tensor.rows() * tensor.cols()];
    read(tensor, &mut values)?;
    Ok(values)
}

/// A hash of what a file says, of its small tensors and of some of the others.
fn salt(gguf: &Gguf<'_>, read: &Values<'_>) -> Result<[u8; 16], Error> {
    /// Elements of a small tensor.
    const SMALL: usize = 1 << 12;
    /// Bytes of a tensor that are looked at, at its beginning and in its middle: files differ in all of them.
    const LOOK: usize = 256;
    let mut hasher = blake3::Hasher::new();
    for (key, value) in gguf.metadata().iter() {
        hasher.update(format!("{key} {value}\0").as_bytes());
    }
    for tensor in gguf.tensors() {
        hasher.update(tensor.name().as_bytes());
        for from in [0, tensor.data.len() / 2] {
            hasher.update(&tensor.data[from..tensor.data.len().min(from + LOOK)]);
        }
        // Of a file that is made as it is read, only what is asked for is there.
        if tensor.rows() * tensor.cols() <= SMALL {
            numbers(tensor, read)?.iter().for_each(|x| _ = hasher.update(&x.to_le_bytes()));
        }
    }
    Ok(*hasher.finalize().as_bytes().first_chunk().expect("a hash has 32 bytes"))
}

fn missing(name: &str) -> Error {
    Error::Model(models::missing_tensor(name))
}
