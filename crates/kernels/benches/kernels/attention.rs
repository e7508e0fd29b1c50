//! Attention over a page of keys, as at the start of a sequence, and over a whole chunk: time, bytes of
//! keys and values, and multiplications.

use arclight_kernels::{KV_CHUNK, KV_PAGE, Kernels, KvType, attn_scratch_len, attn_state_len};

use crate::inputs::attn_tile;
use crate::time;

pub(crate) fn report(label: &str, kernels: &Kernels, kv: KvType, dim: usize, peak: f64) {
    for keys in [KV_PAGE, KV_CHUNK] {
        print!("{label}, {keys:3} keys:");
        for rows in [1, 2, 4, 8, 16] {
            let tile = attn_tile(kernels, kv, dim, rows, keys);
            let mut scratch = vec![0.0; attn_scratch_len(rows)];
            let mut out = vec![0.0; rows * attn_state_len(dim)];
            let seconds = time(|| kernels.attend_chunk(&tile, &mut scratch, &mut out));
            let bytes = (2 * keys * kv.token_bytes(dim)) as f64;
            let macs = (2 * keys * dim * rows) as f64;
            print!(
                "  {rows} rows {:.2} us {:.0} GB/s {:.1} GMAC/s ({:.0}%)",
                seconds * 1e6,
                bytes / seconds / 1e9,
                macs / seconds / 1e9,
                macs / seconds / peak * 100.0
            );
        }
        println!();
    }
}
