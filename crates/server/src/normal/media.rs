//! Limits on images of requests.

use std::path::PathBuf;
use vision::Bounds;

/// Limits on images of requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Media {
    /// Folder below which clients may name files; `None`: nowhere.
    pub folder: Option<PathBuf>,
    /// Pixels of an image at most.
    pub pixels: u64,
    /// Pixels of all images of a request at most.
    pub all_pixels: u64,
    /// Bytes of a file at most.
    pub bytes: u64,
    /// Images of a request at most.
    pub images: usize,
}

impl Default for Media {
    fn default() -> Media {
        let pixels = Bounds::default().pixels;
        let all_pixels = Media::all_pixels(pixels);
        Media { folder: None, pixels, all_pixels, bytes: 16 << 20, images: 64 }
    }
}

impl Media {
    /// Pixels of all images of a request at most, where one may have `pixels`: four of the largest, and 256 million in
    /// any case.
    pub fn all_pixels(pixels: u64) -> u64 {
        pixels.saturating_mul(4).max(256 << 20)
    }
}
