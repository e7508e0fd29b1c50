//! AMX: integer dots of whole matrices by `tdpbssd`, in registers of 16 rows of 64 bytes.
//!
//! A tile register is more state than a thread has by default: Linux gives it to processes that ask, and a
//! thread says how many rows each register has before it uses them. `core::arch` has no stable intrinsics
//! for it, so instructions are written out. Registers keep their values between them: nothing else that is
//! compiled here knows that they exist.

use core::arch::asm;
use core::arch::x86_64::{__cpuid, __cpuid_count, _xgetbv};
use std::mem::MaybeUninit;
use std::sync::OnceLock;

use super::avx512::Avx512;
use crate::simd::LANES;

/// Proof that the CPU has AMX with 8-bit integers, that this process may use it, and what [`Avx512`] with VNNI
/// stands for.
#[derive(Clone, Copy)]
pub(crate) struct Amx(Avx512<true>);

/// Rows of a tile register, and 32-bit integers in each.
pub(crate) const ROWS: usize = 16;

/// Sets of registers, each for two factors and their product.
pub(crate) const SETS: usize = 2;

/// Integer sums: a row of 16 for every row of the first factor. Of no product at first.
#[repr(C, align(64))]
pub(crate) struct Sums([MaybeUninit<[i32; LANES]>; ROWS]);

impl Sums {
    pub(crate) const NONE: Self = Self([MaybeUninit::uninit(); ROWS]);

    /// Row `row`.
    ///
    /// # Safety
    ///
    /// A product of more rows was stored.
    #[inline(always)]
    pub(crate) unsafe fn row(&self, row: usize) -> &[i32; LANES] {
        // SAFETY: the caller's contract.
        unsafe { self.0[row].assume_init_ref() }
    }
}

/// What `ldtilecfg` reads (Intel's manual, volume 1, section 18.2.2).
#[repr(C, align(64))]
struct Config {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

/// Configuration and data of tiles in what the operating system saves.
const SAVED: u64 = 0b11 << 17;

impl Amx {
    /// A token, if the CPU has the instructions and Linux lets this process use them, which it is asked for
    /// at the first call.
    pub(crate) fn new() -> Option<Self> {
        static TILES: OnceLock<bool> = OnceLock::new();
        Avx512::new().filter(|_| *TILES.get_or_init(|| has_tiles() && ask())).map(Self)
    }

    /// # Safety
    ///
    /// [`Amx::new`] gives a token on this CPU, and has given one.
    #[inline(always)]
    pub(crate) unsafe fn assume() -> Self {
        // SAFETY: the caller's contract includes that of `Avx512`.
        Self(unsafe { Avx512::assume() })
    }

    /// The same proof, for everything else.
    #[inline(always)]
    pub(crate) fn avx512(self) -> Avx512<true> {
        self.0
    }

    /// Makes room for products of `rows` rows of four times `quads` bytes and 16 columns as long. Takes some
    /// 300 cycles.
    pub(crate) fn configure(self, rows: usize, quads: usize) {
        assert!((1..=ROWS).contains(&rows) && (1..=ROWS).contains(&quads), "{rows} x {quads}");
        let mut config = Config {
            palette: 1,
            start_row: 0,
            reserved: [0; 14],
            row_bytes: [0; 16],
            rows: [0; 16],
        };
        // Of every set sums, the first factor, the second.
        for set in 0..SETS {
            config.row_bytes[3 * set..][..3].copy_from_slice(&[64, 4 * quads as u16, 64]);
            config.rows[3 * set..][..3].copy_from_slice(&[rows as u8, rows as u8, quads as u8]);
        }
        // SAFETY: the token proves that the instruction may be used; 64 bytes are read.
        unsafe { asm!("ldtilecfg [{}]", in(reg) &raw const config, options(nostack)) };
    }

    /// Gives the registers back: without them, threads are switched sooner.
    pub(crate) fn release(self) {
        // SAFETY: the token proves that the instruction may be used.
        unsafe { asm!("tilerelease", options(nostack, nomem)) };
    }

    /// Loads the first factor of a set: the configured rows, `stride` bytes apart.
    ///
    /// # Safety
    ///
    /// So many rows are there; registers were configured.
    #[inline(always)]
    pub(crate) unsafe fn load_first<const SET: usize>(self, from: *const i8, stride: usize) {
        const { assert!(SET < SETS) };
        // SAFETY: the caller's contract.
        unsafe {
            asm!("tileloadd tmm{to}, [{} + {}]", in(reg) from, in(reg) stride, to = const 3 * SET + 1,
                 options(nostack, readonly, preserves_flags));
        }
    }

    /// Loads the second factor of a set: of each column four bytes, then the next four.
    ///
    /// # Safety
    ///
    /// So many rows of 64 bytes are there; registers were configured.
    #[inline(always)]
    pub(crate) unsafe fn load_second<const SET: usize>(self, from: *const u8) {
        const { assert!(SET < SETS) };
        // SAFETY: the caller's contract.
        unsafe {
            asm!("tileloadd tmm{to}, [{} + {}]", in(reg) from, in(reg) 64usize, to = const 3 * SET + 2,
                 options(nostack, readonly, preserves_flags));
        }
    }

    /// Multiplies both factors of a set.
    ///
    /// # Safety
    ///
    /// Registers were configured.
    #[inline(always)]
    pub(crate) unsafe fn multiply<const SET: usize>(self) {
        const { assert!(SET < SETS) };
        // SAFETY: the token proves that the instructions may be used; the caller's contract.
        unsafe {
            asm!(
                "tilezero tmm{sums}",
                "tdpbssd tmm{sums}, tmm{first}, tmm{second}",
                sums = const 3 * SET,
                first = const 3 * SET + 1,
                second = const 3 * SET + 2,
                options(nostack, nomem, preserves_flags)
            );
        }
    }

    /// Stores the configured rows of a set's product.
    ///
    /// # Safety
    ///
    /// Registers were configured.
    #[inline(always)]
    pub(crate) unsafe fn store<const SET: usize>(self, to: &mut Sums) {
        const { assert!(SET < SETS) };
        // SAFETY: no more than 16 rows of 64 bytes are written; the caller's contract.
        unsafe {
            asm!("tilestored [{} + {}], tmm{from}", in(reg) to, in(reg) 64usize, from = const 3 * SET,
                 options(nostack, preserves_flags));
        }
    }

    /// `iters` products of 16 rows of 32 bytes, as the kernels have them; gives the number of
    /// multiply-accumulates done.
    pub(crate) fn peak(self, iters: u64) -> u64 {
        const COLS: usize = 32;
        self.configure(ROWS, COLS / 4);
        let factor = [0i8; ROWS * COLS];
        // SAFETY: 16 rows of 32 bytes, and 8 of 64, are there.
        unsafe {
            self.load_first::<0>(factor.as_ptr(), COLS);
            self.load_second::<0>(factor.as_ptr().cast());
        }
        for _ in 0..iters {
            // SAFETY: configured above.
            unsafe { self.multiply::<0>() };
        }
        self.release();
        iters * (ROWS * LANES * COLS) as u64
    }
}

/// Whether the CPU has tiles and dots of bytes, and the operating system saves them.
fn has_tiles() -> bool {
    const TILE: u32 = 1 << 24;
    const INT8: u32 = 1 << 25;
    const OSXSAVE: u32 = 1 << 27;
    if __cpuid(0).eax < 7 {
        return false;
    }
    let (features, more) = (__cpuid_count(1, 0).ecx, __cpuid_count(7, 0).edx);
    // SAFETY: the operating system has switched the instruction on.
    let saved = features & OSXSAVE != 0 && unsafe { saved() } & SAVED == SAVED;
    saved && more & (TILE | INT8) == TILE | INT8
}

/// What the operating system saves of a thread.
///
/// # Safety
///
/// The CPU has `xgetbv`.
#[target_feature(enable = "xsave")]
unsafe fn saved() -> u64 {
    // SAFETY: the caller's contract.
    unsafe { _xgetbv(0) }
}

/// Asks Linux (5.16 and newer) for the registers.
#[cfg(target_os = "linux")]
fn ask() -> bool {
    const ARCH_REQ_XCOMP_PERM: libc::c_ulong = 0x1023;
    /// Where tile data are in the state of a thread.
    const TILE_DATA: libc::c_ulong = 18;
    // SAFETY: the call takes numbers only.
    unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, TILE_DATA) == 0 }
}

#[cfg(not(target_os = "linux"))]
fn ask() -> bool {
    false
}

/// The product of `rows` rows of `4 * quads` numbers with as many rows of quads, by one set of tiles; rows beyond
/// `rows` hold 7. `None` without AMX. For tests of the instructions alone.
///
/// # Panics
///
/// At no such set, more than 16 rows or more than 8 quads.
#[doc(hidden)]
pub fn amx_product(
    set: usize,
    rows: usize,
    quads: usize,
    first: &[[i8; 40]; ROWS],
    second: &[[u8; 64]; 8],
) -> Option<[[i32; LANES]; ROWS]> {
    assert!(rows <= ROWS && quads <= second.len());
    match set {
        0 => product::<0>(rows, quads, first, second),
        1 => product::<1>(rows, quads, first, second),
        _ => panic!("there is no set {set}"),
    }
}

fn product<const SET: usize>(
    rows: usize,
    quads: usize,
    first: &[[i8; 40]; ROWS],
    second: &[[u8; 64]; 8],
) -> Option<[[i32; LANES]; ROWS]> {
    let d = Amx::new()?;
    let mut sums = Sums([MaybeUninit::new([7; LANES]); ROWS]);
    d.configure(rows, quads);
    // SAFETY: rows of 40 bytes and 8 rows of quads are there, and configured.
    unsafe {
        d.load_first::<SET>(first.as_ptr().cast(), 40);
        d.load_second::<SET>(second.as_ptr().cast());
        d.multiply::<SET>();
        d.store::<SET>(&mut sums);
    }
    d.release();
    // SAFETY: every row was filled.
    Some(std::array::from_fn(|row| unsafe { *sums.row(row) }))
}
