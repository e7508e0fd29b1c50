//! Families: to which size a picture is brought, how it is cut, and what stands around it in a text.

mod gemma4;
mod idefics3;
mod lfm2;
mod qwen;

use crate::picture::Picture;
use crate::processor::Piece;
use crate::resample::{Filter, resize};
use crate::tile::Tile;
use models::{Vision, VisionFamily};
use std::sync::Arc;

/// What templates write for a picture.
pub(crate) fn marker(family: VisionFamily) -> &'static str {
    match family {
        VisionFamily::Idefics3 | VisionFamily::Lfm2 => "<image>",
        VisionFamily::Gemma3 => "<start_of_image>",
        VisionFamily::Qwen2 | VisionFamily::Qwen25 | VisionFamily::Qwen3 => "<|image_pad|>",
        VisionFamily::Pixtral => "[IMG]",
        VisionFamily::Gemma4 => "<|image|>",
    }
}

/// What is written for a picture in the text of a message.
pub(crate) fn mark_in_text(family: VisionFamily) -> &'static str {
    match family {
        VisionFamily::Qwen2 | VisionFamily::Qwen25 | VisionFamily::Qwen3 => {
            "<|vision_start|><|image_pad|><|vision_end|>"
        }
        other => marker(other),
    }
}

/// What pieces are made with: the encoder's sizes, and a hash of it.
type Encoder<'a> = (&'a Vision, [u8; 16]);

/// What stands there instead.
pub(crate) fn pieces(encoder: Encoder<'_>, picture: &Picture) -> Vec<Piece> {
    let (vision, _) = encoder;
    match vision.family {
        VisionFamily::Idefics3 => idefics3::pieces(encoder, picture),
        VisionFamily::Lfm2 => lfm2::pieces(encoder, picture),
        VisionFamily::Gemma3 => {
            let side = vision.image_size;
            let tile = tile(encoder, resize(picture, (side, side), Filter::Bilinear));
            let [before, after] = ["\n\n<start_of_image>", "<end_of_image>\n\n"].map(text);
            vec![before, outputs(tile), after]
        }
        VisionFamily::Qwen2 | VisionFamily::Qwen25 | VisionFamily::Qwen3 => {
            let size = qwen::size(vision, (picture.width(), picture.height()));
            vec![outputs(tile(encoder, resize(picture, size, Filter::Bicubic)))]
        }
        VisionFamily::Gemma4 => {
            let size = gemma4::size(vision, (picture.width(), picture.height()));
            let tile = tile(encoder, resize(picture, size, Filter::Bicubic));
            vec![text("<|image>"), outputs(tile), text("<image|>")]
        }
        VisionFamily::Pixtral => {
            let size = within(vision, (picture.width(), picture.height()));
            let tile = tile(encoder, resize(picture, size, Filter::Bicubic));
            let (rows, cols) = tile.grid;
            let row = |at: usize| {
                let end = if at + 1 == rows { "[IMG_END]" } else { "[IMG_BREAK]" };
                [Piece::Outputs(tile.clone(), at * cols..(at + 1) * cols), text(end)]
            };
            (0..rows).flat_map(row).collect()
        }
    }
}

/// The order of outputs in an encoder with windows, and the ends of its windows in patches.
pub(crate) fn windows(vision: &Vision, grid: (usize, usize)) -> (Vec<u32>, Vec<u32>) {
    match vision.family {
        VisionFamily::Qwen25 if vision.window_period.is_some() => qwen::windows(vision, grid),
        _ => Default::default(),
    }
}

/// Sides of whole patches that become one output, the longer at most as long as the encoder's square (Pixtral).
fn within(vision: &Vision, (width, height): (usize, usize)) -> (usize, usize) {
    let (most, unit) = (vision.image_size as f64, vision.patch * vision.merge);
    let ratio = (height as f64 / most).max(width as f64 / most);
    let side = |len: usize| {
        let len = if ratio > 1.0 { (len as f64 / ratio).floor() as usize } else { len };
        (len.saturating_sub(1) / unit + 1) * unit
    };
    (side(width), side(height))
}

fn text(text: impl Into<String>) -> Piece {
    Piece::Text(text.into())
}

fn outputs(tile: Arc<Tile>) -> Piece {
    let all = 0..tile.outputs();
    Piece::Outputs(tile, all)
}

fn tile((vision, salt): Encoder<'_>, picture: Picture) -> Arc<Tile> {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&salt).update(&picture.width().to_le_bytes());
    hasher.update(picture.rgb());
    let id = *hasher.finalize().as_bytes().first_chunk().expect("a hash has 32 bytes");
    let unit = vision.patch * vision.merge;
    let grid = (picture.height() / unit, picture.width() / unit);
    let spread =
        matches!(vision.family, VisionFamily::Qwen2 | VisionFamily::Qwen25 | VisionFamily::Qwen3);
    let together = vision.together();
    Arc::new(Tile { picture, id, grid, spread, together })
}

/// Half away from zero is not how the processors round: half goes to the even neighbour.
fn rounded(number: f64) -> usize {
    number.round_ties_even() as usize
}
