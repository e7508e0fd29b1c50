//! Tiny image encoders, as GGUF bytes.

use crate::Rng;
use gguf::{TensorType, Writer};

/// Width of the residual stream, and pixels on a side of a patch.
const HIDDEN: usize = 32;
const PATCH: usize = 8;

/// Patches on a side of a square that becomes one output.
const MERGED: usize = 2;

/// Outputs of [`whole_encoder`] for every picture.
pub const WHOLE: usize = 36;

/// An encoder of the kind of SmolVLM for a language model of `output` elements: squares of 16 by 16 pixels give one
/// output each, and pictures are brought to 32 pixels.
///
/// # Panics
/// When `output` is not a multiple of 16.
pub fn encoder(output: usize) -> Vec<u8> {
    let preprocessed = ("preproc_image_size", 2 * MERGED * PATCH);
    let projection = ("mm.model.fc.weight", [HIDDEN * MERGED * MERGED, output]);
    written("idefics3", (MERGED, output), &[preprocessed], projection)
}

/// An encoder of the kind of Gemma 3 for a language model of `output` elements: every picture is brought to a square of 96
/// pixels and gives [`WHOLE`] outputs, which attend to each other.
///
/// # Panics
/// When `output` is not a multiple of 16.
pub fn whole_encoder(output: usize) -> Vec<u8> {
    let side = MERGED * WHOLE.isqrt();
    written("gemma3", (side, output), &[], ("mm.input_projection.weight", [output, HIDDEN]))
}

/// An encoder of `side` by `side` patches, whose outputs are rows of `output` numbers.
fn written(
    kind: &str,
    (side, output): (usize, usize),
    more: &[(&str, usize)],
    (projection, dims): (&str, [usize; 2]),
) -> Vec<u8> {
    let mut w = Writer::new();
    w.kv("general.architecture", "clip").kv("general.name", "tiny encoder");
    w.kv("clip.projector_type", kind).kv("clip.has_vision_encoder", true);
    let sizes = [
        ("projection_dim", output),
        ("image_size", side * PATCH),
        ("patch_size", PATCH),
        ("embedding_length", HIDDEN),
        ("feed_forward_length", 2 * HIDDEN),
        ("block_count", 1),
        ("attention.head_count", 2),
        ("projector.scale_factor", MERGED),
    ];
    for (key, size) in sizes.iter().chain(more) {
        w.kv(format!("clip.vision.{key}"), *size as u32);
    }
    w.kv("clip.vision.attention.layer_norm_epsilon", 1e-6f32);
    w.kv("clip.vision.image_mean", vec![0.5f32; 3]).kv("clip.vision.image_std", vec![0.5f32; 3]);
    let mut add = |name: String, dims: &[usize], about: f32| {
        let elements: usize = dims.iter().product();
        let inputs = elements / dims.last().expect("a dimension");
        let deviation = if inputs == 1 { 0.1 } else { (inputs as f32).sqrt().recip() };
        let mut values = Rng::named(1, &name).normals(elements, deviation);
        values.iter_mut().for_each(|v| *v += about);
        let data: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        w.tensor(name, dims, TensorType::F32, data);
    };
    let mut both = |name: &str, dims: &[usize], about: f32| {
        add(format!("{name}.weight"), dims, about);
        add(format!("{name}.bias"), &dims[dims.len() - 1..], 0.0);
    };
    both("v.patch_embd", &[PATCH, PATCH, 3, HIDDEN], 0.0);
    both("v.post_ln", &[HIDDEN], 1.0);
    for (name, cols, rows) in [
        ("attn_q", HIDDEN, HIDDEN),
        ("attn_k", HIDDEN, HIDDEN),
        ("attn_v", HIDDEN, HIDDEN),
        ("attn_out", HIDDEN, HIDDEN),
        ("ffn_up", HIDDEN, 2 * HIDDEN),
        ("ffn_down", 2 * HIDDEN, HIDDEN),
    ] {
        both(&format!("v.blk.0.{name}"), &[cols, rows], 0.0);
    }
    both("v.blk.0.ln1", &[HIDDEN], 1.0);
    both("v.blk.0.ln2", &[HIDDEN], 1.0);
    add("v.position_embd.weight".to_owned(), &[HIDDEN, side * side], 0.0);
    if kind == "gemma3" {
        add("mm.soft_emb_norm.weight".to_owned(), &[HIDDEN], 1.0);
    }
    add(projection.to_owned(), &dims, 0.0);
    let mut bytes = Vec::new();
    w.write_to(&mut bytes).expect("a vector takes everything");
    bytes
}
