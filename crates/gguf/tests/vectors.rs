//! Conversions against vectors made by ggml's Python package (`vectors/make.py`), bit for bit.

use arclight_gguf::{TYPES, TensorType};

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
    dequantise_q4_1: check_dequantise Q4_1 "dequantise_Q4_1.bin";
    dequantise_q5_0: check_dequantise Q5_0 "dequantise_Q5_0.bin";
    dequantise_q5_1: check_dequantise Q5_1 "dequantise_Q5_1.bin";
    dequantise_q2_k: check_dequantise Q2_K "dequantise_Q2_K.bin";
    dequantise_q3_k: check_dequantise Q3_K "dequantise_Q3_K.bin";
    dequantise_q5_k: check_dequantise Q5_K "dequantise_Q5_K.bin";
    dequantise_iq4_nl: check_dequantise IQ4_NL "dequantise_IQ4_NL.bin";
    dequantise_iq4_xs: check_dequantise IQ4_XS "dequantise_IQ4_XS.bin";
    dequantise_iq2_xxs: check_dequantise IQ2_XXS "dequantise_IQ2_XXS.bin";
    dequantise_iq2_xs: check_dequantise IQ2_XS "dequantise_IQ2_XS.bin";
    dequantise_iq2_s: check_dequantise IQ2_S "dequantise_IQ2_S.bin";
    dequantise_iq3_xxs: check_dequantise IQ3_XXS "dequantise_IQ3_XXS.bin";
    dequantise_iq3_s: check_dequantise IQ3_S "dequantise_IQ3_S.bin";
    dequantise_iq1_s: check_dequantise IQ1_S "dequantise_IQ1_S.bin";
    dequantise_iq1_m: check_dequantise IQ1_M "dequantise_IQ1_M.bin";
    dequantise_tq1_0: check_dequantise TQ1_0 "dequantise_TQ1_0.bin";
    dequantise_tq2_0: check_dequantise TQ2_0 "dequantise_TQ2_0.bin";
    dequantise_mxfp4: check_dequantise MXFP4 "dequantise_MXFP4.bin";
    dequantise_nvfp4: check_dequantise NVFP4 "dequantise_NVFP4.bin";
    quantise_f16: check_quantise F16 "quantise_F16.bin";
    quantise_bf16: check_quantise BF16 "quantise_BF16.bin";
    quantise_q8_0: check_quantise Q8_0 "quantise_Q8_0.bin";
    quantise_q4_0: check_quantise Q4_0 "quantise_Q4_0.bin";
    quantise_q4_1: check_quantise Q4_1 "quantise_Q4_1.bin";
    quantise_q5_0: check_quantise Q5_0 "quantise_Q5_0.bin";
    quantise_q5_1: check_quantise Q5_1 "quantise_Q5_1.bin";
    quantise_tq1_0: check_quantise TQ1_0 "quantise_TQ1_0.bin";
    quantise_tq2_0: check_quantise TQ2_0 "quantise_TQ2_0.bin";
    quantise_mxfp4: check_quantise MXFP4 "quantise_MXFP4.bin";
    quantise_nvfp4: check_quantise NVFP4 "quantise_NVFP4.bin";
}

/// Every row of every table, which the few blocks above do not reach, and scales of all kinds.
#[test]
fn random_blocks_of_every_type_mean_what_the_reference_says() {
    let mut checked = 0;
    for line in include_str!("vectors/sums.txt").lines() {
        let (name, sum) = line.split_once(' ').unwrap();
        let ty = TensorType::from_name(name).unwrap();
        let blocks = random_bytes(512 * ty.block_bytes());
        let mut values = vec![0f32; 512 * ty.block_len()];
        ty.dequantize(&blocks, &mut values).unwrap();
        let bits = values.iter().map(|v| if v.is_nan() { 0x7FC0_0000 } else { v.to_bits() });
        let odd = |i: usize| (2 * i as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(1);
        let got = bits
            .enumerate()
            .fold(0u64, |sum, (i, bits)| sum.wrapping_add(u64::from(bits).wrapping_mul(odd(i))));
        assert_eq!(format!("{got:016x}"), sum, "{ty}");
        checked += 1;
    }
    assert_eq!(checked, TYPES.iter().filter(|info| info.block_len > 1).count());
}

/// SplitMix64 from 0, little endian.
fn random_bytes(len: usize) -> Vec<u8> {
    let word = |i: u64| {
        let z = i.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    };
    (1..=len as u64 / 8).flat_map(|i| word(i).to_le_bytes()).collect()
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
