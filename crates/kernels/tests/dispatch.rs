//! Which kernels are chosen, and how the environment overrules the choice.

use std::process::Command;

use arclight_kernels::{ISA_VARIABLE, Isa, IsaError, Kernels, Op, Product, bf16_trial};
use gguf::TensorType;

/// What `Kernels::detect` says in a process of its own: the choice is made once per process.
fn detected_with(value: Option<&str>) -> String {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "the_choice_in_this_process", "--ignored", "--nocapture"]);
    child.env_remove(ISA_VARIABLE).envs(value.map(|value| (ISA_VARIABLE, value)));
    let out = String::from_utf8(child.output().unwrap().stdout).unwrap();
    let line = out.lines().find_map(|line| line.split_once("detected: "));
    line.unwrap_or_else(|| panic!("no answer in {out}")).1.to_owned()
}

#[test]
#[ignore = "the child process of the other tests"]
fn the_choice_in_this_process() {
    match Kernels::detect() {
        Ok(kernels) => println!("\ndetected: {}", kernels.isa()),
        Err(error) => println!("\ndetected: error: {error}"),
    }
}

#[test]
fn the_best_is_chosen_unless_the_environment_names_another() {
    let best = Kernels::available().next().unwrap().isa();
    // Where dots of bfloat16 pairs are slower than widening, which is measured.
    let without_pairs = best == Isa::Avx512Bf16 && !bf16_trial().unwrap().pays();
    let best = if without_pairs { Isa::Avx512 } else { best };
    assert_eq!(detected_with(None), best.name());
    for isa in Isa::ALL {
        let answer = detected_with(Some(isa.name()));
        match isa.is_available() {
            true => assert_eq!(answer, isa.name()),
            false => assert!(answer.contains("is not available on this CPU"), "{answer}"),
        }
    }
}

#[test]
fn a_name_that_is_none_is_an_error() {
    for name in ["", "AVX2", "avx512"] {
        let answer = detected_with(Some(name));
        assert!(answer.starts_with("error: ARCLIGHT_ISA="), "{name:?}: {answer}");
        assert!(answer.contains(&format!("{name:?} is not an instruction set")), "{answer}");
    }
}

#[test]
fn scalar_kernels_are_always_there_and_last() {
    assert_eq!(Kernels::available().last().unwrap().isa(), Isa::Scalar);
}

#[test]
fn names_tell_the_instruction_set_the_type_and_the_tile() {
    let name = |isa, ty| Kernels::for_isa(isa).map(|k| k.kernel_name(Op::MatMul(ty)));
    let expected = |isa: Isa, name: &str| isa.is_available().then(|| name.to_owned());
    for (isa, ty, text) in [
        (Isa::Avx512, TensorType::Q4_0, "avx512vnni_matmul_q4_0_32x4"),
        (Isa::Avx512Bf16, TensorType::Q4_0, "avx512vnni_matmul_q4_0_32x4"),
        (Isa::Avx512Bf16, TensorType::BF16, "avx512bf16_matmul_bf16_32x8"),
        (Isa::Amx, TensorType::Q8_0, "amxint8_matmul_q8_0_16x16"),
        (Isa::Amx, TensorType::Q6_K, "avx512vnni_matmul_q6_k_32x4"),
        (Isa::Amx, TensorType::BF16, "avx512bw_matmul_bf16_32x12"),
        (Isa::Avx512, TensorType::BF16, "avx512bw_matmul_bf16_32x12"),
        (Isa::Avx512Bw, TensorType::Q4_0, "avx512bw_matmul_q4_0_32x4"),
        (Isa::AvxVnni, TensorType::Q8_0, "avxvnni_matmul_q8_0_8x6"),
        (Isa::AvxVnni, TensorType::F16, "avx2_matmul_f16_16x4"),
        (Isa::Avx2, TensorType::Q6_K, "avx2_matmul_q6_k_8x4"),
        (Isa::Avx2, TensorType::BF16, "avx2_matmul_bf16_16x4"),
        (Isa::NeonI8mm, TensorType::Q4_K, "neoni8mm_matmul_q4_k_4x12"),
        (Isa::NeonI8mm, TensorType::Q6_K, "neondot_matmul_q6_k_8x4"),
        (Isa::NeonDot, TensorType::Q4_0, "neondot_matmul_q4_0_8x4"),
        (Isa::Neon, TensorType::BF16, "neon_matmul_bf16_8x8"),
        (Isa::Scalar, TensorType::Q8_0, "scalar_matmul_q8_0_16x4"),
    ] {
        assert_eq!(name(isa, ty), expected(isa, text));
    }
}

/// Without VNNI products of few bits are added in 16 bits first.
#[test]
fn integers_of_few_bits_have_limits_of_their_own_where_instructions_differ() {
    for kernels in Kernels::available() {
        let apart = matches!(kernels.isa(), Isa::Avx2 | Isa::Avx512Bw);
        for few in [Product::Int4, Product::Int5, Product::Int6, Product::Int7] {
            let expected = if apart { few } else { Product::Int8 };
            assert_eq!(kernels.product(few), expected, "{}", kernels.isa());
        }
        for other in [Product::Int8, Product::Bf16, Product::F16, Product::F32] {
            assert_eq!(kernels.product(other), other);
        }
    }
}

#[test]
fn names_lead_back_to_their_set() {
    for isa in Isa::ALL {
        let expected =
            if isa.is_available() { Ok(isa) } else { Err(IsaError::Unavailable { isa }) };
        assert_eq!(Isa::from_name(isa.name()), expected);
    }
}

#[test]
fn a_wrong_name_is_named() {
    let error = Isa::from_name("avx3").unwrap_err();
    assert!(error.to_string().contains("ARCLIGHT_ISA=\"avx3\""), "{error}");
}
