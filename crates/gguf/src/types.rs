//! The element types: one table with everything that depends on the type.
//!
//! To add a type: a variant, an entry in [`TYPES`] in the same order, and its two conversions.

use std::fmt;

use crate::{Error, blocks, kquants};

/// How the elements of a tensor are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(non_camel_case_types, reason = "the names that everybody knows")]
pub enum TensorType {
    /// IEEE single precision.
    F32,
    /// IEEE half precision.
    F16,
    /// The upper half of single precision.
    BF16,
    /// 32 signed bytes and a half-precision scale.
    Q8_0,
    /// 32 four-bit values with offset 8 and a half-precision scale.
    Q4_0,
    /// 8 × 32 four-bit values; 6-bit scales and minima, themselves scaled in half precision.
    Q4_K,
    /// 16 × 16 six-bit values with offset 32; 8-bit scales, themselves scaled in half precision.
    Q6_K,
}

/// Converts whole blocks to `f32`; the caller has checked that the lengths match.
type Dequantize = fn(&[u8], &mut [f32]);
/// Converts whole blocks of finite `f32` and appends them; the caller has checked the length.
type Quantize = fn(&[f32], &mut Vec<u8>) -> Result<(), Error>;

/// What is to be known about a type.
#[derive(Debug, Clone, Copy)]
pub struct TypeInfo {
    /// The type.
    pub ty: TensorType,
    /// Its id in ggml and in files.
    pub id: u32,
    /// Its name, as everybody writes it.
    pub name: &'static str,
    /// Elements of a block: 1 for plain floats.
    pub block_len: usize,
    /// Bytes of a block.
    pub block_bytes: usize,
    dequantize: Dequantize,
    quantize: Quantize,
}

/// All types, in the order of the variants of [`TensorType`].
#[rustfmt::skip]
pub const TYPES: [TypeInfo; 7] = [
    TypeInfo { ty: TensorType::F32,  id: 0,  name: "F32",  block_len: 1,   block_bytes: 4,   dequantize: blocks::f32_to_f32,    quantize: blocks::f32_from_f32 },
    TypeInfo { ty: TensorType::F16,  id: 1,  name: "F16",  block_len: 1,   block_bytes: 2,   dequantize: blocks::f16_to_f32,    quantize: blocks::f16_from_f32 },
    TypeInfo { ty: TensorType::BF16, id: 30, name: "BF16", block_len: 1,   block_bytes: 2,   dequantize: blocks::bf16_to_f32,   quantize: blocks::bf16_from_f32 },
    TypeInfo { ty: TensorType::Q8_0, id: 8,  name: "Q8_0", block_len: 32,  block_bytes: 34,  dequantize: blocks::q8_0_to_f32,   quantize: blocks::q8_0_from_f32 },
    TypeInfo { ty: TensorType::Q4_0, id: 2,  name: "Q4_0", block_len: 32,  block_bytes: 18,  dequantize: blocks::q4_0_to_f32,   quantize: blocks::q4_0_from_f32 },
    TypeInfo { ty: TensorType::Q4_K, id: 12, name: "Q4_K", block_len: 256, block_bytes: 144, dequantize: kquants::q4_k_to_f32, quantize: kquants::q4_k_from_f32 },
    TypeInfo { ty: TensorType::Q6_K, id: 14, name: "Q6_K", block_len: 256, block_bytes: 210, dequantize: kquants::q6_k_to_f32, quantize: kquants::q6_k_from_f32 },
];

/// Types that ggml defines, or once defined, and this crate does not read.
#[rustfmt::skip]
const UNSUPPORTED: [(u32, &str); 35] = [
    (3, "Q4_1"), (4, "Q4_2"), (5, "Q4_3"), (6, "Q5_0"), (7, "Q5_1"), (9, "Q8_1"), (10, "Q2_K"),
    (11, "Q3_K"), (13, "Q5_K"), (15, "Q8_K"), (16, "IQ2_XXS"), (17, "IQ2_XS"), (18, "IQ3_XXS"),
    (19, "IQ1_S"), (20, "IQ4_NL"), (21, "IQ3_S"), (22, "IQ2_S"), (23, "IQ4_XS"), (24, "I8"),
    (25, "I16"), (26, "I32"), (27, "I64"), (28, "F64"), (29, "IQ1_M"), (31, "Q4_0_4_4"),
    (32, "Q4_0_4_8"), (33, "Q4_0_8_8"), (34, "TQ1_0"), (35, "TQ2_0"), (36, "IQ4_NL_4_4"),
    (37, "IQ4_NL_4_8"), (38, "IQ4_NL_8_8"), (39, "MXFP4"), (40, "NVFP4"), (41, "Q1_0"),
];

/// The name of a type that ggml knows and this crate does not read.
pub(crate) fn unsupported_name(id: u32) -> Option<&'static str> {
    UNSUPPORTED.iter().find(|(other, _)| *other == id).map(|(_, name)| *name)
}

/// Prints the names of all supported types.
pub(crate) struct Supported;

impl fmt::Display for Supported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&TYPES.map(|info| info.name).join(", "))
    }
}

impl TensorType {
    /// The type's entry in [`TYPES`].
    pub fn info(self) -> &'static TypeInfo {
        const TABLE: &[TypeInfo] = &TYPES;
        &TABLE[self as usize]
    }

    /// The type with this id in ggml, if it is supported.
    pub fn from_id(id: u32) -> Option<Self> {
        TYPES.iter().find(|info| info.id == id).map(|info| info.ty)
    }

    /// The type with this name, in any case.
    pub fn from_name(name: &str) -> Option<Self> {
        TYPES.iter().find(|info| info.name.eq_ignore_ascii_case(name)).map(|info| info.ty)
    }

    /// Id in ggml and in files.
    pub fn id(self) -> u32 {
        self.info().id
    }

    /// Name as everybody writes it, e.g. `"Q4_K"`.
    pub fn name(self) -> &'static str {
        self.info().name
    }

    /// Elements of a block: 1 for plain floats.
    pub fn block_len(self) -> usize {
        self.info().block_len
    }

    /// Bytes of a block.
    pub fn block_bytes(self) -> usize {
        self.info().block_bytes
    }

    /// Bytes of so many elements; `None` if they are not whole blocks or the number overflows.
    pub fn bytes_for(self, elements: usize) -> Option<usize> {
        if !elements.is_multiple_of(self.block_len()) {
            return None;
        }
        (elements / self.block_len()).checked_mul(self.block_bytes())
    }

    /// Converts blocks to `f32`, bit for bit as ggml's reference does.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`] unless `src` holds exactly `dst.len()` elements in whole blocks.
    pub fn dequantize(self, src: &[u8], dst: &mut [f32]) -> Result<(), Error> {
        if self.bytes_for(dst.len()) != Some(src.len()) {
            let (bytes, elements) = (src.len(), dst.len());
            return Err(Error::LengthMismatch { ty: self, bytes, elements });
        }
        (self.info().dequantize)(src, dst);
        Ok(())
    }

    /// Converts `f32` to blocks and appends them to `dst`, which is left as it was on error.
    ///
    /// F16 and BF16 round to nearest, ties to even; Q8_0 and Q4_0 are bit for bit those of ggml's
    /// reference; Q4_K and Q6_K search scales for the least weighted error.
    ///
    /// # Errors
    /// [`Error::PartialQuantise`] unless `src` is whole blocks; for types with blocks,
    /// [`Error::NotFinite`] and [`Error::ScaleOverflow`] for values they cannot hold.
    pub fn quantize(self, src: &[f32], dst: &mut Vec<u8>) -> Result<(), Error> {
        let Some(bytes) = self.bytes_for(src.len()) else {
            return Err(Error::PartialQuantise { ty: self, elements: src.len() });
        };
        let plain = self.block_len() == 1;
        if !plain && let Some(index) = src.iter().position(|x| !x.is_finite()) {
            return Err(Error::NotFinite { ty: self, index, value: src[index] });
        }
        let before = dst.len();
        dst.reserve(bytes);
        let result = (self.info().quantize)(src, dst);
        if result.is_err() {
            dst.truncate(before);
        }
        result
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_the_order_of_the_variants_and_names_no_id_twice() {
        for (i, info) in TYPES.iter().enumerate() {
            assert_eq!(info.ty as usize, i);
            assert_eq!(info.ty.info().name, info.name);
            assert_eq!(format!("{:?}", info.ty), info.name);
            assert_eq!(TensorType::from_id(info.id), Some(info.ty));
            assert_eq!(TensorType::from_name(&info.name.to_lowercase()), Some(info.ty));
            assert_eq!(unsupported_name(info.id), None);
        }
        for (i, (id, _)) in UNSUPPORTED.iter().enumerate() {
            assert!(UNSUPPORTED[i + 1..].iter().all(|(other, _)| other != id), "id {id} twice");
        }
    }

    #[test]
    fn bytes_for_counts_whole_blocks_only() {
        assert_eq!(TensorType::Q4_0.bytes_for(64), Some(36));
        assert_eq!(TensorType::Q4_0.bytes_for(33), None);
        assert_eq!(TensorType::Q6_K.bytes_for(0), Some(0));
        assert_eq!(TensorType::F32.bytes_for(usize::MAX), None);
    }
}
