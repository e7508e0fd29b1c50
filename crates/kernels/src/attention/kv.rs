//! The types that keys and values can be stored in, and pages of them.

use super::KV_PAGE;
use crate::q8::BLOCK;
use crate::simd::LANES;

/// How keys and values are stored.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum KvType {
    /// IEEE half floats.
    #[default]
    F16,
    /// bfloat16: as large, with the range of single precision and three bits less of precision.
    Bf16,
    /// Single precision: twice the memory, for comparisons with references.
    F32,
    /// Eight bits: blocks of 32 elements of a head with a half-precision scale. Heads must be
    /// multiples of 32 long.
    Q8_0,
    /// Four bits, likewise: steps are sixteen times those of [`KvType::Q8_0`].
    Q4_0,
}

impl KvType {
    /// Bytes of one token's key (or value) of one head.
    pub const fn token_bytes(self, head_dim: usize) -> usize {
        match self {
            KvType::F16 | KvType::Bf16 => head_dim * size_of::<u16>(),
            KvType::F32 => head_dim * size_of::<f32>(),
            KvType::Q8_0 => head_dim / BLOCK * (BLOCK + size_of::<u16>()),
            KvType::Q4_0 => head_dim / BLOCK * (BLOCK / 2 + size_of::<u16>()),
        }
    }

    /// Bytes of a page.
    pub const fn page_bytes(self, head_dim: usize) -> usize {
        KV_PAGE * self.token_bytes(head_dim)
    }

    /// What the length of a head must be a multiple of.
    pub const fn head_multiple(self) -> usize {
        match self {
            KvType::F16 | KvType::Bf16 | KvType::F32 => LANES,
            KvType::Q8_0 | KvType::Q4_0 => BLOCK,
        }
    }

    /// Whether queries are to be quantised, by [`crate::Kernels::quantize_q8`].
    pub const fn quantises_queries(self) -> bool {
        matches!(self, KvType::Q8_0 | KvType::Q4_0)
    }

    /// Whether heads are to be rotated, by [`crate::Kernels::rotate`], before they are stored or multiplied with
    /// what is: blocks of few bits lose less then.
    pub const fn rotates(self) -> bool {
        self.quantises_queries()
    }

    #[track_caller]
    pub(super) fn check_head(self, head_dim: usize) {
        let multiple = self.head_multiple();
        assert!(
            head_dim > 0 && head_dim.is_multiple_of(multiple),
            "head_dim {head_dim} is not a multiple of {multiple}"
        );
    }
}

impl std::fmt::Display for KvType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            KvType::F16 => "f16",
            KvType::Bf16 => "bf16",
            KvType::F32 => "f32",
            KvType::Q8_0 => "q8_0",
            KvType::Q4_0 => "q4_0",
        })
    }
}

/// How the keys and the values of a cache are stored.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct KvTypes {
    /// The type of keys.
    pub keys: KvType,
    /// The type of values.
    pub values: KvType,
}

impl From<KvType> for KvTypes {
    fn from(both: KvType) -> KvTypes {
        KvTypes { keys: both, values: both }
    }
}

impl KvTypes {
    /// What the length of a head must be a multiple of.
    pub const fn head_multiple(self) -> usize {
        // One is a multiple of the other.
        let (keys, values) = (self.keys.head_multiple(), self.values.head_multiple());
        if keys > values { keys } else { values }
    }
}

/// The type of both, or that of keys and that of values.
impl std::fmt::Display for KvTypes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.keys == self.values {
            true => self.keys.fmt(f),
            false => f.pad(&format!("{}/{}", self.keys, self.values)),
        }
    }
}

/// Queries, already multiplied by the softmax scale.
#[derive(Clone, Copy, Debug)]
pub enum KvQueries<'a> {
    /// As they are, for keys that are floats. `[rows, head_dim]`
    Floats(&'a [f32]),
    /// Quantised by [`crate::Kernels::quantize_q8`], for keys that are too. `[rows, q8_row_bytes(head_dim)]`
    Quants(&'a [u8]),
}

/// The pages of a chunk in order, of keys or of values, by the type that these are stored in.
///
/// Keys: `[pages][KV_PAGE / 16, head_dim, 16]`, values: `[pages][KV_PAGE, head_dim]`; pages of
/// quants are for the kernels to know.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "said above")]
pub enum KvPages<'a> {
    F16(&'a [&'a [u16]]),
    Bf16(&'a [&'a [u16]]),
    F32(&'a [&'a [f32]]),
    Q8_0(&'a [&'a [u8]]),
    Q4_0(&'a [&'a [u8]]),
}

impl<'a> KvPages<'a> {
    /// How many there are.
    pub fn len(&self) -> usize {
        match self {
            KvPages::F16(pages) | KvPages::Bf16(pages) => pages.len(),
            KvPages::F32(pages) => pages.len(),
            KvPages::Q8_0(pages) | KvPages::Q4_0(pages) => pages.len(),
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where page `at` begins.
    #[inline(always)]
    pub(super) fn start(&self, at: usize) -> *const u8 {
        match self {
            KvPages::F16(pages) | KvPages::Bf16(pages) => pages[at].as_ptr().cast(),
            KvPages::F32(pages) => pages[at].as_ptr().cast(),
            KvPages::Q8_0(pages) | KvPages::Q4_0(pages) => pages[at].as_ptr(),
        }
    }
}

/// A page of keys, or of values, to be written to.
#[derive(Debug)]
pub enum KvPageMut<'a> {
    /// IEEE half floats.
    F16(&'a mut [u16]),
    /// bfloat16.
    Bf16(&'a mut [u16]),
    /// Single precision.
    F32(&'a mut [f32]),
    /// Quants and scales, [`KvType::page_bytes`].
    Q8_0(&'a mut [u8]),
    /// Likewise.
    Q4_0(&'a mut [u8]),
}

impl KvPageMut<'_> {
    /// Panics unless `kv` and the page are of the same shape and there is such a slot.
    #[track_caller]
    pub(crate) fn check(&self, head_dim: usize, slot: usize) {
        let (kv, bytes) = match self {
            KvPageMut::F16(page) => (KvType::F16, size_of_val(*page)),
            KvPageMut::Bf16(page) => (KvType::Bf16, size_of_val(*page)),
            KvPageMut::F32(page) => (KvType::F32, size_of_val(*page)),
            KvPageMut::Q8_0(page) => (KvType::Q8_0, page.len()),
            KvPageMut::Q4_0(page) => (KvType::Q4_0, page.len()),
        };
        kv.check_head(head_dim);
        assert!(
            bytes == kv.page_bytes(head_dim),
            "a page of {bytes} bytes for head_dim {head_dim}"
        );
        assert!(slot < KV_PAGE, "slot {slot} of {KV_PAGE}");
    }
}
