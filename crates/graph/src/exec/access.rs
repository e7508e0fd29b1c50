//! What one instruction may touch, as one thread of its team: where blocks of memory become slices.
//!
//! The safety argument is the compiler's. An instruction states what it touches
//! ([`Claims`]), each thread touches only its share under the instruction's deal, and between
//! two conflicting accesses stands a wait of sufficient scope. An instruction therefore gets views of
//! exactly the buffers that it declares: a [`Source`] to read, a [`Target`] to write, [`StatePages`] of
//! what is kept of sequences. Views are made in one place, [`Thread::execute`](super::Thread::execute). Within a
//! thread, the borrow checker keeps two slices of a target from existing at once; what it cannot see,
//! the shares of other threads, is what `execute` vouches for.
//!
//! A view can only be taken inside what the instruction claims for its thread: of a claimed buffer, in a claimed
//! place, of the thread's own rows where rows are dealt, and of the tiles or items that it has taken
//! ([`Target::claim`]) where those are. Every build checks that. A debug build can also keep a shadow of the memory
//! ([`shadow`](super::shadow)), which finds two threads at one word without a wait between them.

use super::shadow::{Moment, Who};
use crate::buffer::BufId;
use crate::claims::{Access, Claims, Deal, Reach};
use crate::places::Places;
use crate::state::StateLayout;
use crate::step::PageId;
use crate::tensor::Domain;
use kernels::{KvPageMut, KvType, KvTypes, Rows, RowsMut};
use memory::{Block, Pod};
use std::cell::Cell;
use std::ops::Range;

/// The buffers that an instruction may have views of; more than any instruction uses. Only debug builds note them.
const MOST_VIEWS: usize = if cfg!(debug_assertions) { 16 } else { 0 };

/// What an instruction claims, and the thread that executes it.
pub(super) struct Grant<'a> {
    storage: &'a Places,
    claims: &'a Claims,
    /// Where the team's buffers lie.
    place: usize,
    /// The thread's number in the pool.
    thread: usize,
    /// The thread's share of the step's tokens, and of its outputs.
    shares: &'a [Range<usize>; 2],
    /// Buffers that views were made of, and whether to write; in debug builds.
    views: [Cell<Option<(BufId, bool)>>; MOST_VIEWS],
    /// When it is, if a shadow is kept.
    moment: Option<Moment>,
    /// What was noted in it last, and which is forgotten next.
    noted: [Cell<Noted>; NOTED],
    next: Cell<usize>,
}

/// Where rows begin, how many there are, bytes of each, and whether they are written.
type Noted = (usize, usize, usize, bool);
/// A product takes the same rows for tile after tile: these are noted once.
const NOTED: usize = if cfg!(debug_assertions) { 8 } else { 0 };

/// What views of a buffer may be of.
#[derive(Clone, Debug, Default)]
struct Region {
    /// Rows; of a buffer that has all, the largest range.
    rows: Range<usize>,
    /// Whether copies of other places are included.
    everywhere: bool,
    /// Whether tiles or items are to be taken first.
    items: bool,
}

impl<'a> Grant<'a> {
    pub(super) fn new(
        storage: &'a Places,
        claims: &'a Claims,
        place: usize,
        thread: usize,
        shares: &'a [Range<usize>; 2],
        moment: Option<Moment>,
    ) -> Grant<'a> {
        let (views, noted, next) = Default::default();
        Grant { storage, claims, place, thread, shares, views, moment, noted, next }
    }

    /// A view to read a buffer.
    ///
    /// # Panics
    /// When the instruction does not claim it.
    ///
    /// # Safety
    ///
    /// No thread writes what is read through it while the instruction is executed. It is so for what
    /// the instruction claims.
    pub(super) unsafe fn source(&'a self, buf: BufId) -> Source<'a> {
        self.view(buf, false);
        let block = self.storage.of(buf, self.place, self.thread);
        let stride = self.storage.stride(buf, self.place);
        let Region { rows, everywhere, .. } = self.region(buf, false);
        Source { grant: self, buf, block, stride, first: rows.start, end: rows.end, everywhere }
    }

    /// A view to write a buffer, of which there is one to a buffer.
    ///
    /// # Panics
    /// When the instruction does not claim it.
    ///
    /// # Safety
    ///
    /// No other thread touches what is written through it while the instruction is executed, nor does
    /// this one by another view. It is so for the thread's share of what the instruction claims.
    pub(super) unsafe fn target(&'a self, buf: BufId) -> Target<'a> {
        self.view(buf, true);
        let block = self.storage.of(buf, self.place, self.thread);
        let Region { rows, everywhere, items } = self.region(buf, true);
        let cols = if items { 0..0 } else { 0..usize::MAX };
        let stride = self.storage.stride(buf, self.place);
        Target { grant: self, buf, block, stride, rows, cols, everywhere }
    }

    /// A view of the pages of a state, which stands in the program as `buf`.
    ///
    /// # Safety
    ///
    /// As [`Grant::source`] for what is read, and as [`Grant::target`] for what is stored.
    pub(super) unsafe fn pages(&'a self, buf: BufId, state: usize) -> StatePages<'a> {
        let claims = |write| self.claims(buf, write).next().is_some();
        assert!(claims(false), "{} uses {buf:?} without a claim", self.name());
        StatePages {
            grant: self,
            writes: claims(true),
            layout: self.storage.state(state, self.place),
        }
    }

    fn name(&self) -> &'static str {
        self.claims.name
    }

    /// Notes a view: a buffer has many to read, or one to write.
    #[track_caller]
    fn view(&self, buf: BufId, write: bool) {
        if cfg!(debug_assertions) {
            let is_buf =
                |view: &&Cell<Option<(BufId, bool)>>| view.get().is_none_or(|v| v.0 == buf);
            let view = self.views.iter().find(is_buf).expect("an instruction uses few buffers");
            let before = view.replace(Some((buf, write)));
            let alone = before.is_none_or(|(_, written)| !written && !write);
            assert!(alone, "{} has a view of {buf:?} beside the one that it writes", self.name());
        }
    }

    /// What the instruction claims of a buffer.
    fn claims(&self, buf: BufId, write: bool) -> impl Iterator<Item = &'a Access> {
        let all = self.claims.all.iter();
        all.filter(move |access| access.buffer == buf && (access.write || !write))
    }

    /// The part of it that this thread may touch. Rows of the caller's buffers are numbered over all parts
    /// of a step and not dealt as they are.
    #[track_caller]
    fn region(&self, buf: BufId, write: bool) -> Region {
        let each = match self.claims.domain {
            Domain::Slots(each) => each,
            Domain::Tokens | Domain::Outputs => 1,
        };
        let all = 0..usize::MAX;
        let host = self.storage.is_host(buf);
        let of = |access: &Access| match access.reach {
            Reach::All | Reach::Round => {
                Region { rows: all.clone(), everywhere: true, items: false }
            }
            Reach::Own(Deal::Tokens) if !host => {
                let rows = self.shares[0].start * each..self.shares[0].end * each;
                Region { rows, ..Region::default() }
            }
            Reach::Own(Deal::Outputs) if !host => {
                Region { rows: self.shares[1].clone(), ..Region::default() }
            }
            Reach::Own(Deal::Items) if write => {
                Region { rows: all.clone(), everywhere: false, items: true }
            }
            Reach::Own(_) | Reach::Group => Region { rows: all.clone(), ..Region::default() },
        };
        // A buffer that is claimed twice, as it is read and as it is written, has the wider claim to read.
        let wider = |a: Region, b: Region| {
            let rows = a.rows.start.min(b.rows.start)..a.rows.end.max(b.rows.end);
            Region { rows, everywhere: a.everywhere || b.everywhere, items: a.items && b.items }
        };
        let region = self.claims(buf, write).map(of).reduce(wider);
        let does = if write { "writes" } else { "reads" };
        region.unwrap_or_else(|| panic!("{} {does} {buf:?} without a claim", self.name()))
    }

    /// Ends the program where a view would be of more than is claimed.
    #[inline]
    #[track_caller]
    fn check(&self, buf: BufId, fine: bool, rows: &Range<usize>) {
        if !fine {
            panic!("{} touches rows {rows:?} of {buf:?} beyond its claim", self.name());
        }
    }

    /// Notes what a view is of in the shadow: rows of bytes.
    #[inline]
    #[track_caller]
    fn note(
        &self,
        block: Block,
        stride: usize,
        rows: &Range<usize>,
        bytes: &Range<usize>,
        write: bool,
    ) {
        if cfg!(debug_assertions)
            && let (Some(shadow), Some(moment)) = (&self.storage.shadow, self.moment)
        {
            let start = block.addr() + rows.start * stride + bytes.start;
            let of = (start, rows.len(), bytes.len(), write);
            if self.noted.iter().any(|noted| noted.get() == of) {
                return;
            }
            self.noted[self.next.replace((self.next.get() + 1) % NOTED.max(1))].set(of);
            let who = Who { thread: self.thread, place: self.place };
            for row in rows.clone() {
                let at = block.addr() + row * stride + bytes.start;
                if let Some(other) = shadow.touch(at, bytes.len(), write, who, moment) {
                    let (name, does) = (self.name(), if write { "writes" } else { "reads" });
                    panic!(
                        "thread {} {does} row {row} in {name}, {moment:?}: {other}",
                        self.thread
                    );
                }
            }
        }
    }
}

/// A buffer to read.
#[derive(Copy, Clone)]
pub(crate) struct Source<'a> {
    grant: &'a Grant<'a>,
    buf: BufId,
    block: Block,
    stride: usize, // bytes from one row to the next
    first: usize,  // of the claimed rows
    end: usize,
    everywhere: bool,
}

impl<'a> Source<'a> {
    #[inline]
    #[track_caller]
    fn check(&self, rows: &Range<usize>, bytes: &Range<usize>) {
        let fine = self.first <= rows.start && rows.end <= self.end;
        self.grant.check(self.buf, fine, rows);
        self.grant.note(self.block, self.stride, rows, bytes, false);
    }

    /// The first `width` f32 of a row.
    pub(crate) fn row(&self, row: usize, width: usize) -> &'a [f32] {
        self.check(&(row..row + 1), &(0..width * size_of::<f32>()));
        // SAFETY: the contract of `Grant::source`.
        let all = unsafe { self.block.sub(row * self.stride, self.stride).as_slice::<f32>() };
        &all[..width]
    }

    /// Columns `cols` of rows `rows` of f32.
    pub(crate) fn columns(&self, rows: Range<usize>, cols: Range<usize>) -> Rows<'a, f32> {
        self.rows(rows, cols, self.stride / size_of::<f32>())
    }

    /// Bytes `bytes` of each of the rows `rows`.
    pub(crate) fn bytes(&self, rows: Range<usize>, bytes: Range<usize>) -> Rows<'a, u8> {
        self.rows(rows, bytes, self.stride)
    }

    fn rows<T: Pod>(&self, rows: Range<usize>, cols: Range<usize>, stride: usize) -> Rows<'a, T> {
        self.check(&rows, &(cols.start * size_of::<T>()..cols.end * size_of::<T>()));
        assert!(cols.end <= stride && rows.end * stride * size_of::<T>() <= self.block.len());
        debug_assert!(self.block.addr().is_multiple_of(align_of::<T>()));
        let start = self.block.as_ptr().cast::<T>();
        // SAFETY: rows and columns lie inside the block (checked above); the contract of
        // `Grant::source`.
        unsafe {
            let at = start.add(rows.start * stride + cols.start);
            Rows::from_raw_parts(at, rows.len(), cols.len(), stride)
        }
    }

    /// The same buffer in another place.
    pub(crate) fn on(self, place: usize) -> SourceOn<'a> {
        let storage = self.grant.storage;
        let (block, stride) = (storage.on(self.buf, place), storage.stride(self.buf, place));
        let fine = self.everywhere || place == self.grant.place;
        self.grant.check(self.buf, fine, &(self.first..self.end));
        SourceOn(Source { block, stride, ..self })
    }
}

/// A buffer to read, of another place.
#[derive(Copy, Clone)]
pub(crate) struct SourceOn<'a>(Source<'a>);

impl<'a> SourceOn<'a> {
    /// Columns `cols` of a row of f32.
    pub(crate) fn columns(&self, row: usize, cols: Range<usize>) -> &'a [f32] {
        let of = &self.0;
        of.check(&(row..row + 1), &(cols.start * size_of::<f32>()..cols.end * size_of::<f32>()));
        // SAFETY: the contract of `Grant::source`.
        let all = unsafe { of.block.sub(row * of.stride, of.stride).as_slice::<f32>() };
        &all[cols]
    }
}

/// A buffer to write.
pub(crate) struct Target<'a> {
    grant: &'a Grant<'a>,
    buf: BufId,
    block: Block,
    stride: usize, // bytes from one row to the next
    /// What is claimed: rows, and columns of f32.
    rows: Range<usize>,
    cols: Range<usize>,
    everywhere: bool,
}

impl Target<'_> {
    /// Takes tiles or an item, as they are dealt: views are of these rows and columns of f32 from here on.
    pub(crate) fn claim(&mut self, rows: Range<usize>, cols: Range<usize>) {
        (self.rows, self.cols) = (rows, cols);
    }

    #[inline]
    #[track_caller]
    fn check(&self, rows: &Range<usize>, cols: &Range<usize>) {
        let fine = self.rows.start <= rows.start
            && rows.end <= self.rows.end
            && self.cols.start <= cols.start
            && cols.end <= self.cols.end;
        self.grant.check(self.buf, fine, rows);
    }

    /// The first `width` f32 of a row; only of the thread's share.
    pub(crate) fn row(&mut self, row: usize, width: usize) -> &mut [f32] {
        &mut self.whole_row(row, width * size_of::<f32>())[..width]
    }

    /// The first `bytes` bytes of a row; only of the thread's share.
    pub(crate) fn bytes(&mut self, row: usize, bytes: usize) -> &mut [u8] {
        &mut self.whole_row(row, bytes)[..bytes]
    }

    /// The same of a row, and those of the row after it; both of the thread's share.
    pub(crate) fn bytes_and_next(&mut self, row: usize, bytes: usize) -> (&mut [u8], &[u8]) {
        self.check(&(row..row + 2), &(0..bytes.div_ceil(size_of::<f32>())));
        self.grant.note(self.block, self.stride, &(row..row + 1), &(0..bytes), true);
        // SAFETY: the contract of `Grant::target`; the slice borrows the only target of the buffer.
        let both = unsafe { self.block.sub(row * self.stride, 2 * self.stride).as_mut_slice() };
        let (own, next) = both.split_at_mut(self.stride);
        (&mut own[..bytes], &next[..bytes])
    }

    fn whole_row<T: Pod>(&mut self, row: usize, bytes: usize) -> &mut [T] {
        self.check(&(row..row + 1), &(0..bytes.div_ceil(size_of::<f32>())));
        self.grant.note(self.block, self.stride, &(row..row + 1), &(0..bytes), true);
        // SAFETY: the contract of `Grant::target`; the slice borrows the only target of the buffer.
        unsafe { self.block.sub(row * self.stride, self.stride).as_mut_slice::<T>() }
    }

    /// Columns `cols` of rows `rows` of f32; only of the thread's share.
    pub(crate) fn columns(&mut self, rows: Range<usize>, cols: Range<usize>) -> RowsMut<'_, f32> {
        self.columns_of(self.block, self.stride, rows, cols)
    }

    /// The same of the copy in another place.
    pub(crate) fn columns_on(
        &mut self,
        place: usize,
        rows: Range<usize>,
        cols: Range<usize>,
    ) -> RowsMut<'_, f32> {
        let fine = self.everywhere || place == self.grant.place;
        self.grant.check(self.buf, fine, &rows);
        let storage = self.grant.storage;
        let (block, stride) = (storage.on(self.buf, place), storage.stride(self.buf, place));
        self.columns_of(block, stride, rows, cols)
    }

    /// Whether its rows are the caller's.
    pub(crate) fn is_host(&self) -> bool {
        self.grant.storage.is_host(self.buf)
    }

    fn columns_of(
        &mut self,
        block: Block,
        stride: usize,
        rows: Range<usize>,
        cols: Range<usize>,
    ) -> RowsMut<'_, f32> {
        self.check(&rows, &cols);
        let bytes = cols.start * size_of::<f32>()..cols.end * size_of::<f32>();
        self.grant.note(block, stride, &rows, &bytes, true);
        let stride = stride / size_of::<f32>();
        assert!(cols.end <= stride && rows.end * stride * size_of::<f32>() <= block.len());
        let at = rows.start * stride + cols.start;
        debug_assert!(block.addr().is_multiple_of(align_of::<f32>()));
        #[expect(clippy::cast_ptr_alignment, reason = "buffers begin on cache lines")]
        let start = block.as_ptr().cast::<f32>();
        // SAFETY: the columns lie inside the block (checked above); the contract of `Grant::target`; the view borrows
        // the only target of the buffer.
        unsafe { RowsMut::from_raw_parts(start.add(at), rows.len(), cols.len(), stride) }
    }
}

/// The pages of a state: of a layer's keys and values, two pieces for each head, its latents, or of a
/// state of fixed size.
pub(crate) struct StatePages<'a> {
    grant: &'a Grant<'a>,
    writes: bool,
    layout: &'a StateLayout,
}

impl StatePages<'_> {
    /// How they store keys and values.
    pub(crate) fn kv(&self) -> KvTypes {
        self.layout.kv()
    }

    /// Notes what a view is of, and that it may be.
    #[inline]
    #[track_caller]
    fn check(&self, block: Block, write: bool) {
        assert!(self.writes || !write, "{} writes a state that it reads", self.grant.name());
        self.grant.note(block, 0, &(0..1), &(0..block.len()), write);
    }

    /// A piece of a page.
    pub(crate) fn piece<E: Pod>(&self, page: PageId, piece: usize) -> &[E] {
        let block = self.layout.piece(page, piece);
        self.check(block, false);
        // SAFETY: the contract of `Grant::pages`; the slice borrows the only view of them.
        unsafe { block.as_slice() }
    }

    /// The same to write; only where no other thread reads or writes.
    pub(crate) fn piece_mut<E: Pod>(&mut self, page: PageId, piece: usize) -> &mut [E] {
        let block = self.layout.piece(page, piece);
        self.check(block, true);
        // SAFETY: as above.
        unsafe { block.as_mut_slice() }
    }

    /// Some pieces of a state of fixed size, which lie one after the other; only where no other thread reads
    /// or writes.
    pub(crate) fn fixed_mut(&mut self, page: PageId, pieces: Range<usize>) -> &mut [f32] {
        let block = self.layout.run(page, pieces);
        self.check(block, true);
        // SAFETY: the contract of `Grant::pages`; the slice borrows the only view of them.
        unsafe { block.as_mut_slice() }
    }

    /// Copies such pieces from one page to another.
    pub(crate) fn copy_fixed(&mut self, from: PageId, to: PageId, pieces: Range<usize>) {
        assert_ne!(from, to, "a state is kept in a page of its own");
        let [from, to] = [from, to].map(|page| self.layout.run(page, pieces.clone()));
        self.check(from, false);
        self.check(to, true);
        // SAFETY: as above; these are different pages, so the pieces do not overlap.
        unsafe { to.as_mut_slice::<f32>().copy_from_slice(from.as_slice::<f32>()) };
    }

    /// Keys of one KV head of a page.
    pub(crate) fn keys<E: Pod>(&self, page: PageId, head: usize) -> &[E] {
        self.piece(page, 2 * head)
    }

    /// Values of one KV head of a page.
    pub(crate) fn values<E: Pod>(&self, page: PageId, head: usize) -> &[E] {
        self.piece(page, 2 * head + 1)
    }

    /// The keys of one KV head of a page to store to; `piece_mut` of their number.
    pub(crate) fn keys_mut(&mut self, page: PageId, head: usize) -> KvPageMut<'_> {
        self.half_mut(self.kv().keys, page, 2 * head)
    }

    /// The same of the values.
    pub(crate) fn values_mut(&mut self, page: PageId, head: usize) -> KvPageMut<'_> {
        self.half_mut(self.kv().values, page, 2 * head + 1)
    }

    fn half_mut(&mut self, kv: KvType, page: PageId, piece: usize) -> KvPageMut<'_> {
        match kv {
            KvType::F16 => KvPageMut::F16(self.piece_mut(page, piece)),
            KvType::Bf16 => KvPageMut::Bf16(self.piece_mut(page, piece)),
            KvType::F32 => KvPageMut::F32(self.piece_mut(page, piece)),
            KvType::Q8_0 => KvPageMut::Q8_0(self.piece_mut(page, piece)),
            KvType::Q4_0 => KvPageMut::Q4_0(self.piece_mut(page, piece)),
        }
    }
}

#[cfg(test)]
mod tests;
