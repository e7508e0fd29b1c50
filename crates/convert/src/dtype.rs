//! Kinds of stored elements, as `f32`.

use half::{bf16, f16};

/// How an element is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dtype {
    F64,
    F32,
    F16,
    BF16,
    /// 4 bits of exponent, 3 of mantissa, no infinities.
    E4M3,
    /// 5 bits of exponent, 2 of mantissa.
    E5M2,
    /// A power of two: 8 bits of exponent.
    E8M0,
    I64,
    I32,
    I16,
    I8,
    U8,
    Bool,
}

use Dtype::*;

impl Dtype {
    /// By its name in the head of a file.
    pub(crate) fn named(name: &str) -> Option<Dtype> {
        Some(match name {
            "F64" => F64,
            "F32" => F32,
            "F16" => F16,
            "BF16" => BF16,
            "F8_E4M3" => E4M3,
            "F8_E5M2" => E5M2,
            "F8_E8M0" => E8M0,
            "I64" => I64,
            "I32" => I32,
            "I16" => I16,
            "I8" => I8,
            "U8" => U8,
            "BOOL" => Bool,
            _ => return None,
        })
    }

    /// Bits of an element.
    pub(crate) fn bits(self) -> usize {
        match self {
            F64 | I64 => 64,
            F32 | I32 => 32,
            F16 | BF16 | I16 => 16,
            E4M3 | E5M2 | E8M0 | I8 | U8 | Bool => 8,
        }
    }

    /// Converts elements; `bytes` holds exactly those of `out`.
    pub(crate) fn read(self, bytes: &[u8], out: &mut [f32]) {
        match self {
            F64 => each(bytes, out, |b| f64::from_le_bytes(b) as f32),
            F32 => each(bytes, out, f32::from_le_bytes),
            F16 => each(bytes, out, |b| f16::from_le_bytes(b).to_f32()),
            BF16 => each(bytes, out, |b| bf16::from_le_bytes(b).to_f32()),
            E4M3 => each(bytes, out, |[b]| e4m3(b)),
            E5M2 => each(bytes, out, |[b]| f16::from_bits(u16::from(b) << 8).to_f32()),
            E8M0 => each(bytes, out, |[b]| e8m0(b)),
            I64 => each(bytes, out, |b| i64::from_le_bytes(b) as f32),
            I32 => each(bytes, out, |b| i32::from_le_bytes(b) as f32),
            I16 => each(bytes, out, |b| i16::from_le_bytes(b).into()),
            I8 => each(bytes, out, |b| i8::from_le_bytes(b).into()),
            U8 | Bool => each(bytes, out, |[b]| b.into()),
        }
    }
}

fn each<const N: usize>(bytes: &[u8], out: &mut [f32], value: impl Fn([u8; N]) -> f32) {
    let (elements, rest) = bytes.as_chunks::<N>();
    debug_assert!(rest.is_empty() && elements.len() == out.len());
    for (out, &element) in out.iter_mut().zip(elements) {
        *out = value(element);
    }
}

fn e4m3(byte: u8) -> f32 {
    let (exponent, mantissa) = (byte >> 3 & 15, f32::from(byte & 7));
    let value = match (exponent, byte & 7) {
        (15, 7) => f32::NAN,
        (0, _) => mantissa / 512.0,
        _ => (1.0 + mantissa / 8.0) * f32::from_bits((u32::from(exponent) + 120) << 23),
    };
    if byte & 0x80 == 0 { value } else { -value }
}

pub(crate) fn e8m0(byte: u8) -> f32 {
    match byte {
        0 => f32::from_bits(1 << 22),
        255 => f32::NAN,
        _ => f32::from_bits(u32::from(byte) << 23),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_bits_are_as_the_formats_say() {
        let read = |dtype: Dtype, byte: u8| {
            let mut out = [0.0];
            dtype.read(&[byte], &mut out);
            out[0]
        };
        for (byte, value) in [
            (0x00, 0.0),
            (0x01, 1.0 / 512.0),
            (0x07, 7.0 / 512.0),
            (0x08, 1.0 / 64.0),
            (0x38, 1.0),
            (0x3C, 1.5),
            (0x7E, 448.0),
            (0xB8, -1.0),
        ] {
            assert_eq!(read(E4M3, byte), value, "{byte:#x}");
        }
        assert!(read(E4M3, 0x7F).is_nan());
        assert_eq!([read(E5M2, 0x3C), read(E5M2, 0x7B)], [1.0, 57344.0]);
        assert_eq!([read(E8M0, 127), read(E8M0, 130), read(E8M0, 0)], [1.0, 8.0, 2f32.powi(-127)]);
        assert_eq!([read(I8, 0xFF), read(U8, 0xFF)], [-1.0, 255.0]);
    }
}
