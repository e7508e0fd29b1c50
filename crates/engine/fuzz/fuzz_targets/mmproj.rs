//! Any bytes as the file of an image encoder, and one that is whole with some bytes changed: what `--mmproj` reads of
//! it, its tensors, and the encoder that is compiled of them.
//!
//! The first byte chooses: even, the rest is a file; odd, the rest are changes of three bytes each, place and value.
#![no_main]

use arclight_engine::{Encoder, Engine, LoadOptions, ModelFile, processor};
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;
use testkit::TinyModel;

/// Of the model that the encoder is for.
const WIDTH: usize = 256;

static WHOLE: LazyLock<Vec<u8>> = LazyLock::new(|| testkit::encoder(WIDTH));

fn options() -> LoadOptions {
    LoadOptions { no_pin: true, threads: Some(1), context: Some(64), ..LoadOptions::default() }
}

thread_local! {
    static ENGINE: Engine = {
        let model = TinyModel { layers: 1, ..TinyModel::qwen3(gguf::TensorType::Q4_0) };
        let file = ModelFile::from_bytes("tiny", model.gguf());
        Engine::load(&file, &options(), &mut |_| {}).expect("a model")
    };
}

fuzz_target!(|bytes: &[u8]| {
    let [first, rest @ ..] = bytes else { return };
    let file = if first.is_multiple_of(2) {
        rest.to_vec()
    } else {
        let mut file = WHOLE.clone();
        for change in rest.chunks_exact(3) {
            let at = usize::from(u16::from_le_bytes([change[0], change[1]])) % file.len();
            file[at] = change[2];
        }
        file
    };
    let file = ModelFile::from_bytes("mmproj", file);
    if processor(&file).is_ok() {
        ENGINE.with(|engine| _ = Encoder::load(&file, engine, &options(), &mut |_| {}));
    }
});
