//! The element types: one table with everything that depends on the type.
//!
//! To add a type: a variant, an entry in [`TYPES`] in the same order, and its conversions.

use std::fmt;

use crate::integers::Integers;
use crate::search::Weighed;
use crate::{Error, blocks, iquants, kquants, mxfp4, nonlinear, nvfp4, search, ternary};

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
    /// 32 four-bit values, a half-precision scale and minimum.
    Q4_1,
    /// 32 five-bit values with offset 16 and a half-precision scale.
    Q5_0,
    /// 32 five-bit values, a half-precision scale and minimum.
    Q5_1,
    /// 16 × 16 two-bit values; 4-bit scales and minima, themselves scaled in half precision.
    Q2_K,
    /// 16 × 16 three-bit values with offset 4; 6-bit scales, themselves scaled in half precision.
    Q3_K,
    /// 8 × 32 four-bit values; 6-bit scales and minima, themselves scaled in half precision.
    Q4_K,
    /// 8 × 32 five-bit values; 6-bit scales and minima, themselves scaled in half precision.
    Q5_K,
    /// 16 × 16 six-bit values with offset 32; 8-bit scales, themselves scaled in half precision.
    Q6_K,
    /// 32 indices into 16 uneven steps and a half-precision scale.
    IQ4_NL,
    /// 8 × 32 indices into 16 uneven steps; 6-bit scales, themselves scaled in half precision.
    IQ4_XS,
    /// Rows of a table of 256 eights, signs with even parity; a 4-bit scale for 32 values.
    IQ2_XXS,
    /// Rows of a table of 512 eights, signs with even parity; a 4-bit scale for 16 values.
    IQ2_XS,
    /// Rows of a table of 1024 eights, signs; a 4-bit scale for 16 values.
    IQ2_S,
    /// Rows of a table of 256 fours, signs with even parity; a 4-bit scale for 32 values.
    IQ3_XXS,
    /// Rows of a table of 512 fours, signs; a 4-bit scale for 32 values.
    IQ3_S,
    /// Rows of a table of 2048 ternary eights; a 3-bit scale and a shift for 32 values.
    IQ1_S,
    /// Rows of a table of 2048 ternary eights; a 3-bit scale for 16 values, a shift for 8.
    IQ1_M,
    /// 256 ternary values, five to a byte, and a half-precision scale.
    TQ1_0,
    /// 256 two-bit values with offset 1 and a half-precision scale.
    TQ2_0,
    /// 32 floats of 4 bits (1 sign, 2 exponent, 1 mantissa) and a power of two.
    MXFP4,
    /// 4 × 16 floats of 4 bits, as in MXFP4, with scales of 8 bits (4 exponent, 3 mantissa).
    NVFP4,
}

/// How blocks are read.
#[derive(Debug, Clone, Copy)]
enum Form {
    /// Converts whole blocks to `f32`; the caller has checked that the lengths match.
    Values(fn(&[u8], &mut [f32])),
    /// Unpacks one block of 256, of which the values are products.
    Integers(fn(&[u8], &mut Integers)),
}

/// Converts whole blocks of finite `f32` and appends them; the caller has checked the length.
type Weigh = fn(Weighed<'_>, &mut Vec<u8>) -> Result<(), Error>;

/// How blocks are made.
#[derive(Debug, Clone, Copy)]
enum Quantise {
    /// All values weigh alike, whatever their importance.
    Alike(fn(&[f32], &mut Vec<u8>) -> Result<(), Error>),
    /// By importance, if it is known.
    Weighted(Weigh),
    /// So few bits that the result is of use only if it is known which columns matter.
    OnlyWeighted(Weigh),
}

/// What is to be known about a type.
#[derive(Debug, Clone, Copy)]
pub struct TypeInfo {
    /// The type.
    pub ty: TensorType,
    /// Its id in ggml and in files.
    pub id: u32,
    /// Its name, as everybody writes it.
    pub name: &'static str,
    /// Number (`general.file_type`) and title of a file whose matrices are mostly of it, as llama.cpp has
    /// them.
    pub file: (u32, &'static str),
    /// Elements of a block: 1 for plain floats.
    pub block_len: usize,
    /// Bytes of a block.
    pub block_bytes: usize,
    form: Form,
    quantise: Quantise,
}

/// An entry of [`TYPES`].
#[expect(clippy::too_many_arguments, reason = "a row")]
const fn row(
    ty: TensorType,
    id: u32,
    name: &'static str,
    file: (u32, &'static str),
    block_len: usize,
    block_bytes: usize,
    form: Form,
    quantise: Quantise,
) -> TypeInfo {
    TypeInfo { ty, id, name, file, block_len, block_bytes, form, quantise }
}

/// All types, in the order of the variants of [`TensorType`].
#[rustfmt::skip]
pub const TYPES: [TypeInfo; 26] = {
    use {Form::*, Quantise::*, TensorType::*};
    [
        row(F32,     0,   "F32",     (0, "F32"),      1,   4,   Values(blocks::f32_to_f32),        Alike(blocks::f32_from_f32)),
        row(F16,     1,   "F16",     (1, "F16"),      1,   2,   Values(blocks::f16_to_f32),        Alike(blocks::f16_from_f32)),
        row(BF16,    30,  "BF16",    (32, "BF16"),    1,   2,   Values(blocks::bf16_to_f32),       Alike(blocks::bf16_from_f32)),
        row(Q8_0,    8,   "Q8_0",    (7, "Q8_0"),     32,  34,  Values(blocks::q8_0_to_f32),       Alike(blocks::q8_0_from_f32)),
        row(Q4_0,    2,   "Q4_0",    (2, "Q4_0"),     32,  18,  Values(blocks::q4_0_to_f32),       Weighted(blocks::q4_0_from_f32)),
        row(Q4_1,    3,   "Q4_1",    (3, "Q4_1"),     32,  20,  Values(blocks::q4_1_to_f32),       Weighted(blocks::q4_1_from_f32)),
        row(Q5_0,    6,   "Q5_0",    (8, "Q5_0"),     32,  22,  Values(blocks::q5_0_to_f32),       Weighted(blocks::q5_0_from_f32)),
        row(Q5_1,    7,   "Q5_1",    (9, "Q5_1"),     32,  24,  Values(blocks::q5_1_to_f32),       Weighted(blocks::q5_1_from_f32)),
        row(Q2_K,    10,  "Q2_K",    (10, "Q2_K"),    256, 84,  Values(kquants::q2_k_to_f32),      Weighted(kquants::q2_k_from_f32)),
        row(Q3_K,    11,  "Q3_K",    (11, "Q3_K_S"),  256, 110, Values(kquants::q3_k_to_f32),      Weighted(kquants::q3_k_from_f32)),
        row(Q4_K,    12,  "Q4_K",    (14, "Q4_K_S"),  256, 144, Values(kquants::q4_k_to_f32),      Weighted(kquants::q4_k_from_f32)),
        row(Q5_K,    13,  "Q5_K",    (16, "Q5_K_S"),  256, 176, Values(kquants::q5_k_to_f32),      Weighted(kquants::q5_k_from_f32)),
        row(Q6_K,    14,  "Q6_K",    (18, "Q6_K"),    256, 210, Values(kquants::q6_k_to_f32),      Weighted(kquants::q6_k_from_f32)),
        row(IQ4_NL,  20,  "IQ4_NL",  (25, "IQ4_NL"),  32,  18,  Values(nonlinear::iq4_nl_to_f32),  Weighted(nonlinear::iq4_nl_from_f32)),
        row(IQ4_XS,  23,  "IQ4_XS",  (30, "IQ4_XS"),  256, 136, Values(nonlinear::iq4_xs_to_f32),  Weighted(nonlinear::iq4_xs_from_f32)),
        row(IQ2_XXS, 16,  "IQ2_XXS", (19, "IQ2_XXS"), 256, 66,  Integers(iquants::iq2_xxs),        OnlyWeighted(iquants::iq2_xxs_from_f32)),
        row(IQ2_XS,  17,  "IQ2_XS",  (20, "IQ2_XS"),  256, 74,  Integers(iquants::iq2_xs),         OnlyWeighted(iquants::iq2_xs_from_f32)),
        row(IQ2_S,   22,  "IQ2_S",   (28, "IQ2_S"),   256, 82,  Integers(iquants::iq2_s),          OnlyWeighted(iquants::iq2_s_from_f32)),
        row(IQ3_XXS, 18,  "IQ3_XXS", (23, "IQ3_XXS"), 256, 98,  Integers(iquants::iq3_xxs),        OnlyWeighted(iquants::iq3_xxs_from_f32)),
        row(IQ3_S,   21,  "IQ3_S",   (26, "IQ3_S"),   256, 110, Integers(iquants::iq3_s),          Weighted(iquants::iq3_s_from_f32)),
        row(IQ1_S,   19,  "IQ1_S",   (24, "IQ1_S"),   256, 50,  Integers(iquants::iq1_s),          OnlyWeighted(iquants::iq1_s_from_f32)),
        row(IQ1_M,   29,  "IQ1_M",   (31, "IQ1_M"),   256, 56,  Integers(iquants::iq1_m),          OnlyWeighted(iquants::iq1_m_from_f32)),
        row(TQ1_0,   34,  "TQ1_0",   (36, "TQ1_0"),   256, 54,  Integers(ternary::tq1_0),          Alike(ternary::tq1_0_from_f32)),
        row(TQ2_0,   35,  "TQ2_0",   (37, "TQ2_0"),   256, 66,  Integers(ternary::tq2_0),          Alike(ternary::tq2_0_from_f32)),
        row(MXFP4,   39,  "MXFP4",   (38, "MXFP4"),   32,  17,  Values(mxfp4::mxfp4_to_f32),       Alike(mxfp4::mxfp4_from_f32)),
        row(NVFP4,   40,  "NVFP4",   (39, "NVFP4"),   64,  36,  Values(nvfp4::nvfp4_to_f32),       Alike(nvfp4::nvfp4_from_f32)),
    ]
};

/// Types that ggml defines, or once defined, and this crate does not read.
#[rustfmt::skip]
const UNSUPPORTED: [(u32, &str); 17] = [
    (4, "Q4_2"), (5, "Q4_3"), (9, "Q8_1"), (15, "Q8_K"), (24, "I8"), (25, "I16"), (26, "I32"),
    (27, "I64"), (28, "F64"), (31, "Q4_0_4_4"), (32, "Q4_0_4_8"), (33, "Q4_0_8_8"),
    (36, "IQ4_NL_4_4"), (37, "IQ4_NL_4_8"), (38, "IQ4_NL_8_8"), (41, "Q1_0"), (42, "Q2_0"),
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
    /// All types, in the order of the variants.
    pub const ALL: [Self; TYPES.len()] = {
        let mut all = [Self::F32; TYPES.len()];
        let mut i = 0;
        while i < all.len() {
            all[i] = TYPES[i].ty;
            i += 1;
        }
        all
    };

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
        match self.info().form {
            Form::Values(convert) => convert(src, dst),
            Form::Integers(unpack) => {
                let mut block = Integers::ZERO;
                let blocks = src.chunks_exact(self.block_bytes());
                for (src, dst) in blocks.zip(dst.as_chunks_mut().0) {
                    unpack(src, &mut block);
                    block.values(dst);
                }
            }
        }
        Ok(())
    }

    /// Whether [`TensorType::quantize`] makes this type from values alone. The others, of less than
    /// 3.1 bits, are made by [`TensorType::quantize_weighted`].
    pub fn can_quantize(self) -> bool {
        !matches!(self.info().quantise, Quantise::OnlyWeighted(_))
    }

    /// Whether blocks are small integers and few scales: then [`TensorType::integers`] unpacks them.
    pub fn has_integers(self) -> bool {
        matches!(self.info().form, Form::Integers(_))
    }

    /// Unpacks a block, exactly; `None` if the type has no such form.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`] unless `block` is one block.
    pub fn integers(self, block: &[u8]) -> Result<Option<Integers>, Error> {
        let Form::Integers(unpack) = self.info().form else { return Ok(None) };
        if block.len() != self.block_bytes() {
            let (bytes, elements) = (block.len(), self.block_len());
            return Err(Error::LengthMismatch { ty: self, bytes, elements });
        }
        let mut to = Integers::ZERO;
        unpack(block, &mut to);
        Ok(Some(to))
    }

    /// Converts `f32` to blocks and appends them to `dst`, which is left as it was on error.
    ///
    /// F16 and BF16 round to nearest, ties to even. Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, TQ1_0, TQ2_0,
    /// MXFP4 and NVFP4 are bit for bit those of ggml's reference. The K-quants, IQ4_NL, IQ4_XS and IQ3_S
    /// search for the least weighted error, larger values weighing more.
    ///
    /// # Errors
    /// [`Error::NeedsImportance`] for types that [`TensorType::can_quantize`] denies;
    /// [`Error::PartialQuantise`] unless `src` is whole blocks; for types with blocks,
    /// [`Error::NotFinite`] and [`Error::ScaleOverflow`] for values they cannot hold.
    pub fn quantize(self, src: &[f32], dst: &mut Vec<u8>) -> Result<(), Error> {
        self.check(src)?;
        let before = dst.len();
        let result = match self.info().quantise {
            Quantise::Alike(quantise) => quantise(src, dst),
            Quantise::Weighted(quantise) => quantise(Weighed { x: src, weights: None }, dst),
            Quantise::OnlyWeighted(_) => Err(Error::NeedsImportance { ty: self }),
        };
        if result.is_err() {
            dst.truncate(before);
        }
        result
    }

    /// Converts rows of `f32` to blocks as [`TensorType::quantize`] does, but with less error in
    /// columns that matter more. All types can be made so; Q8_0, MXFP4, NVFP4, the ternary ones
    /// and plain floats come out the same.
    ///
    /// `importance` has a number for each column, all rows alike, of which only the ratios count:
    /// the mean square of a matrix product's input in that column, as measured on text.
    ///
    /// # Errors
    /// Those of [`TensorType::quantize`]; [`Error::ImportanceLength`] unless `src` is whole rows;
    /// [`Error::BadImportance`] for numbers below 0, infinities and NaN.
    pub fn quantize_weighted(
        self,
        src: &[f32],
        importance: &[f32],
        dst: &mut Vec<u8>,
    ) -> Result<(), Error> {
        self.check(src)?;
        let cols = importance.len();
        if cols == 0 || !src.len().is_multiple_of(cols) || !cols.is_multiple_of(self.block_len()) {
            return Err(Error::ImportanceLength { ty: self, elements: src.len(), found: cols });
        }
        if let Some(index) = importance.iter().position(|i| !(i.is_finite() && *i >= 0.0)) {
            return Err(Error::BadImportance { index, value: importance[index] });
        }
        let quantise = match self.info().quantise {
            Quantise::Alike(_) => return self.quantize(src, dst),
            Quantise::Weighted(quantise) | Quantise::OnlyWeighted(quantise) => quantise,
        };
        let importance = search::normalised(importance);
        let before = dst.len();
        for (i, row) in src.chunks_exact(cols).enumerate() {
            let weights = search::weights(row, &importance);
            let weighed = Weighed { x: row, weights: Some(&weights) };
            if let Err(mut error) = quantise(weighed, dst) {
                dst.truncate(before);
                if let Error::ScaleOverflow { index, .. } = &mut error {
                    *index += i * cols;
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// Refuses what is not whole blocks of finite numbers.
    fn check(self, src: &[f32]) -> Result<(), Error> {
        if self.bytes_for(src.len()).is_none() {
            return Err(Error::PartialQuantise { ty: self, elements: src.len() });
        }
        let plain = self.block_len() == 1;
        if !plain && let Some(index) = src.iter().position(|x| !x.is_finite()) {
            return Err(Error::NotFinite { ty: self, index, value: src[index] });
        }
        Ok(())
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
