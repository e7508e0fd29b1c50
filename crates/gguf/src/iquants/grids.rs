//! The tables of the IQ types, unpacked from `grids.bin` (9 KB, made by `make_grids.py`) when
//! this crate is compiled.

static PACKED: &[u8; 2 * (256 + 512 + 1024 + 2048 + 256 + 512)] = include_bytes!("grids.bin");

/// `N` rows of `W` entries of `bits` bits from row `first` on; entry `e` stands for `values[e]`.
const fn unpack<const N: usize, const W: usize>(
    first: usize,
    bits: usize,
    values: &[i8],
) -> [[i8; W]; N] {
    let mut rows = [[0; W]; N];
    let mut i = 0;
    while i < N {
        let at = 2 * (first + i);
        let packed = u16::from_le_bytes([PACKED[at], PACKED[at + 1]]) as usize;
        let mut j = 0;
        while j < W {
            rows[i][j] = values[packed >> (bits * j) & ((1 << bits) - 1)];
            j += 1;
        }
        i += 1;
    }
    rows
}

/// Magnitudes of the IQ2 types.
pub(super) const TWO_BITS: [i8; 3] = [8, 25, 43];
/// Eight times the values of the IQ1 types, so that a shift by an eighth is a whole number.
pub(super) const ONE_BIT: [i8; 3] = [-8, 0, 8];

/// Magnitudes of the IQ3 types.
pub(super) const THREE_BITS_XXS: [i8; 8] = [4, 12, 20, 28, 36, 44, 52, 62];
pub(super) const THREE_BITS_S: [i8; 8] = [1, 3, 5, 7, 9, 11, 13, 15];

pub(super) static IQ2_XXS: [[i8; 8]; 256] = unpack(0, 2, &TWO_BITS);
pub(super) static IQ2_XS: [[i8; 8]; 512] = unpack(256, 2, &TWO_BITS);
pub(super) static IQ2_S: [[i8; 8]; 1024] = unpack(768, 2, &TWO_BITS);
pub(super) static IQ1: [[i8; 8]; 2048] = unpack(1792, 2, &ONE_BIT);
pub(super) static IQ3_XXS: [[i8; 4]; 256] = unpack(3840, 3, &THREE_BITS_XXS);
pub(super) static IQ3_S: [[i8; 4]; 512] = unpack(4096, 3, &THREE_BITS_S);
