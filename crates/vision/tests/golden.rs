//! Pixel values against the image processors of transformers (those on torchvision).
//!
//! Fixtures and their making: `tests/golden/README.md`.

use arclight_vision::{Picture, Piece, Processor};
use gguf::Gguf;
use serde_json::Value;
use testkit::repository;

const MODELS: &[&str] = &[
    "smolvlm",
    "gemma3_images",
    "qwen2vl_images",
    "qwen25vl_images",
    "qwen3vl_images",
    "gemma4_images",
    "gemma4_limits",
    "qwen35_images",
    "mistral3_images",
    "lfm2vl_images",
];

/// A level of 256 is 0.008.
const TOLERANCE: f32 = 1e-4;

fn processor(model: &str) -> Processor {
    let bytes = testkit::golden(&format!("{model}_mmproj"));
    let gguf = Gguf::parse(&bytes).unwrap();
    Processor::new(&gguf, &|of, values| of.ty.dequantize(of.data, values)).unwrap()
}

#[test]
fn pixel_values_agree_with_transformers() {
    for model in MODELS {
        let processor = processor(model);
        let path = repository(&format!("tests/golden/{model}/expected.json"));
        let all: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        let number = |v: &Value| v.as_u64().unwrap() as usize;
        let every = number(&all["every"]);
        for known in all["pictures"].as_array().unwrap() {
            let (width, height) = (number(&known["width"]), number(&known["height"]));
            let picture = Picture::from_rgb(width, height, testkit::picture(width, height));
            let pieces = processor.pieces(&picture).unwrap();
            let mut tiles: Vec<_> = pieces
                .into_iter()
                .filter_map(|piece| match piece {
                    Piece::Outputs(tile, _) => Some(tile),
                    Piece::Text(_) => None,
                })
                .collect();
            tiles.dedup_by_key(|tile| tile.id());
            let wanted = known["tiles"].as_array().unwrap();
            assert_eq!(tiles.len(), wanted.len(), "{model}, {width} by {height}");
            for (at, (tile, want)) in tiles.iter().zip(wanted).enumerate() {
                let what = format!("{model}, {width} by {height}, tile {at}");
                let size = (tile.picture().width(), tile.picture().height());
                assert_eq!(size, (number(&want["width"]), number(&want["height"])), "{what}");
                let got = processor.pixel_values(tile);
                let got = got.iter().step_by(every);
                let want = want["values"].as_array().unwrap();
                assert_eq!(got.len(), want.len(), "{what}");
                let off = got.zip(want).map(|(g, w)| (g - w.as_f64().unwrap() as f32).abs());
                let (off, wrong) = off.fold((0f32, 0), |(most, wrong), off| {
                    (most.max(off), wrong + usize::from(off > TOLERANCE))
                });
                assert!(off < TOLERANCE, "{what}: {wrong} of {} off by up to {off}", want.len());
            }
        }
    }
}
