//! SmolVLM and Idefics 3: a picture is made of squares as large as the encoder sees, and comes once more as a whole
//! (arXiv:2504.05299, section 3.2).

use super::{Encoder, outputs, text, tile};
use crate::picture::Picture;
use crate::processor::Piece;
use crate::resample::{Filter, resize};

const AROUND: &str = "<fake_token_around_image>";
const WHOLE: &str = "<global-img>";

/// Sides above this are brought to it, whatever the file says.
const MOST: usize = 4096;

pub(super) fn pieces(encoder: Encoder<'_>, picture: &Picture) -> Vec<Piece> {
    let (vision, _) = encoder;
    let square = vision.image_size;
    let longest = vision.longest.unwrap_or(4 * square);
    let first = within(longest, (picture.width(), picture.height()));
    let picture = resize(picture, first, Filter::Lanczos);
    let picture = resize(&picture, in_squares(square, first), Filter::Lanczos);
    let (cols, rows) = (picture.width() / square, picture.height() / square);
    let mut all = Vec::new();
    if (cols, rows) != (1, 1) {
        for row in 0..rows {
            for col in 0..cols {
                let part = picture.cut((col * square, row * square), (square, square));
                all.push(text(format!("{AROUND}<row_{}_col_{}>", row + 1, col + 1)));
                all.push(outputs(tile(encoder, part)));
            }
            all.push(text("\n"));
        }
        all.push(text("\n"));
    }
    let whole = resize(&picture, (square, square), Filter::Lanczos);
    all.extend([text(format!("{AROUND}{WHOLE}")), outputs(tile(encoder, whole)), text(AROUND)]);
    all
}

/// The longer side as long as that, the other one even.
fn within(longest: usize, (width, height): (usize, usize)) -> (usize, usize) {
    let ratio = width as f64 / height as f64;
    let even = |side: f64| (side as usize).next_multiple_of(2);
    let (width, height) = match width >= height {
        true => (longest, even(longest as f64 / ratio)),
        false => (even(longest as f64 * ratio), longest),
    };
    let (width, height) = (width.max(1), height.max(1));
    let ratio = width as f64 / height as f64;
    match () {
        () if width >= height && width > MOST => (MOST, ((MOST as f64 / ratio) as usize).max(1)),
        () if height > width && height > MOST => (((MOST as f64 * ratio) as usize).max(1), MOST),
        () => (width, height),
    }
}

/// Whole squares.
fn in_squares(square: usize, (width, height): (usize, usize)) -> (usize, usize) {
    let ratio = width as f64 / height as f64;
    let whole = |side: usize| side.div_ceil(square) * square;
    match width >= height {
        true => (whole(width), whole((whole(width) as f64 / ratio) as usize)),
        false => (whole((whole(height) as f64 * ratio) as usize), whole(height)),
    }
}
