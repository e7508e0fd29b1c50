//! LFM2-VL: a picture keeps its shape; a large one is cut into a grid of tiles, and comes once more as a whole.

use super::qwen::fit;
use super::{Encoder, outputs, rounded, text, tile};
use crate::picture::Picture;
use crate::processor::Piece;
use crate::resample::{Filter, resize};

/// Pixels on a side of a tile.
const TILE: usize = 512;
/// Tiles of a picture.
const TILES: std::ops::RangeInclusive<usize> = 2..=10;
/// How many times the pixels of an uncut picture one may have before it is cut.
const TOLERANCE: usize = 2;

pub(super) fn pieces(encoder: Encoder<'_>, picture: &Picture) -> Vec<Piece> {
    let (vision, _) = encoder;
    let (width, height) = (picture.width(), picture.height());
    let unit = vision.patch * vision.merge;
    let units = |side: usize, least: usize| (rounded(side as f64 / unit as f64) * unit).max(least);
    let size = fit((unit, unit), vision.pixels, (width, height));
    let whole = resize(picture, size, Filter::Bilinear);
    let mut all = vec![text("<|image_start|>")];
    let large =
        units(width, vision.patch) * units(height, vision.patch) > TOLERANCE * vision.pixels.1;
    if large {
        let (cols, rows) = grid((width, height));
        let parts = resize(picture, (cols * TILE, rows * TILE), Filter::Bilinear);
        for (row, col) in (0..rows).flat_map(|row| (0..cols).map(move |col| (row, col))) {
            let part = parts.cut((col * TILE, row * TILE), (TILE, TILE));
            all.push(text(format!("<|img_row_{}_col_{}|>", row + 1, col + 1)));
            all.push(outputs(tile(encoder, part)));
        }
        all.push(text("<|img_thumbnail|>"));
    }
    all.extend([outputs(tile(encoder, whole)), text("<|image_end|>")]);
    all
}

/// Columns and rows of tiles whose shape is nearest to the picture's.
fn grid((width, height): (usize, usize)) -> (usize, usize) {
    let (ratio, area) = (width as f64 / height as f64, width * height);
    let most = *TILES.end();
    let pairs = (1..=most).flat_map(|w| (1..=most).map(move |h| (w, h)));
    let mut pairs: Vec<_> = pairs.filter(|(w, h)| TILES.contains(&(w * h))).collect();
    // Of shapes that are equally near, larger ones are looked at later.
    pairs.sort_by_key(|(w, h)| w * h);
    let (mut best, mut off) = ((1, 1), f64::INFINITY);
    for (w, h) in pairs {
        let own = (ratio - w as f64 / h as f64).abs();
        if own < off || own == off && 2 * area > TILE * TILE * w * h {
            (best, off) = ((w, h), own);
        }
    }
    best
}
