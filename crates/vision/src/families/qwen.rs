//! Qwen2-VL, Qwen2.5-VL and Qwen3-VL: pictures keep their shape, as far as whole squares of patches allow
//! (arXiv:2409.12191).

use super::rounded;
use models::Vision;

/// Pixels on a side of a window.
const WINDOW: usize = 112;

/// The size that a picture is brought to, `(width, height)`.
pub(super) fn size(vision: &Vision, (width, height): (usize, usize)) -> (usize, usize) {
    fit((vision.patch * vision.merge, 0), vision.pixels, (width, height))
}

/// Sides of whole units, each at least `shortest`, between so many pixels in all.
pub(super) fn fit(
    (unit, shortest): (usize, usize),
    (least, most): (usize, usize),
    (width, height): (usize, usize),
) -> (usize, usize) {
    let units = |side: usize| (rounded(side as f64 / unit as f64) * unit).max(shortest);
    let all = units(width) * units(height);
    let area = (width * height) as f64;
    let (least_area, most_area) = (least as f64, most as f64);
    let scaled = |side: usize, by: f64, round: fn(f64) -> f64| {
        round(side as f64 * by / unit as f64) as usize * unit
    };
    if all > most {
        let by = (area / most_area).sqrt();
        let side =
            |side: usize| ((side as f64 / by / unit as f64).floor() as usize * unit).max(unit);
        return (side(width), side(height));
    }
    if all < least {
        let by = (least_area / area).sqrt();
        return (scaled(width, by, f64::ceil), scaled(height, by, f64::ceil));
    }
    (units(width), units(height))
}

/// Outputs window by window, and where windows end, in patches.
pub(super) fn windows(vision: &Vision, (rows, cols): (usize, usize)) -> (Vec<u32>, Vec<u32>) {
    let side = (WINDOW / vision.patch / vision.merge).max(1);
    let (mut order, mut ends) = (Vec::with_capacity(rows * cols), Vec::new());
    for top in (0..rows).step_by(side) {
        for left in (0..cols).step_by(side) {
            for y in top..(top + side).min(rows) {
                order.extend((left..(left + side).min(cols)).map(|x| (y * cols + x) as u32));
            }
            ends.push((order.len() * vision.merge * vision.merge) as u32);
        }
    }
    (order, ends)
}

#[cfg(test)]
mod tests {
    use super::fit;

    #[test]
    fn sides_are_whole_units_within_the_limits() {
        let of = |size| fit((28, 0), (56 * 56, 28 * 28 * 1280), size);
        assert_eq!(of((100, 60)), (112, 56));
        assert_eq!(of((20, 20)), (56, 56));
        assert_eq!(of((4000, 3000)), (1148, 840));
        assert_eq!(of((42, 70)), (56, 56), "half goes to the even neighbour");
    }
}
