//! Files of images that are damaged: an error or a picture, no panic, and memory within the bounds. Alone in its binary:
//! it counts for the whole process.

use arclight_vision::{Bounds, Picture};
use image::codecs::{gif, jpeg, png, webp};
use image::{ExtendedColorType, ImageEncoder};
use peak_alloc::PeakAlloc;
use std::sync::{Mutex, PoisonError};
use testkit::Rng;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// Tests take turns: what one takes would be counted for the other.
static TURN: Mutex<()> = Mutex::new(());

/// Pixels that a picture may have here: four times those of the files.
const PIXELS: u64 = 4 * WIDTH as u64 * HEIGHT as u64;
const WIDTH: u32 = 40;
const HEIGHT: u32 = 30;

/// Bytes for a pixel that is allowed: a decoder's four colours of 32 bits, twice, and the picture in two forms.
const BYTES_PER_PIXEL: usize = 64;
/// Tables of decoders, whatever the picture's size.
const TABLES: usize = 1 << 20;

/// A file in every format and kind of pixels.
fn files() -> Vec<(String, Vec<u8>)> {
    let mut rng = Rng::new(1);
    // Some of it alike, so that there is something to compress.
    let of = |colours: usize, rng: &mut Rng| -> Vec<u8> {
        let count = (WIDTH * HEIGHT) as usize * colours;
        (0..count).map(|i| (i / 3 * 7) as u8 ^ (rng.below(8) as u8)).collect()
    };
    let mut files = Vec::new();
    for (name, kind, colours) in [
        ("grey", ExtendedColorType::L8, 1),
        ("grey and alpha", ExtendedColorType::La8, 2),
        ("rgb", ExtendedColorType::Rgb8, 3),
        ("rgba", ExtendedColorType::Rgba8, 4),
        ("rgb of 16 bits", ExtendedColorType::Rgb16, 6),
    ] {
        let pixels = of(colours, &mut rng);
        let mut file = Vec::new();
        png::PngEncoder::new(&mut file).write_image(&pixels, WIDTH, HEIGHT, kind).unwrap();
        files.push((format!("png {name}"), file));
        if colours <= 4 {
            let mut file = Vec::new();
            let encoder = webp::WebPEncoder::new_lossless(&mut file);
            encoder.write_image(&pixels, WIDTH, HEIGHT, kind).unwrap();
            files.push((format!("webp {name}"), file));
        }
        if colours == 1 || colours == 3 {
            let mut file = Vec::new();
            let encoder = jpeg::JpegEncoder::new_with_quality(&mut file, 80);
            encoder.write_image(&pixels, WIDTH, HEIGHT, kind).unwrap();
            files.push((format!("jpeg {name}"), file));
        }
        if colours == 3 || colours == 4 {
            let mut file = Vec::new();
            gif::GifEncoder::new(&mut file).encode(&pixels, WIDTH, HEIGHT, kind).unwrap();
            files.push((format!("gif {name}"), file));
        }
    }
    files
}

/// A file with some damage: bytes that are others, missing, or there twice, mostly near the beginning, where sizes are.
fn damaged(file: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut file = file.to_vec();
    for _ in 0..1 + rng.below(4) {
        let near = if rng.below(2) == 0 { file.len().min(64) } else { file.len() };
        if near == 0 {
            break;
        }
        let at = rng.below(near);
        match rng.below(7) {
            0 => file[at] ^= 1 << rng.below(8),
            1 => file[at] = rng.below(256) as u8,
            2 => file[at] = [0, 0xff, 0x7f, 0x80][rng.below(4)],
            3 => file.truncate(at),
            4 => drop(file.drain(at..(at + 1 + rng.below(16)).min(file.len()))),
            5 => {
                let part = file[at..(at + 1 + rng.below(64)).min(file.len())].to_vec();
                let to = rng.below(file.len());
                file.splice(to..to, part);
            }
            _ => {
                // Numbers of four bytes, as sizes and lengths are.
                let number = [0u32, 1, 0xffff, 0x7fff_ffff, u32::MAX, rng.below(1 << 20) as u32];
                let number = number[rng.below(number.len())];
                let bytes =
                    if rng.below(2) == 0 { number.to_be_bytes() } else { number.to_le_bytes() };
                let end = (at + 4).min(file.len());
                file[at..end].copy_from_slice(&bytes[..end - at]);
            }
        }
    }
    file
}

/// A PNG whose chunks have the sums of what they hold, as far as they are whole: what is damaged gets further.
fn with_sums(mut file: Vec<u8>) -> Vec<u8> {
    let mut at = 8;
    while let Some(length) = file.get(at..at + 4) {
        let length = u32::from_be_bytes(length.try_into().unwrap()) as usize;
        let Some(end) = at.checked_add(8 + length).filter(|end| end + 4 <= file.len()) else {
            break;
        };
        let sum = crc32(&file[at + 4..end]).to_be_bytes();
        file[end..end + 4].copy_from_slice(&sum);
        at = end + 4;
    }
    file
}

/// What decoding takes at most, beside what was there before.
fn decode(file: &[u8]) -> (Result<Picture, String>, usize) {
    MEMORY.reset_peak_usage();
    let before = MEMORY.current_usage();
    let picture = Picture::decode(file, Bounds { pixels: PIXELS }).map_err(|e| e.to_string());
    (picture, MEMORY.peak_usage().saturating_sub(before))
}

#[test]
fn damaged_files_are_errors_or_pictures_within_the_bounds() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let allowed = PIXELS as usize * BYTES_PER_PIXEL + TABLES;
    let mut rng = Rng::new(7);
    for (name, file) in files() {
        let (whole, _) = decode(&file);
        let whole = whole.unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!((whole.width(), whole.height()), (WIDTH as usize, HEIGHT as usize), "{name}");
        let (mut pictures, mut most) = (0, 0);
        for round in 0..1500 {
            let file = damaged(&file, &mut rng);
            let summed = name.starts_with("png") && round % 4 > 0;
            let file = if summed { with_sums(file) } else { file };
            let (picture, bytes) = decode(&file);
            most = most.max(bytes);
            assert!(bytes <= allowed, "{name}, round {round}: {bytes} bytes, {allowed} allowed");
            if let Ok(picture) = picture {
                pictures += 1;
                let pixels = picture.width() * picture.height();
                assert!(pixels as u64 <= PIXELS, "{name}, round {round}: {pixels} pixels");
                assert_eq!(picture.rgb().len(), 3 * pixels, "{name}, round {round}");
            }
        }
        eprintln!("{name}: {pictures} of 1500 are pictures, {most} bytes at most");
        // The damage is not such that nothing gets far.
        assert!(pictures > 10, "{name}: {pictures} are pictures");
    }
}

/// A size beyond the bounds is told before anything of it is decoded.
#[test]
fn sizes_beyond_the_bounds_take_nothing() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let (_, file) = files().into_iter().find(|(name, _)| name == "png rgb").unwrap();
    for side in [121u32, 20_000, 0x7fff_ffff, u32::MAX] {
        let mut file = file.clone();
        file[16..20].copy_from_slice(&side.to_be_bytes());
        let crc = crc32(&file[12..29]);
        file[29..33].copy_from_slice(&crc.to_be_bytes());
        let (picture, bytes) = decode(&file);
        let error = picture.unwrap_err();
        assert!(bytes < TABLES, "{side} wide: {bytes} bytes ({error})");
    }
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| {
            if crc & 1 == 1 { crc >> 1 ^ 0xEDB8_8320 } else { crc >> 1 }
        })
    })
}
