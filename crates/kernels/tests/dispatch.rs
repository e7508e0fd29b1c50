//! Which kernels are chosen, and how the environment overrules the choice.

use std::process::Command;

use arclight_kernels::{ISA_VARIABLE, Isa, IsaError, Kernels, Product, bf16_trial};
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
fn types_have_the_instruction_set_and_the_tile_that_suit_them() {
    for (isa, ty, by, tile) in [
        (Isa::Avx512, TensorType::Q4_0, Isa::Avx512, (32, 4)),
        (Isa::Avx512Bf16, TensorType::Q4_0, Isa::Avx512, (32, 4)),
        (Isa::Avx512Bf16, TensorType::BF16, Isa::Avx512Bf16, (32, 8)),
        (Isa::Amx, TensorType::Q8_0, Isa::Amx, (16, 16)),
        (Isa::Amx, TensorType::Q6_K, Isa::Avx512, (32, 4)),
        (Isa::Amx, TensorType::BF16, Isa::Avx512Bw, (32, 12)),
        (Isa::Avx512, TensorType::BF16, Isa::Avx512Bw, (32, 12)),
        (Isa::Avx512Bw, TensorType::Q4_0, Isa::Avx512Bw, (32, 4)),
        (Isa::AvxVnni, TensorType::Q8_0, Isa::AvxVnni, (8, 6)),
        (Isa::AvxVnni, TensorType::F16, Isa::Avx2, (16, 4)),
        (Isa::Avx2, TensorType::Q6_K, Isa::Avx2, (8, 4)),
        (Isa::Avx2, TensorType::BF16, Isa::Avx2, (16, 4)),
        (Isa::NeonI8mm, TensorType::Q4_K, Isa::NeonI8mm, (4, 12)),
        (Isa::NeonI8mm, TensorType::Q6_K, Isa::NeonDot, (8, 4)),
        (Isa::NeonDot, TensorType::Q4_0, Isa::NeonDot, (8, 4)),
        (Isa::Neon, TensorType::BF16, Isa::Neon, (8, 8)),
        (Isa::Scalar, TensorType::Q8_0, Isa::Scalar, (16, 4)),
    ] {
        let expected = isa.is_available().then_some((by, tile));
        assert_eq!(Kernels::for_isa(isa).map(|k| k.matmul_tile(ty)), expected, "{isa}, {ty}");
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
