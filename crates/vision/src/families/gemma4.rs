//! Gemma 4: pictures keep their shape, as far as whole squares of patches allow, and are brought to about one size,
//! whatever theirs is.

use models::Vision;

/// The size that a picture is brought to, `(width, height)`: the largest within the limit of pixels whose sides are whole
/// squares, each one at least.
pub(super) fn size(vision: &Vision, (width, height): (usize, usize)) -> (usize, usize) {
    fit(vision.patch * vision.merge, vision.pixels.1, (width, height))
}

fn fit(unit: usize, most: usize, (width, height): (usize, usize)) -> (usize, usize) {
    let by = (most as f64 / (width * height) as f64).sqrt();
    let side = |side: usize| (by * side as f64 / unit as f64).floor() as usize * unit;
    // The longer side of a narrow picture, whose other side is one square.
    let long = |long: usize, short: usize| (long / short * unit).min(most / (unit * unit) * unit);
    match (side(width), side(height)) {
        (0, _) => (unit, long(height, width)),
        (_, 0) => (long(width, height), unit),
        both => both,
    }
}

#[cfg(test)]
mod tests {
    use super::fit;

    /// `get_aspect_ratio_preserving_size` of `transformers` 5.23.
    #[test]
    fn sizes_are_those_of_transformers() {
        let of = |size| fit(48, 2520 * 256, size);
        assert_eq!(of((1024, 768)), (912, 672));
        assert_eq!(of((20, 20)), (768, 768));
        assert_eq!(of((4000, 100)), (5040, 96));
        assert_eq!(of((20_000, 100)), (11_328, 48));
        assert_eq!(of((100, 40_000)), (48, 13_440));
    }
}
