//! Resizing of pixels of 8 bits, with the rounding of the library that the reference uses (torchvision on a CPU).
//!
//! A pass over rows, then one over columns; each result is rounded to 8 bits. Weights are rounded to as many bits as 16
//! have room for beside the largest. An image that is made smaller is filtered by as much (antialias).

use crate::picture::Picture;

/// Filters by their usual names.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Filter {
    Bilinear,
    Bicubic,
    Lanczos,
}

impl Filter {
    /// How far it reaches.
    fn support(self) -> f64 {
        match self {
            Filter::Bilinear => 1.0,
            Filter::Bicubic => 2.0,
            Filter::Lanczos => 3.0,
        }
    }

    fn at(self, x: f64) -> f64 {
        let x = x.abs();
        match self {
            Filter::Bilinear => (1.0 - x).max(0.0),
            Filter::Bicubic => {
                const A: f64 = -0.5;
                match x {
                    x if x < 1.0 => ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0,
                    x if x < 2.0 => (((x - 5.0) * x + 8.0) * x - 4.0) * A,
                    _ => 0.0,
                }
            }
            Filter::Lanczos => {
                let sinc = |x: f64| match x * std::f64::consts::PI {
                    0.0 => 1.0,
                    x => x.sin() / x,
                };
                if x < 3.0 { sinc(x) * sinc(x / 3.0) } else { 0.0 }
            }
        }
    }
}

/// What one output is made of: the first input, and its weight and those of the following ones.
struct Taps<T> {
    first: usize,
    weights: Vec<T>,
}

/// Weights of `to` outputs over `from` inputs.
fn taps(filter: Filter, from: usize, to: usize) -> Vec<Taps<f64>> {
    let scale = from as f64 / to as f64;
    let stretch = scale.max(1.0);
    let support = filter.support() * stretch;
    (0..to)
        .map(|i| {
            let centre = scale * (i as f64 + 0.5);
            let first = (centre - support + 0.5).max(0.0) as usize;
            let end = ((centre + support + 0.5) as usize).min(from);
            let at = |j: usize| filter.at((j as f64 - centre + 0.5) / stretch);
            let weights: Vec<f64> = (first..end).map(at).collect();
            let sum: f64 = weights.iter().sum();
            let sum = if sum == 0.0 { 1.0 } else { sum };
            Taps { first, weights: weights.into_iter().map(|w| w / sum).collect() }
        })
        .collect()
}

/// The same as whole numbers, and how many bits are behind the point.
fn whole(taps: &[Taps<f64>]) -> (Vec<Taps<i32>>, u32) {
    let most = taps.iter().flat_map(|t| &t.weights).copied().fold(0.0, f64::max);
    let fits = |bits: &u32| (0.5 + most * f64::from(1u32 << (bits + 1))) < f64::from(1 << 15);
    let bits = (0..22).take_while(fits).count() as u32;
    let one = f64::from(1u32 << bits);
    let round = |w: &f64| (w * one + 0.5f64.copysign(*w)) as i32;
    let of =
        |t: &Taps<f64>| Taps { first: t.first, weights: t.weights.iter().map(round).collect() };
    (taps.iter().map(of).collect(), bits)
}

/// A picture of another size.
pub(crate) fn resize(
    picture: &Picture,
    (width, height): (usize, usize),
    filter: Filter,
) -> Picture {
    let mut rgb = picture.rgb().to_vec();
    let (from, rows) = (picture.width(), picture.height());
    if from != width {
        let (taps, bits) = whole(&taps(filter, from, width));
        let mut next = Vec::with_capacity(3 * width * rows);
        for row in rgb.chunks_exact(3 * from) {
            for t in &taps {
                let pixels = row[3 * t.first..].as_chunks::<3>().0;
                let mut sums = [1 << bits >> 1; 3];
                for (&w, pixel) in t.weights.iter().zip(pixels) {
                    (0..3).for_each(|c| sums[c] += w * i32::from(pixel[c]));
                }
                next.extend(sums.map(|sum: i32| (sum >> bits).clamp(0, 255) as u8));
            }
        }
        rgb = next;
    }
    if rows != height {
        let (taps, bits) = whole(&taps(filter, rows, height));
        let mut next = Vec::with_capacity(3 * width * height);
        let mut sums = vec![0i32; 3 * width];
        for t in &taps {
            sums.fill(1 << bits >> 1);
            for (i, &w) in t.weights.iter().enumerate() {
                let row = &rgb[3 * width * (t.first + i)..][..3 * width];
                sums.iter_mut().zip(row).for_each(|(sum, &x)| *sum += w * i32::from(x));
            }
            next.extend(sums.iter().map(|sum| (sum >> bits).clamp(0, 255) as u8));
        }
        rgb = next;
    }
    Picture::from_rgb(width, height, rgb)
}

/// A table of `[side, side, width]` numbers for another grid, `(rows, columns)`, with a bilinear filter that antialiases.
pub(crate) fn table(
    values: &[f32],
    (side, width): (usize, usize),
    (rows, cols): (usize, usize),
) -> Vec<f32> {
    let add = |to: &mut [f32], weight: f64, from: &[f32]| {
        to.iter_mut().zip(from).for_each(|(to, x)| *to += weight as f32 * x);
    };
    let across = taps(Filter::Bilinear, side, cols);
    let mut wide = vec![0.0; side * cols * width]; // [side, cols, width]
    for (row, to) in values.chunks_exact(side * width).zip(wide.chunks_exact_mut(cols * width)) {
        for (t, to) in across.iter().zip(to.chunks_exact_mut(width)) {
            for (i, &w) in t.weights.iter().enumerate() {
                add(to, w, &row[(t.first + i) * width..][..width]);
            }
        }
    }
    let mut all = vec![0.0; rows * cols * width];
    for (t, to) in taps(Filter::Bilinear, side, rows).iter().zip(all.chunks_exact_mut(cols * width))
    {
        for (i, &w) in t.weights.iter().enumerate() {
            add(to, w, &wide[(t.first + i) * cols * width..][..cols * width]);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_size_is_the_same_picture_and_one_colour_stays_one() {
        let picture = Picture::from_rgb(3, 2, (0..18).collect());
        for filter in [Filter::Bilinear, Filter::Bicubic, Filter::Lanczos] {
            assert_eq!(resize(&picture, (3, 2), filter), picture);
            let plain = Picture::from_rgb(7, 5, vec![200; 105]);
            let other = resize(&plain, (13, 3), filter);
            assert!(other.rgb().iter().all(|&x| x == 200), "{filter:?}: {:?}", other.rgb());
        }
    }

    #[test]
    fn halving_with_a_bilinear_filter_weighs_four_pixels() {
        // A line of black and white, 0 0 255 255: weights 1 3 3 1 of eighths, of which one falls off at the ends.
        let line = Picture::from_rgb(4, 1, [0, 0, 0, 0, 0, 0, 255, 255, 255, 255, 255, 255].into());
        let half = resize(&line, (2, 1), Filter::Bilinear);
        assert_eq!(half.rgb(), [36, 36, 36, 219, 219, 219], "255 / 7 and 255 * 6 / 7");
    }
}
