//! A tiny image encoder, as GGUF bytes.

use crate::Rng;
use gguf::{TensorType, Writer};

/// Width of its residual stream, patches on a side, pixels on a side of a patch.
const HIDDEN: usize = 32;
const SIDE: usize = 2;
const PATCH: usize = 8;

/// An encoder of the kind of SmolVLM for a language model of `output` elements: squares of 16 by 16 pixels give one
/// output each, and pictures are brought to 32 pixels.
///
/// # Panics
/// When `output` is not a multiple of 16.
pub fn encoder(output: usize) -> Vec<u8> {
    let mut w = Writer::new();
    w.kv("general.architecture", "clip").kv("general.name", "tiny encoder");
    w.kv("clip.projector_type", "idefics3").kv("clip.has_vision_encoder", true);
    let sizes = [
        ("projection_dim", output),
        ("image_size", SIDE * PATCH),
        ("patch_size", PATCH),
        ("embedding_length", HIDDEN),
        ("feed_forward_length", 2 * HIDDEN),
        ("block_count", 1),
        ("attention.head_count", 2),
        ("projector.scale_factor", SIDE),
        ("preproc_image_size", 2 * SIDE * PATCH),
    ];
    for (key, size) in sizes {
        w.kv(format!("clip.vision.{key}"), size as u32);
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
    add("v.position_embd.weight".to_owned(), &[HIDDEN, SIDE * SIDE], 0.0);
    add("mm.model.fc.weight".to_owned(), &[HIDDEN * SIDE * SIDE, output], 0.0);
    let mut bytes = Vec::new();
    w.write_to(&mut bytes).expect("a vector takes everything");
    bytes
}
