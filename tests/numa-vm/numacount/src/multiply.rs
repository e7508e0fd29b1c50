//! Products that an instruction computes, by its bytes.
//!
//! | instruction | products |
//! |---|---|
//! | `vpmaddubsw` | one int8 product for each byte of the register |
//! | `vfmadd`, `vfmsub`, `vfnmadd`, `vfnmsub` of f32 | one for each lane; the scalar form has one lane |
//!
//! Limits: the VEX encoding of AVX2, which is the widest that QEMU emulates. Products by `vmulps` or `vpmaddwd` are not
//! counted: kernels use these for scales and for sums of pairs.
//!
//! Source: Intel's Software Developer's Manual, volume 2, section 2.3 and the instructions' pages.

/// int8 and f32 products of one execution.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Products {
    pub(crate) int8: u64,
    pub(crate) f32: u64,
}

/// Opcode map `0F 38` in the three-byte VEX prefix.
const MAP_0F38: u8 = 2;
/// Prefix 66 there.
const PREFIX_66: u8 = 1;

impl Products {
    pub(crate) fn of(instruction: &[u8]) -> Products {
        let none = Products::default();
        // Only the three-byte form reaches the map; compilers put no other prefixes before it.
        let [0xc4, map, rest, opcode, ..] = *instruction else { return none };
        if map & 0x1f != MAP_0F38 || rest & 3 != PREFIX_66 {
            return none;
        }
        let bytes = if rest & 4 == 0 { 16 } else { 32 };
        match opcode {
            0x04 => Products { int8: bytes, ..none },
            // Three orders of operands; W is set for f64.
            0x96..=0x9f | 0xa6..=0xaf | 0xb6..=0xbf if rest & 0x80 == 0 => {
                let scalar = opcode & 0x0f >= 9 && opcode & 1 == 1;
                Products { f32: if scalar { 1 } else { bytes / 4 }, ..none }
            }
            _ => none,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_are_those_of_the_assembler_s_bytes() {
        // vpmaddubsw ymm0, ymm1, ymm2; the same of xmm; vpmaddwd ymm0, ymm1, ymm2 (map 0F).
        let of = |bytes: &[u8]| (Products::of(bytes).int8, Products::of(bytes).f32);
        assert_eq!(of(&[0xc4, 0xe2, 0x75, 0x04, 0xc2]), (32, 0));
        assert_eq!(of(&[0xc4, 0xe2, 0x71, 0x04, 0xc2]), (16, 0));
        assert_eq!(of(&[0xc5, 0xf5, 0xf5, 0xc2]), (0, 0));
        // vfmadd231ps ymm0, ymm1, ymm2; vfmadd213ss xmm0, xmm1, xmm2; vfmadd231pd ymm0, ymm1, ymm2.
        assert_eq!(of(&[0xc4, 0xe2, 0x75, 0xb8, 0xc2]), (0, 8));
        assert_eq!(of(&[0xc4, 0xe2, 0x71, 0xa9, 0xc2]), (0, 1));
        assert_eq!(of(&[0xc4, 0xe2, 0xf5, 0xb8, 0xc2]), (0, 0));
        // vpshufb ymm0, ymm1, ymm2; ret.
        assert_eq!(of(&[0xc4, 0xe2, 0x75, 0x00, 0xc2]), (0, 0));
        assert_eq!(of(&[0xc3]), (0, 0));
    }
}
