//! Conversions against vectors made by ggml's Python package (`vectors/make.py`), bit for bit.

use arclight_gguf::TensorType;

/// Splits a vector file into its first and second part, given the bytes that one block takes in
/// each.
fn halves(file: &[u8], first: usize, second: usize) -> (&[u8], &[u8]) {
    let blocks = file.len() / (first + second);
    assert!(blocks >= 8 && file.len() == blocks * (first + second), "{} bytes", file.len());
    file.split_at(blocks * first)
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
}

fn check_dequantise(ty: TensorType, file: &[u8]) {
    let (blocks, want) = halves(file, ty.block_bytes(), 4 * ty.block_len());
    let want = floats(want);
    let mut got = vec![0f32; want.len()];
    ty.dequantize(blocks, &mut got).unwrap();
    for (i, (got, want)) in got.iter().zip(&want).enumerate() {
        // Sign and payload of a NaN made by arithmetic are the processor's choice.
        let same = got.to_bits() == want.to_bits() || (got.is_nan() && want.is_nan());
        assert!(same, "{ty} element {i}: {got:?} is not {want:?}");
    }
}

fn check_quantise(ty: TensorType, file: &[u8]) {
    let (values, want) = halves(file, 4 * ty.block_len(), ty.block_bytes());
    let values = floats(values);
    let mut got = vec![0xEE];
    ty.quantize(&values, &mut got).unwrap();
    assert_eq!(got[0], 0xEE, "the result is appended");
    let blocks = got[1..].chunks(ty.block_bytes()).zip(want.chunks(ty.block_bytes()));
    for (i, (got, want)) in blocks.enumerate() {
        let input = &values[i * ty.block_len()..][..ty.block_len()];
        if ty == TensorType::F16 && input[0].is_nan() {
            let bits = u16::from_le_bytes([got[0], got[1]]);
            assert!(bits & 0x7FFF > 0x7C00, "F16 element {i}: NaN became {bits:#x}");
            continue;
        }
        assert_eq!(got, want, "{ty} block {i} of {input:?}");
    }
}

macro_rules! vectors {
    ($($test:ident: $check:ident $ty:ident $file:literal;)*) => {$(
        #[test]
        fn $test() {
            $check(TensorType::$ty, include_bytes!(concat!("vectors/", $file)));
        }
    )*};
}

vectors! {
    dequantise_f16: check_dequantise F16 "dequantise_F16.bin";
    dequantise_bf16: check_dequantise BF16 "dequantise_BF16.bin";
    dequantise_q8_0: check_dequantise Q8_0 "dequantise_Q8_0.bin";
    dequantise_q4_0: check_dequantise Q4_0 "dequantise_Q4_0.bin";
    dequantise_q4_k: check_dequantise Q4_K "dequantise_Q4_K.bin";
    dequantise_q6_k: check_dequantise Q6_K "dequantise_Q6_K.bin";
    quantise_f16: check_quantise F16 "quantise_F16.bin";
    quantise_bf16: check_quantise BF16 "quantise_BF16.bin";
    quantise_q8_0: check_quantise Q8_0 "quantise_Q8_0.bin";
    quantise_q4_0: check_quantise Q4_0 "quantise_Q4_0.bin";
}

#[test]
fn f32_passes_through_unchanged() {
    let bits = [0u32, 0x8000_0000, 1, 0x7F80_0000, 0x7FC0_1234, 0x3F80_0001];
    let bytes: Vec<u8> = bits.iter().flat_map(|b| b.to_le_bytes()).collect();
    let mut values = [0f32; 6];
    TensorType::F32.dequantize(&bytes, &mut values).unwrap();
    assert_eq!(values.map(f32::to_bits), bits);
    let mut back = Vec::new();
    TensorType::F32.quantize(&values, &mut back).unwrap();
    assert_eq!(back, bytes);
}
