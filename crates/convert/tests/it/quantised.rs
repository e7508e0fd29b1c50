//! Weights that a folder has quantised.

use crate::folder::{Folder, made, written};
use gguf::{Gguf, TensorType};
use serde_json::json;
use testkit::{f32s, numbers};

const NAME: &str = "model.layers.0.mlp.up_proj";
const OURS: &str = "blk.0.ffn_up.weight";
const ROWS: usize = 32;
const COLS: usize = 16;

/// Small integers by place.
fn integers(count: usize, below: i32, step: usize) -> Vec<i32> {
    (0..count).map(|i| (i * step % below as usize) as i32).collect()
}

fn words(values: impl IntoIterator<Item = u32>) -> Vec<u8> {
    values.into_iter().flat_map(u32::to_le_bytes).collect()
}

#[test]
fn eight_bits_in_blocks() {
    let mut folder = Folder::llama();
    folder
        .set("quantization_config", json!({"quant_method": "fp8", "weight_block_size": [24, 10]}));
    // 1.0, 1.5, -1.0 and 2.0.
    let bytes: Vec<u8> = (0..ROWS * COLS).map(|i| [0x38, 0x3C, 0xB8, 0x40][i % 4]).collect();
    folder.put(&format!("{NAME}.weight"), "F8_E4M3", &[ROWS, COLS], bytes);
    folder.put(&format!("{NAME}.weight_scale_inv"), "F32", &[2, 2], f32s(&[1.0, 2.0, 3.0, 4.0]));
    folder.put(&format!("{NAME}.activation_scale"), "F32", &[1], f32s(&[1.0]));
    let got = made(&folder.open().unwrap(), OURS);
    for (i, x) in got.iter().enumerate() {
        let (row, col) = (i / COLS, i % COLS);
        let scale = [[1.0, 2.0], [3.0, 4.0]][row / 24][col / 10];
        assert_eq!(*x, [1.0, 1.5, -1.0, 2.0][i % 4] * scale, "{row} {col}");
    }
    folder.put(&format!("{NAME}.weight_scale_inv"), "F32", &[3], f32s(&[1.0; 3]));
    let fault = folder.fault();
    assert!(fault.contains("weight_scale_inv` is [3]") && fault.contains("24 by 10"), "{fault}");
}

#[test]
fn compressed_tensors_of_eight_bits_by_row() {
    let mut folder = Folder::llama();
    folder.set(
        "quantization_config",
        json!({"quant_method": "compressed-tensors", "format": "int-quantized",
               "config_groups": {"group_0": {"weights": {"num_bits": 8, "strategy": "channel"}}}}),
    );
    let bytes: Vec<u8> = (0..ROWS * COLS).map(|i| (i % 251) as u8).collect();
    let scales: Vec<f32> = (0..ROWS).map(|row| 0.5 + row as f32).collect();
    folder.put(&format!("{NAME}.weight"), "I8", &[ROWS, COLS], bytes.clone());
    folder.put(&format!("{NAME}.weight_scale"), "F32", &[ROWS, 1], f32s(&scales));
    let got = made(&folder.open().unwrap(), OURS);
    for (i, x) in got.iter().enumerate() {
        assert_eq!(*x, f32::from(bytes[i] as i8) * scales[i / COLS]);
    }
}

#[test]
fn gptq_with_groups_in_any_order() {
    let mut folder = Folder::llama();
    folder.without(&format!("{NAME}.weight"));
    let (bits, groups) = (4, 2);
    let (numbers, zeros) = (integers(ROWS * COLS, 16, 7), integers(groups * ROWS, 15, 3));
    // Inputs one below the other, eight to a word.
    let down = (0..COLS / 8).flat_map(|w| {
        let numbers = &numbers;
        (0..ROWS).map(move |out| {
            (0..8).fold(0, |word, k| {
                word | (numbers[out * COLS + w * 8 + k] as u32) << (bits * k as u32)
            })
        })
    });
    let across = (0..groups * ROWS / 8)
        .map(|w| (0..8).fold(0, |word, k| word | (zeros[w * 8 + k] as u32) << (bits * k as u32)));
    let order: Vec<i32> = (0..COLS).map(|col| (col % groups) as i32).collect();
    let scales: Vec<f32> = (0..groups * ROWS).map(|i| 0.25 + i as f32 / 8.0).collect();
    folder.put(&format!("{NAME}.qweight"), "I32", &[COLS / 8, ROWS], words(down));
    folder.put(&format!("{NAME}.qzeros"), "I32", &[groups, ROWS / 8], words(across));
    folder.put(&format!("{NAME}.scales"), "F32", &[groups, ROWS], f32s(&scales));
    let order_bytes = order.iter().flat_map(|g| g.to_le_bytes()).collect();
    folder.put(&format!("{NAME}.g_idx"), "I32", &[COLS], order_bytes);
    for (form, add) in [("gptq", 1), ("gptq_v2", 0)] {
        folder.set(
            "quantization_config",
            json!({"quant_method": "gptq", "bits": 4, "checkpoint_format": form}),
        );
        let got = made(&folder.open().unwrap(), OURS);
        for (i, x) in got.iter().enumerate() {
            let (out, col) = (i / COLS, i % COLS);
            let group = order[col] as usize;
            let want =
                (numbers[i] - zeros[group * ROWS + out] - add) as f32 * scales[group * ROWS + out];
            assert_eq!(*x, want, "{form} {out} {col}");
        }
    }
    folder.put(&format!("{NAME}.g_idx"), "I32", &[COLS], words([9; COLS]));
    assert!(folder.fault().contains("beyond the 2"));
    folder.without(&format!("{NAME}.qzeros"));
    assert!(folder.fault().contains("qzeros` is missing"));
}

#[test]
fn awq_has_columns_of_a_word_in_its_own_order() {
    let mut folder = Folder::llama();
    folder.without(&format!("{NAME}.weight"));
    folder.set("quantization_config", json!({"quant_method": "awq", "bits": 4, "version": "gemm"}));
    // As AutoAWQ packs them: place i has column ORDER[i].
    const ORDER: [usize; 8] = [0, 2, 4, 6, 1, 3, 5, 7];
    let groups = 4;
    let (numbers, zeros) = (integers(COLS * ROWS, 16, 5), integers(groups * ROWS, 16, 11));
    let pack = |rows: usize, of: &[i32]| {
        let word =
            |w: usize| (0..8).fold(0, |word, i| word | (of[w * 8 + ORDER[i]] as u32) << (4 * i));
        words((0..rows * ROWS / 8).map(word))
    };
    let scales: Vec<f32> = (0..groups * ROWS).map(|i| 0.5 + i as f32 / 16.0).collect();
    folder.put(&format!("{NAME}.qweight"), "I32", &[COLS, ROWS / 8], pack(COLS, &numbers));
    folder.put(&format!("{NAME}.qzeros"), "I32", &[groups, ROWS / 8], pack(groups, &zeros));
    folder.put(&format!("{NAME}.scales"), "F32", &[groups, ROWS], f32s(&scales));
    let got = made(&folder.open().unwrap(), OURS);
    for (i, x) in got.iter().enumerate() {
        let (out, input) = (i / COLS, i % COLS);
        let group = input / (COLS / groups);
        let want = (numbers[input * ROWS + out] - zeros[group * ROWS + out]) as f32
            * scales[group * ROWS + out];
        assert_eq!(*x, want, "{out} {input}");
    }
}

#[test]
fn compressed_tensors_in_words() {
    let mut folder = Folder::llama();
    folder.without(&format!("{NAME}.weight"));
    folder.set(
        "quantization_config",
        json!({"quant_method": "compressed-tensors", "format": "pack-quantized",
               "config_groups": {"group_0": {"weights": {"num_bits": 4, "group_size": 8}}}}),
    );
    let groups = 2;
    let (integers_, zeros) = (integers(ROWS * COLS, 16, 3), integers(ROWS * groups, 16, 7));
    let packed = words(
        (0..ROWS * COLS / 8)
            .map(|w| (0..8).fold(0, |word, k| word | (integers_[w * 8 + k] as u32) << (4 * k))),
    );
    // Outputs by words, groups side by side.
    let down = words((0..ROWS / 8 * groups).map(|w| {
        let (row, group) = (w / groups, w % groups);
        (0..8).fold(0, |word, k| word | (zeros[(row * 8 + k) * groups + group] as u32) << (4 * k))
    }));
    let scales = numbers(ROWS * groups, 3);
    folder.put(&format!("{NAME}.weight_packed"), "I32", &[ROWS, COLS / 8], packed);
    folder.put(&format!("{NAME}.weight_scale"), "F32", &[ROWS, groups], f32s(&scales));
    let shape = [ROWS as i64, COLS as i64].iter().flat_map(|n| n.to_le_bytes()).collect();
    folder.put(&format!("{NAME}.weight_shape"), "I64", &[2], shape);
    let check = |folder: &Folder, zero: &dyn Fn(usize) -> i32| {
        let got = made(&folder.open().unwrap(), OURS);
        for (i, x) in got.iter().enumerate() {
            let of = i / COLS * groups + i % COLS / 8;
            assert_eq!(*x, (integers_[i] - zero(of)) as f32 * scales[of], "{i}");
        }
    };
    check(&folder, &|_| 8);
    folder.put(&format!("{NAME}.weight_zero_point"), "I32", &[ROWS / 8, groups], down);
    check(&folder, &|of| zeros[of]);
}

#[test]
fn mxfp4_stays_in_its_bits() {
    let mut folder = Folder::llama();
    folder.config = json!({
        "architectures": ["GptOssForCausalLM"], "hidden_size": 32, "intermediate_size": 32,
        "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16,
        "vocab_size": crate::folder::VOCAB, "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0, "sliding_window": 8, "num_local_experts": 2, "num_experts_per_tok": 1,
        "quantization_config": {"quant_method": "mxfp4"},
    });
    folder.tensors.clear();
    folder.add("model.embed_tokens.weight", &[crate::folder::VOCAB, 32]);
    let stem = "model.layers.0.mlp.experts";
    let blocks: Vec<u8> = (0..2 * 64 * 16).map(|i| (i * 37 % 256) as u8).collect();
    let scales: Vec<u8> = (0..2 * 64).map(|i| 120 + (i % 11) as u8).collect();
    folder.put(&format!("{stem}.gate_up_proj_blocks"), "U8", &[2, 64, 1, 16], blocks.clone());
    folder.put(&format!("{stem}.gate_up_proj_scales"), "U8", &[2, 64, 1], scales.clone());
    let conversion = folder.open().unwrap();
    let file = written(&conversion);
    let gguf = Gguf::parse(&file).unwrap();
    assert_eq!(gguf.metadata().u32("general.file_type").unwrap(), 38);
    const STEPS: [f32; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
    for (first, name) in ["ffn_gate_exps", "ffn_up_exps"].into_iter().enumerate() {
        let tensor = gguf.tensor(&format!("blk.0.{name}.weight")).unwrap();
        assert_eq!((tensor.ty, tensor.shape.dims()), (TensorType::MXFP4, &[32, 32, 2][..]));
        let mut values = vec![0.0; tensor.elements()];
        tensor.ty.dequantize(tensor.data, &mut values).unwrap();
        for (row, line) in values.chunks(32).enumerate() {
            // Gates and ups take turns.
            let from = row / 32 * 64 + row % 32 * 2 + first;
            for (i, x) in line.iter().enumerate() {
                let four = blocks[from * 16 + i / 2] >> (i % 2 * 4) & 15;
                let sign = if four & 8 == 0 { 1.0 } else { -1.0 };
                let want =
                    sign * STEPS[usize::from(four & 7)] * 2f32.powi(i32::from(scales[from]) - 127);
                assert_eq!(*x, want, "{name} {row} {i}");
            }
        }
        assert_eq!(made(&conversion, &format!("blk.0.{name}.weight")), values);
    }
}
