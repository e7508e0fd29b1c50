//! Rows of activations as they are kept for products.

use arclight_kernels::{ActKind, Kernels};

#[test]
fn rows_are_read_as_they_were_written() {
    let x: Vec<f32> = (0..64).map(|i| (i as f32 - 20.0) * 0.37).collect();
    for kernels in Kernels::available() {
        for (kind, near) in [(ActKind::Bf16, 1.0 / 256.0), (ActKind::Q8, 0.0)] {
            // Words, so that rows are aligned.
            let mut row = vec![0u32; kernels.row_bytes(kind, x.len()).div_ceil(4)];
            // SAFETY: words as bytes.
            let bytes = unsafe {
                std::slice::from_raw_parts_mut(row.as_mut_ptr().cast::<u8>(), 4 * row.len())
            };
            match kind {
                ActKind::Q8 => kernels.quantize_q8(&x, bytes),
                _ => kernels.round_bf16(&x, bytes),
            }
            let mut read = vec![0.0; x.len()];
            kernels.unpack_acts(kind, bytes, &mut read);
            for (block, (x, read)) in x.chunks(32).zip(read.chunks(32)).enumerate() {
                // Half of a step of 8 bits.
                let most = x.iter().fold(0.0f32, |most, x| most.max(x.abs()));
                for (x, read) in x.iter().zip(read) {
                    let far = near * x.abs() + if near > 0.0 { 0.0 } else { most / 127.0 / 1.99 };
                    assert!((x - read).abs() <= far, "{kind:?}, {block}: {x} {read}");
                }
            }
        }
    }
}
