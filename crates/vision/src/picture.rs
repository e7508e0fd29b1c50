//! Decoding, within bounds.

use crate::error::Error;
use image::{DynamicImage, ImageDecoder, ImageFormat, ImageReader, Limits};
use std::io::Cursor;

/// What a picture may be.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Pixels in all.
    pub pixels: u64,
}

impl Default for Bounds {
    /// 64 million pixels.
    fn default() -> Bounds {
        Bounds { pixels: 64 << 20 }
    }
}

/// Bytes that a decoder takes for a pixel, at most: four colours of 32 bits, twice.
const BYTES_PER_PIXEL: u64 = 32;

/// Bytes that a decoder always has room for: it is to get as far as the header, whose size is checked.
const LEAST_BYTES: u64 = 64 << 10;

/// An image: rows of pixels, three colours each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    width: usize,
    height: usize,
    rgb: Vec<u8>, // [height, width, 3]
}

impl Picture {
    /// Decodes a file's bytes: PNG, JPEG, WebP, or the first picture of a GIF. It is turned as its EXIF data say, and
    /// what is transparent is white.
    ///
    /// # Errors
    /// When the bytes are of no such format, damaged, or of more pixels than `bounds` allow. Of those nothing is
    /// decoded.
    pub fn decode(bytes: &[u8], bounds: Bounds) -> Result<Picture, Error> {
        let fault = |error: image::ImageError| Error::Decode(error.to_string());
        let mut reader = ImageReader::new(Cursor::new(bytes));
        let format = image::guess_format(bytes).map_err(|_| Error::UnknownFormat)?;
        let known = [ImageFormat::Png, ImageFormat::Jpeg, ImageFormat::WebP, ImageFormat::Gif];
        if !known.contains(&format) {
            return Err(Error::UnknownFormat);
        }
        reader.set_format(format);
        let mut limits = Limits::default();
        limits.max_alloc = Some(bounds.pixels.saturating_mul(BYTES_PER_PIXEL).max(LEAST_BYTES));
        reader.limits(limits);
        let mut decoder = reader.into_decoder().map_err(fault)?;
        let (width, height) = decoder.dimensions();
        if width == 0 || height == 0 {
            return Err(Error::Decode("it has no pixels".to_owned()));
        }
        if u64::from(width) * u64::from(height) > bounds.pixels {
            return Err(Error::TooLarge { width, height, most: bounds.pixels });
        }
        let orientation = decoder.orientation().map_err(fault)?;
        let mut decoded = DynamicImage::from_decoder(decoder).map_err(fault)?;
        decoded.apply_orientation(orientation);
        let (width, height) = (decoded.width() as usize, decoded.height() as usize);
        let rgb = match decoded.color().has_alpha() {
            false => decoded.into_rgb8().into_raw(),
            true => {
                let on_white = |pixel: &[u8; 4]| {
                    let alpha = u32::from(pixel[3]);
                    let of = |i: usize| {
                        ((u32::from(pixel[i]) * alpha + 255 * (255 - alpha) + 127) / 255) as u8
                    };
                    [of(0), of(1), of(2)]
                };
                decoded.into_rgba8().into_raw().as_chunks().0.iter().flat_map(on_white).collect()
            }
        };
        Ok(Picture { width, height, rgb })
    }

    /// A picture of pixels that are there already, `[height, width, 3]`.
    ///
    /// # Panics
    /// When they are not as many as that, or none.
    pub fn from_rgb(width: usize, height: usize, rgb: Vec<u8>) -> Picture {
        assert!(!rgb.is_empty() && rgb.len() == 3 * width * height, "three bytes to a pixel");
        Picture { width, height, rgb }
    }

    /// Pixels in a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Rows.
    pub fn height(&self) -> usize {
        self.height
    }

    /// All pixels, `[height, width, 3]`.
    pub fn rgb(&self) -> &[u8] {
        &self.rgb
    }

    /// A part of it.
    pub(crate) fn cut(
        &self,
        (left, top): (usize, usize),
        (width, height): (usize, usize),
    ) -> Picture {
        let row = |y: usize| {
            let first = 3 * ((top + y) * self.width + left);
            &self.rgb[first..first + 3 * width]
        };
        let rgb = (0..height).flat_map(row).copied().collect();
        Picture { width, height, rgb }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use image::{ExtendedColorType, ImageEncoder};

    fn png(width: u32, height: u32, pixels: &[u8], colour: ExtendedColorType) -> Vec<u8> {
        let mut bytes = Vec::new();
        let encoder = image::codecs::png::PngEncoder::new(&mut bytes);
        encoder.write_image(pixels, width, height, colour).unwrap();
        bytes
    }

    #[test]
    fn colours_are_three_and_what_is_transparent_is_white() {
        let rgba = [9, 8, 7, 255, 9, 8, 7, 0, 0, 0, 0, 127];
        let picture = png(3, 1, &rgba, ExtendedColorType::Rgba8);
        let picture = Picture::decode(&picture, Bounds::default()).unwrap();
        assert_eq!(picture.rgb(), [9, 8, 7, 255, 255, 255, 128, 128, 128]);
        let grey = png(1, 2, &[5, 6], ExtendedColorType::L8);
        let grey = Picture::decode(&grey, Bounds::default()).unwrap();
        assert_eq!((grey.width(), grey.height(), grey.rgb()), (1, 2, &[5, 5, 5, 6, 6, 6][..]));
    }

    #[test]
    fn bounds_hold_before_anything_is_decoded() {
        let bytes = png(20, 30, &[0; 1800], ExtendedColorType::Rgb8);
        let of = |pixels| Picture::decode(&bytes, Bounds { pixels });
        assert!(of(600).is_ok());
        let error = of(599).unwrap_err().to_string();
        assert!(error.contains("20 by 30") && error.contains("599"), "{error}");
        assert!(matches!(of(0), Err(Error::TooLarge { width: 20, height: 30, most: 0 })));
    }

    #[test]
    fn what_is_no_image_or_half_of_one_is_an_error() {
        let decode = |bytes: &[u8]| Picture::decode(bytes, Bounds::default()).unwrap_err();
        assert!(matches!(decode(b""), Error::UnknownFormat));
        assert!(matches!(decode(b"BM0000000000"), Error::UnknownFormat));
        let bytes = png(20, 30, &[7; 1800], ExtendedColorType::Rgb8);
        for len in [8, 20, bytes.len() / 2] {
            assert!(matches!(decode(&bytes[..len]), Error::Decode(_)), "{len} bytes");
        }
    }
}
