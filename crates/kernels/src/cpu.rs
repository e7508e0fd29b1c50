//! What is known of CPUs by their maker: the one place for figures that were measured.
//!
//! A figure changes how fast a product is, never its bits. Each stands beside the measurement behind
//! it. Makers that nobody has measured count as AMD.

use std::ops::RangeInclusive;
use std::sync::OnceLock;

use crate::matmul::panel::PanelKind;
use crate::matmul::{MicroKernel, Size, Sums, Tile};
use crate::simd::Dot;

/// How far ahead of the weights that are multiplied others are fetched into the first cache, in bytes,
/// where nobody chose and [`CpuTraits`] has nothing better.
///
/// Zen 5, one core, one token, 400 MB, 2026-11 (`--bench families`), in % of plain loads: Q6_K 52 to 74
/// without, 85 at 1 and 2 KiB, 88 to 95 at 4 and 8 KiB; Q4_K 71 to 82, 79 to 92, 96; Q4_0 86 to 90, 88 to
/// 91, 97.
pub(crate) const AHEAD: usize = 4096;

/// The fewest tokens for instructions that multiply small matrices.
///
/// Sapphire Rapids, AMX over vectors, 2026-11 (`--bench families -- amxint8 q4_0`): 8 tokens 0.82, 12
/// 0.98, 16 1.18, 32 1.25. Nobody has timed `smmla`.
pub(crate) const MATRICES_FROM: usize = 16;

/// Register tiles by the number of tokens; the usual one for others.
type ByTokens = &'static [(RangeInclusive<usize>, Size)];

/// What is known of a CPU.
pub(crate) struct CpuTraits {
    /// Register tiles of quantised weights, where a register holds all rows of a tile.
    quants: ByTokens,
    /// Of floats.
    floats: ByTokens,
    /// Of bfloat16 by dots of pairs.
    pairs: ByTokens,
    /// The fewest tokens for panels of vectors; none where they do not pay.
    panels: fn(PanelKind, Units) -> Option<usize>,
    /// What is better than [`AHEAD`]; the first that fits.
    ahead: &'static [Ahead],
    /// Whether weights are fetched in two stages: to the second cache, and to the first from half as far.
    pub(crate) stages: bool,
    /// How far ahead pages of keys and values are fetched.
    pub(crate) pages: PagesAhead,
}

/// The vectors that panels are multiplied in.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Units {
    /// All rows of a tile in a register.
    Wide,
    /// A part of them; dots add to sums of 32 bits at once.
    Fused,
    /// A part of them; dots take several instructions.
    Narrow,
}

impl Units {
    pub(crate) const fn of<D: Dot>() -> Self {
        match (D::WIDE, D::FUSED) {
            (true, _) => Self::Wide,
            (_, true) => Self::Fused,
            _ => Self::Narrow,
        }
    }
}

/// How far ahead weights are fetched that go by `vectors` vectors of rows and some number of `tokens`.
struct Ahead {
    vectors: u8,
    tokens: RangeInclusive<usize>,
    /// Whether only for a thread that has the memory to itself.
    alone: bool,
    bytes: usize,
}

/// How far ahead pages are fetched, in bytes.
#[derive(Clone, Copy)]
pub(crate) enum PagesAhead {
    /// To the first cache.
    Near(usize),
    /// To the first cache at most so far, of one or two pages; to the second twice as far.
    Stages(usize),
}

const INTEL: CpuTraits = CpuTraits {
    // Several streams of weights at once. Sapphire Rapids, one core, one token, 2026-11 (`--bench
    // families`), GB/s by four streams and by one: BF16 12.7 and 9.4, Q8_0 11.3 and 9.8, Q6_K 12.0 and 9.6,
    // Q4_K 10.7 and 8.9, Q4_0 9.6 and 7.7. Two, fetched in two stages, are as fast or faster on an Emerald
    // Rapids (benchmarks/notes/2026-11-23-two-stages.md).
    //
    // Up to 8 tokens at once, in one stream: measured with 8. From 9 on 2 by 6: 16 tokens of Q4_0, Q4_K
    // and Q8_0 1.07 to 1.13 times as fast as by 2 by 4. 12 at once: steps of 12 sequences 1.03 to 1.09
    // times as fast as in two passes.
    quants: &[
        (1..=1, (2, 1, 1)),
        (2..=2, (4, 2, 1)),
        (5..=8, (1, 8, 2)),
        (12..=12, (1, 12, 1)),
        (9..=31, (2, 6, 1)),
    ],
    // Floats have no sums of blocks, so registers hold 2 tiles by 12 tokens. Emerald Rapids, from 12 tokens
    // on, 2026-11 (`--bench families`): 1.3 (F16) and 1.15 (BF16) times as fast as 2 by 4.
    floats: &[(1..=1, (2, 1, 1)), (2..=2, (4, 2, 1)), (3..=usize::MAX, (2, 12, 1))],
    pairs: &[(1..=1, (2, 1, 1)), (2..=2, (4, 2, 1))],
    // Sapphire Rapids, from 32 tokens on, 2026-11 (`--bench families`): 9 % and more faster, with AVX-512
    // and with AVX2. Emerald Rapids (`--bench families -- avx512vnni q6_k`): halves 1.11 to 1.16 times as
    // fast with 16 tokens, 1.08 with 24; of the other kinds 24 are as fast by 2 by 6.
    // AVX-512 without VNNI and AVX-VNNI were timed on a Zen 5 only (`AMD`): from 32 tokens on, too, they pay for
    // all kinds but halves with AVX-VNNI.
    panels: |kind, units| match (kind, units) {
        (PanelKind::Halves, Units::Wide) => Some(16),
        (PanelKind::Halves, Units::Fused) => None,
        _ => Some(32),
    },
    // A Xeon with AMX, 2026-11, 2 and 1 KiB over 4 and 2: one token of Q4_0 1.06, Q8_0 1.06, Q6_K 1.08 times as
    // fast (`--bench families`), decoding of Qwen3 4B 1.07, of 0.6B 1.02 times; 8 sequences 0.97 times
    // (benchmarks/2026-11-25-ahead.csv).
    ahead: &[Ahead { vectors: 2, tokens: 1..=1, alone: false, bytes: AHEAD / 2 }],
    // An Emerald Rapids' core, which can wait for few lines of its first cache at a time, decodes at 90 %
    // of what it can read so, and at 84 % in one stage (benchmarks/notes/2026-11-23-two-stages.md).
    stages: true,
    // Keys of up to two pages are multiplied at once (benchmarks/notes/2026-11-24-attention-at-depth.md).
    pages: PagesAhead::Stages(16 << 10),
};

const AMD: CpuTraits = CpuTraits {
    // One stream, every weight unpacked once. Zen 5, steps of 2 to 8 tokens of a small model, 2026-11: 1.13
    // to 1.28 times as fast as by 2 by 4 (benchmarks/notes/2026-11-23-few-tokens.md).
    quants: &[(1..=4, (1, 4, 1)), (5..=8, (1, 8, 2))],
    // Zen 5, AVX-512, 2026-11 (`--bench families -- avx512bf16 f16`), over 2 by 4, F16 and F32: 2 tokens 1.4 and 1.2
    // times as fast, 4 tokens 1.12 and 1.3, 6 to 8 1.17 to 1.5, 12 and more 1.11 to 1.35.
    floats: &[(2..=2, (4, 2, 1)), (4..=4, (4, 4, 1)), (5..=usize::MAX, (2, 12, 1))],
    // Dots of pairs (`-- avx512bf16 bf16`), over 2 by 8: 2 tokens 1.25, 4 tokens 1.2 times as fast.
    pairs: &[(2..=2, (4, 2, 1)), (4..=4, (4, 4, 1))],
    // Zen 5, panels over packed weights, 2026-11 (benchmarks/2026-11-25-panels.csv). With AVX-512 16 to 96 tokens are
    // 0.83 to 1.03 times as fast, 512 tokens 1.01 to 1.14 times; a prompt of 512 of Qwen3 4B Q4_0 1.036 (1.030 to
    // 1.045, 4 rounds), of 0.6B in Q4_0, Q8_0 and Q4_K_M 1.02, 1.01 and 1.01, of 256 1.01, 1.01 and 1.00. With AVX2
    // from 8 tokens on: Q6_K 1.09 to 1.24, NVFP4 1.11 to 1.24, MXFP4 1.15 to 1.36 times. Both vectors of a tile at
    // once from 16 tokens on: Q4_0 1.05 to 1.10, Q4_K 1.08 to 1.15 times as fast (benchmarks/2026-11-26-avx2.csv);
    // Q8_0 0.96 to 0.98. With AVX-VNNI, over 1 by 6 (benchmarks/2026-11-26-vnni.csv): from 16 tokens on Q4_0 1.04 to
    // 1.18, Q4_K 1.06 to 1.19, Q8_0 1.04 to 1.19 times, MXFP4 from 8 tokens on 1.07 to 1.52; Q6_K 0.86 to 1.00. No CPU
    // of AMD's has AVX-512 without VNNI: held to it, 0.97 to 1.01 times with 16 tokens, 1.03 to 1.12 from 32 on;
    // MXFP4 1.11 to 1.19 from 8 on. Q5_0 and Q5_K (benchmarks/2026-11-27-panels.csv) from 8 tokens on with AVX2 1.07 to
    // 1.32 times, with AVX-VNNI 1.29 to 1.62; IQ4_NL and IQ4_XS 1.07 to 1.21 and, from 16 on, 1.09 to 1.30; Q4_1 from 16 on
    // 1.04 to 1.14 and 1.00 to 1.10.
    panels: |kind, units| match (kind, units) {
        (PanelKind::Halves | PanelKind::Uneven, Units::Narrow)
        | (PanelKind::Sixteen | PanelKind::FiveMinimum, Units::Narrow | Units::Fused) => Some(8),
        (PanelKind::Halves, Units::Fused) | (PanelKind::Biased, Units::Narrow) => None,
        (_, Units::Narrow | Units::Fused) => Some(16),
        (_, Units::Wide) => Some(256),
    },
    // Zen 5, 2026-11 (benchmarks/notes/2026-11-23-epyc-limits.md). 8 KiB, 3 to 8 tokens, over 2 by 4: 0.97 to 1.17 times as fast,
    // with 4 KiB 0.91 to 1.11. 6 KiB, one token, over 4 KiB: 1.02 to 1.09 times as fast with one thread,
    // 0.97 to 1.05 with two.
    ahead: &[
        Ahead { vectors: 1, tokens: 1..=1, alone: true, bytes: AHEAD + AHEAD / 2 },
        Ahead { vectors: 1, tokens: 3..=8, alone: false, bytes: 2 * AHEAD },
    ],
    stages: false,
    // Enough for the memory's latency, few enough to stay there. Zen 5, one thread, a token of Qwen3-0.6B
    // Q4_0 at depth 8192, 2026-11-21, in ms: f16 91 without, 57 at 4 and 8 KiB, 53 at 12 to 24; q8_0 55, 39
    // at 4 to 16, 42 at 24. Reading alone takes 53 and 37.
    pages: PagesAhead::Near(12 << 10),
};

/// Makers whose CPUs nobody has timed, Arm's among them.
const OTHER: CpuTraits = CpuTraits { panels: |_, _| None, ..AMD };

/// Those of this CPU.
pub(crate) fn cpu() -> &'static CpuTraits {
    static OWN: OnceLock<&CpuTraits> = OnceLock::new();
    OWN.get_or_init(|| match &maker() {
        b"GenuineIntel" => &INTEL,
        b"AuthenticAMD" => &AMD,
        _ => &OTHER,
    })
}

/// Who has made this CPU, as x86 tells it. Miri has no such instruction.
fn maker() -> [u8; 12] {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    let name = {
        let maker = std::arch::x86_64::__cpuid(0);
        [maker.ebx, maker.edx, maker.ecx].map(u32::to_le_bytes)
    };
    #[cfg(any(miri, not(target_arch = "x86_64")))]
    let name = [[0; 4]; 3];
    *name.as_flattened().as_array().expect("three words")
}

impl CpuTraits {
    /// The register tile for `tokens` tokens, if it is not the usual one for many.
    pub(crate) fn tile(&self, sums: Sums, tokens: usize) -> Option<Size> {
        let list = match sums {
            Sums::Integers => self.quants,
            Sums::Floats | Sums::Pairs => self.floats,
            Sums::Dots => self.pairs,
        };
        list.iter().find(|(range, _)| range.contains(&tokens)).map(|&(_, size)| size)
    }

    /// The fewest tokens for panels of a kind, if they pay.
    pub(crate) fn panels_from(&self, kind: PanelKind, units: Units) -> Option<usize> {
        (self.panels)(kind, units)
    }

    /// How far ahead weights are fetched that go by `vectors` vectors of rows and `tokens` tokens, where
    /// `threads` threads read the same memory.
    pub(crate) fn ahead(&self, vectors: u8, tokens: usize, threads: usize) -> usize {
        let fits = |own: &&Ahead| {
            own.vectors == vectors && own.tokens.contains(&tokens) && (!own.alone || threads == 1)
        };
        self.ahead.iter().find(fits).map_or(AHEAD, |own| own.bytes)
    }
}

/// The register tile for many tokens, on CPUs of every maker.
///
/// With wide registers 2 tiles by 4 tokens: one load of activations serves two products, so multiply
/// units and load ports are about equally busy. Zen 5, Q4_0, 2026-11 (`--bench families`), in % of the
/// peak of `vpdpbusd`: 79, 5 for 4 tokens 80, 1 by 8 or 12 70 to 76; scales cost two of ten instructions,
/// so 80 is the most. Sapphire Rapids (three of eleven), 96 tokens: 44 to 58; 2 by 6 54 to 64 where the
/// second cache holds 16 tiles, 35 to 53 where it holds 64. Without VNNI (Zen 5 held to `avx512bw`, 96 tokens) within 7 %
/// of the best: 2 by 6 1.03 (Q4_0), 1.05 (Q4_K), 1.06 (Q8_0) and 0.98 (Q6_K) times as fast.
///
/// Of AVX-VNNI's dots 16 registers hold 6 tokens: Zen 5, 16 and 96 tokens, over 4: Q4_0 1.01, Q4_K 1.05, Q6_K 1.05, Q8_0
/// 1.07 times. Two vectors by 2 tokens are faster still for Q4_0 and Q8_0 (1.05), slower for Q4_K and Q6_K (0.93).
///
/// Floats with AVX2: 2 by 4 has six loads for eight products where 1 by 8 has nine, and most cores load twice a cycle.
/// Zen 5 (`--bench families -- avx2 f16`): 2 and 3 tokens 1.9 times as fast, 4 tokens 1.7, 8 and more 1.04 to 1.07,
/// one as fast.
pub(crate) const fn usual<D: Dot, K: Tile>() -> MicroKernel {
    MicroKernel::of(match K::SUMS {
        _ if D::WIDE => (2, 4, 1),
        Sums::Integers if D::GROUPS == 4 => (2, 4, 1),
        _ if D::GROUPS == 4 => (2, 8, 1),
        Sums::Integers if D::FUSED && D::REGISTERS > 0 => (1, 6, 1),
        Sums::Integers => (1, 4, 1),
        _ if D::GROUPS == 2 => (2, 4, 1),
        Sums::Floats | Sums::Pairs | Sums::Dots => (1, 8, 1),
    })
}
