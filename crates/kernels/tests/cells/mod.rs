//! The types that keys and values can be stored in, and what is stored of a number, by the book.

use arclight_kernels::{KvPageMut, KvPages, KvQueries, KvType};
use gguf::TensorType;
use half::{bf16, f16};

use crate::common;

/// What pages hold.
pub(crate) trait Cell {
    type Unit: Copy;
    const TYPE: KvType;
    /// What unused slots hold: nothing that a number comes of.
    const UNUSED: Self::Unit;
    /// Keys and values as they are stored.
    fn stored(x: &[f32]) -> Vec<f64>;
    /// Queries as the kernels take them.
    fn query(q: &[f32]) -> Vec<f64> {
        exact(q)
    }
    fn page(page: &mut [Self::Unit]) -> KvPageMut<'_>;
    /// Queries for keys of this type. `quants`: the same in 8 bits, if the head is long enough for that.
    fn queries<'a>(q: &'a [f32], quants: &'a [u8]) -> KvQueries<'a> {
        match Self::TYPE.quantises_queries() {
            true => KvQueries::Quants(quants),
            false => KvQueries::Floats(q),
        }
    }
    fn pages<'a>(pages: &'a [&'a [Self::Unit]]) -> KvPages<'a>;
}

fn exact(x: &[f32]) -> Vec<f64> {
    x.iter().map(|&x| f64::from(x)).collect()
}

/// Queries that are quantised.
fn eight_bits(q: &[f32]) -> Vec<f64> {
    let (quants, scales) = common::reference_q8(q);
    let block = |(quants, d): (&[i32], f32)| -> Vec<f64> {
        quants.iter().map(|&q| f64::from(d) * f64::from(q)).collect()
    };
    quants.chunks(32).zip(scales).flat_map(block).collect()
}

pub(crate) struct F16;
pub(crate) struct Bf16;
pub(crate) struct F32;
pub(crate) struct Q8_0;
pub(crate) struct Q4_0;

impl Cell for F16 {
    type Unit = u16;
    const TYPE: KvType = KvType::F16;
    const UNUSED: u16 = f16::NAN.to_bits();

    fn stored(x: &[f32]) -> Vec<f64> {
        x.iter().map(|&x| f64::from(f16::from_f32(x).to_f32())).collect()
    }

    fn page(page: &mut [u16]) -> KvPageMut<'_> {
        KvPageMut::F16(page)
    }

    fn pages<'a>(pages: &'a [&'a [u16]]) -> KvPages<'a> {
        KvPages::F16(pages)
    }
}

impl Cell for Bf16 {
    type Unit = u16;
    const TYPE: KvType = KvType::Bf16;
    const UNUSED: u16 = bf16::NAN.to_bits();

    fn stored(x: &[f32]) -> Vec<f64> {
        x.iter().map(|&x| f64::from(bf16::from_f32(x).to_f32())).collect()
    }

    fn page(page: &mut [u16]) -> KvPageMut<'_> {
        KvPageMut::Bf16(page)
    }

    fn pages<'a>(pages: &'a [&'a [u16]]) -> KvPages<'a> {
        KvPages::Bf16(pages)
    }
}

impl Cell for F32 {
    type Unit = f32;
    const TYPE: KvType = KvType::F32;
    const UNUSED: f32 = f32::NAN;

    fn stored(x: &[f32]) -> Vec<f64> {
        exact(x)
    }

    fn page(page: &mut [f32]) -> KvPageMut<'_> {
        KvPageMut::F32(page)
    }

    fn pages<'a>(pages: &'a [&'a [f32]]) -> KvPages<'a> {
        KvPages::F32(pages)
    }
}

impl Cell for Q8_0 {
    type Unit = u8;
    const TYPE: KvType = KvType::Q8_0;
    /// Scales are NaN.
    const UNUSED: u8 = 0xff;

    fn stored(x: &[f32]) -> Vec<f64> {
        let block = |x: &[f32]| {
            let top = x.iter().fold(0f32, |top, x| top.max(x.abs()));
            let d = f16::from_f32(top / 127.0).to_f32();
            let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
            let q = |x: f32| (x * inverse).clamp(-127.0, 127.0).round_ties_even();
            x.iter().map(|&x| f64::from(d) * f64::from(q(x))).collect::<Vec<_>>()
        };
        x.chunks(32).flat_map(block).collect()
    }

    fn query(q: &[f32]) -> Vec<f64> {
        eight_bits(q)
    }

    fn page(page: &mut [u8]) -> KvPageMut<'_> {
        KvPageMut::Q8_0(page)
    }

    fn pages<'a>(pages: &'a [&'a [u8]]) -> KvPages<'a> {
        KvPages::Q8_0(pages)
    }
}

impl Cell for Q4_0 {
    type Unit = u8;
    const TYPE: KvType = KvType::Q4_0;
    /// Scales are NaN.
    const UNUSED: u8 = 0xff;

    /// As in files, which the tests of `gguf` hold to ggml's bits.
    fn stored(x: &[f32]) -> Vec<f64> {
        let (mut bytes, mut back) = (Vec::new(), vec![0.0; x.len()]);
        TensorType::Q4_0.quantize(x, &mut bytes).expect("scales are finite");
        TensorType::Q4_0.dequantize(&bytes, &mut back).expect("whole blocks");
        exact(&back)
    }

    fn query(q: &[f32]) -> Vec<f64> {
        eight_bits(q)
    }

    fn page(page: &mut [u8]) -> KvPageMut<'_> {
        KvPageMut::Q4_0(page)
    }

    fn pages<'a>(pages: &'a [&'a [u8]]) -> KvPages<'a> {
        KvPages::Q4_0(pages)
    }
}
