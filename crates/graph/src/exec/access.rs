//! What one instruction may touch, as one thread of its team: where blocks of memory become slices.
//!
//! The safety argument is the compiler's. An instruction states what it touches
//! ([`Instr::accesses`]), each thread touches only its share under the instruction's deal, and between
//! two conflicting accesses stands a wait of sufficient scope. An instruction therefore gets views of
//! exactly the buffers that it declares: a [`Source`] to read, a [`Target`] to write, [`StatePages`] of
//! what is kept of sequences. Views are made in one place, [`Thread::execute`](super::Thread::execute). Within a
//! thread, the borrow checker keeps two slices of a target from existing at once; what it cannot see,
//! the shares of other threads, is what `execute` vouches for.
//!
//! A debug build holds every touch against the declaration: the buffer, the direction, the place, and,
//! where rows are dealt, the thread's own rows.

use crate::buffer::BufId;
use crate::instr::{Access, Deal, Instr, Reach};
use crate::state::StateLayout;
use crate::step::PageId;
use crate::storage::Places;
use crate::tensor::Domain;
use kernels::{KvPageMut, KvType, KvTypes, Rows, RowsMut};
use memory::{Block, Pod};
use std::cell::Cell;
use std::ops::Range;

/// The buffers that an instruction may have targets of; more than any instruction writes.
const MOST_TARGETS: usize = 4;

/// What an instruction declares, and the thread that executes it.
pub(crate) struct Grant<'a> {
    storage: &'a Places,
    instr: &'a Instr,
    /// Where the team's buffers lie.
    place: usize,
    /// The thread's number in the pool.
    thread: usize,
    /// The thread's share of the step's tokens, and of its outputs.
    shares: &'a [Range<usize>; 2],
    /// Buffers that a target was made of.
    taken: [Cell<Option<BufId>>; MOST_TARGETS],
}

impl<'a> Grant<'a> {
    pub(crate) fn new(
        storage: &'a Places,
        instr: &'a Instr,
        place: usize,
        thread: usize,
        shares: &'a [Range<usize>; 2],
    ) -> Grant<'a> {
        Grant { storage, instr, place, thread, shares, taken: Default::default() }
    }

    /// A view to read a buffer.
    ///
    /// # Safety
    ///
    /// No thread writes what is read through it while the instruction is executed. It is so for what
    /// the instruction declares.
    pub(crate) unsafe fn source(&'a self, buf: BufId) -> Source<'a> {
        let block = self.storage.of(buf, self.place, self.thread);
        Source { grant: self, buf, block, stride: self.storage.stride(buf, self.place) }
    }

    /// A view to write a buffer, of which there is one to a buffer.
    ///
    /// # Safety
    ///
    /// No other thread touches what is written through it while the instruction is executed, nor does
    /// this one by another view. It is so for the thread's share of what the instruction declares.
    pub(crate) unsafe fn target(&'a self, buf: BufId) -> Target<'a> {
        if cfg!(debug_assertions) {
            let taken = self.taken.iter().find(|taken| taken.get().is_none_or(|own| own == buf));
            let taken = taken.expect("an instruction writes few buffers");
            assert!(taken.replace(Some(buf)).is_none(), "{} writes {buf:?} twice", self.name());
        }
        let block = self.storage.of(buf, self.place, self.thread);
        Target { grant: self, buf, block, stride: self.storage.stride(buf, self.place) }
    }

    /// A view of the pages of a state, which stands in the program as `buf`.
    ///
    /// # Safety
    ///
    /// As [`Grant::source`] for what is read, and as [`Grant::target`] for what is stored.
    pub(crate) unsafe fn pages(&'a self, buf: BufId, state: usize) -> StatePages<'a> {
        StatePages { grant: self, buf, layout: self.storage.state(state, self.place) }
    }

    fn name(&self) -> &'static str {
        self.instr.name()
    }

    /// Whether the declaration allows a touch. Rows of the caller's buffers are numbered over all parts
    /// of a step and not dealt as they are.
    fn allows(&self, buf: BufId, write: bool, place: usize, rows: &Range<usize>) -> bool {
        let each = match self.instr.domain {
            Domain::Slots(each) => each,
            Domain::Tokens | Domain::Outputs => 1,
        };
        let own = |deal: Deal| match deal {
            Deal::Tokens => Some(self.shares[0].start * each..self.shares[0].end * each),
            Deal::Outputs => Some(self.shares[1].clone()),
            Deal::Items => None,
        };
        let within = |access: &Access| match access.reach {
            Reach::All | Reach::Round => true,
            Reach::Group => place == self.place,
            Reach::Own(deal) => {
                let share = own(deal).filter(|_| !self.storage.is_host(buf));
                place == self.place
                    && share.is_none_or(|own| own.start <= rows.start && rows.end <= own.end)
            }
        };
        let declared = self.instr.accesses().iter();
        declared.filter(|a| a.buffer == buf && (a.write || !write)).any(within)
    }

    /// Ends the program where an instruction touches what it has not declared.
    #[inline]
    #[track_caller]
    fn check(&self, buf: BufId, write: bool, place: usize, rows: Range<usize>) {
        if cfg!(debug_assertions) && !self.allows(buf, write, place, &rows) {
            let (name, does) = (self.name(), if write { "writes" } else { "reads" });
            panic!("{name} {does} rows {rows:?} of {buf:?} in place {place}, undeclared");
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
}

impl<'a> Source<'a> {
    /// The first `width` f32 of a row.
    pub(crate) fn row(&self, row: usize, width: usize) -> &'a [f32] {
        self.grant.check(self.buf, false, self.grant.place, row..row + 1);
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
        self.grant.check(self.buf, false, self.grant.place, rows.clone());
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
        SourceOn { of: Source { block, stride, ..self }, place }
    }
}

/// A buffer to read, of another place.
#[derive(Copy, Clone)]
pub(crate) struct SourceOn<'a> {
    of: Source<'a>,
    place: usize,
}

impl<'a> SourceOn<'a> {
    /// Columns `cols` of a row of f32.
    pub(crate) fn columns(&self, row: usize, cols: Range<usize>) -> &'a [f32] {
        let Source { grant, buf, block, stride } = self.of;
        grant.check(buf, false, self.place, row..row + 1);
        // SAFETY: the contract of `Grant::source`.
        let all = unsafe { block.sub(row * stride, stride).as_slice::<f32>() };
        &all[cols]
    }
}

/// A buffer to write.
pub(crate) struct Target<'a> {
    grant: &'a Grant<'a>,
    buf: BufId,
    block: Block,
    stride: usize, // bytes from one row to the next
}

impl Target<'_> {
    /// The first `width` f32 of a row; only of the thread's share.
    pub(crate) fn row(&mut self, row: usize, width: usize) -> &mut [f32] {
        &mut self.whole_row(row)[..width]
    }

    /// The first `bytes` bytes of a row; only of the thread's share.
    pub(crate) fn bytes(&mut self, row: usize, bytes: usize) -> &mut [u8] {
        &mut self.whole_row(row)[..bytes]
    }

    /// The same of a row, and those of the row after it; both of the thread's share.
    pub(crate) fn bytes_and_next(&mut self, row: usize, bytes: usize) -> (&mut [u8], &[u8]) {
        self.grant.check(self.buf, true, self.grant.place, row..row + 2);
        // SAFETY: the contract of `Grant::target`; the slice borrows the only target of the buffer.
        let both = unsafe { self.block.sub(row * self.stride, 2 * self.stride).as_mut_slice() };
        let (own, next) = both.split_at_mut(self.stride);
        (&mut own[..bytes], &next[..bytes])
    }

    fn whole_row<T: Pod>(&mut self, row: usize) -> &mut [T] {
        self.grant.check(self.buf, true, self.grant.place, row..row + 1);
        // SAFETY: the contract of `Grant::target`; the slice borrows the only target of the buffer.
        unsafe { self.block.sub(row * self.stride, self.stride).as_mut_slice::<T>() }
    }

    /// Columns `cols` of rows `rows` of f32; only of the thread's share.
    pub(crate) fn columns(&mut self, rows: Range<usize>, cols: Range<usize>) -> RowsMut<'_, f32> {
        self.grant.check(self.buf, true, self.grant.place, rows.clone());
        columns_of(self.block, self.stride, rows, cols)
    }

    /// The same of the copy in another place.
    pub(crate) fn columns_on(
        &mut self,
        place: usize,
        rows: Range<usize>,
        cols: Range<usize>,
    ) -> RowsMut<'_, f32> {
        self.grant.check(self.buf, true, place, rows.clone());
        let storage = self.grant.storage;
        columns_of(storage.on(self.buf, place), storage.stride(self.buf, place), rows, cols)
    }

    /// Whether its rows are the caller's.
    pub(crate) fn is_host(&self) -> bool {
        self.grant.storage.is_host(self.buf)
    }
}

/// Columns of a target's block, whose caller borrows it.
fn columns_of<'t>(
    block: Block,
    stride: usize,
    rows: Range<usize>,
    cols: Range<usize>,
) -> RowsMut<'t, f32> {
    let stride = stride / size_of::<f32>();
    assert!(cols.end <= stride && rows.end * stride * size_of::<f32>() <= block.len());
    let at = rows.start * stride + cols.start;
    debug_assert!(block.addr().is_multiple_of(align_of::<f32>()));
    #[expect(clippy::cast_ptr_alignment, reason = "buffers begin on cache lines")]
    let start = block.as_ptr().cast::<f32>();
    // SAFETY: the columns lie inside the block (checked above); the contract of `Grant::target`.
    unsafe { RowsMut::from_raw_parts(start.add(at), rows.len(), cols.len(), stride) }
}

/// The pages of a state: of a layer's keys and values, two pieces for each head, its latents, or of a
/// state of fixed size.
pub(crate) struct StatePages<'a> {
    grant: &'a Grant<'a>,
    buf: BufId,
    layout: &'a StateLayout,
}

impl StatePages<'_> {
    /// How they store keys and values.
    pub(crate) fn kv(&self) -> KvTypes {
        self.layout.kv()
    }

    /// A piece of a page.
    pub(crate) fn piece<E: Pod>(&self, page: PageId, piece: usize) -> &[E] {
        self.grant.check(self.buf, false, self.grant.place, 0..0);
        // SAFETY: the contract of `Grant::pages`; the slice borrows the only view of them.
        unsafe { self.layout.piece(page, piece).as_slice() }
    }

    /// The same to write; only where no other thread reads or writes.
    pub(crate) fn piece_mut<E: Pod>(&mut self, page: PageId, piece: usize) -> &mut [E] {
        self.grant.check(self.buf, true, self.grant.place, 0..0);
        // SAFETY: as above.
        unsafe { self.layout.piece(page, piece).as_mut_slice() }
    }

    /// Some pieces of a state of fixed size, which lie one after the other; only where no other thread reads
    /// or writes.
    pub(crate) fn fixed_mut(&mut self, page: PageId, pieces: Range<usize>) -> &mut [f32] {
        self.grant.check(self.buf, true, self.grant.place, 0..0);
        // SAFETY: the contract of `Grant::pages`; the slice borrows the only view of them.
        unsafe { self.layout.run(page, pieces).as_mut_slice() }
    }

    /// Copies such pieces from one page to another.
    pub(crate) fn copy_fixed(&mut self, (from, to): (PageId, PageId), pieces: Range<usize>) {
        assert_ne!(from, to, "a state is kept in a page of its own");
        self.grant.check(self.buf, true, self.grant.place, 0..0);
        let [from, to] = [from, to].map(|page| self.layout.run(page, pieces.clone()));
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
mod tests {
    use super::*;
    use crate::builder::{Builder, Graph};
    use crate::executor::Executor;
    use crate::op::Norm;
    use crate::plan::Plan;
    use crate::step::{Outputs, PageTable, SeqInput};
    use crate::storage::Limits;
    use crate::weight::{Catalog, WeightSource, WeightView};
    use gguf::TensorType;
    use topology::{CpuId, Group, Machine};

    const WIDTH: usize = 64;
    const VOCAB: usize = 32;

    /// A vocabulary matrix and the weights of a norm, all ones.
    struct Ones(Vec<u8>);

    impl WeightSource for Ones {
        fn tensor(&self, name: &str) -> Option<WeightView<'_>> {
            let rows = if name == "norm" { 1 } else { VOCAB };
            let data = &self.0[..rows * WIDTH * size_of::<f32>()];
            Some(WeightView { ty: TensorType::F32, rows, cols: WIDTH, data })
        }
    }

    impl Catalog for Ones {
        fn wanted(&self, _: &str, _: usize, _: usize) -> Result<TensorType, crate::Error> {
            Ok(TensorType::F32)
        }

        fn has(&self, _: &str) -> bool {
            false
        }

        fn values(&self, _: &str, _: usize) -> Result<Option<Vec<f32>>, crate::Error> {
            Ok(None)
        }
    }

    fn graph(source: &Ones) -> Graph {
        let mut b = Builder::new(1, source);
        let vocab = b.vocab("vocab", VOCAB, WIDTH).unwrap();
        let norm = Norm::Rms { weight: b.vector("norm", WIDTH).unwrap(), eps: 1e-6 };
        let x = b.embed(vocab, 1.0);
        let x = b.norm(x, norm);
        let x = b.select(x);
        b.logits(x, vocab, 1.0, None);
        b.finish()
    }

    /// Steps of a prompt and of one token, after `change` has altered every instruction of all programs.
    fn steps(change: impl Fn(&mut Instr)) -> Result<(), crate::Error> {
        let source = Ones(1f32.to_le_bytes().repeat(VOCAB * WIDTH));
        let group = Group::unbound(vec![CpuId(0); 2]);
        let plan = Plan { pin: false, ..Plan::new(vec![group]) };
        let limits =
            Limits { kv: KvType::F16.into(), tokens: 600, outputs: 4, pages: [0; 4], ranges: 8 };
        let (kernels, machine) = (kernels::Kernels::detect().unwrap(), Machine::read().unwrap());
        let mut executor =
            Executor::new(graph(&source), plan, limits, kernels, &machine, &source, &mut |_| {})?;
        for replica in &mut executor.replicas {
            let forms = replica.0.programs.values_mut().flat_map(|form| &mut form.stages);
            forms.flatten().flat_map(|stage| &mut stage.instrs).for_each(&change);
        }
        for tokens in [1, 600] {
            let tokens = vec![3; tokens];
            let tables: [PageTable; 0] = [];
            let input = SeqInput {
                tokens: &tokens,
                past: 0,
                tables: &tables,
                outputs: Outputs::Last,
                saves: &[],
                insets: &[],
            };
            let row = executor.step([input].into_iter())?.row(0).to_vec();
            // Ones are their own norm, and each logit is the sum of them.
            assert!(row.iter().all(|x| (x - WIDTH as f32).abs() < 1e-3), "{row:?}");
        }
        Ok(())
    }

    #[test]
    fn what_is_declared_can_be_touched() {
        steps(|_| {}).unwrap();
    }

    #[test]
    #[cfg_attr(
        not(debug_assertions),
        ignore = "touches are held against declarations in debug builds"
    )]
    fn a_wrong_declaration_is_caught() {
        let caught = |of: &str, change: fn(&mut Vec<Access>)| {
            let got = steps(|instr| {
                if instr.name() == of {
                    instr.redeclare(change);
                }
            });
            assert!(matches!(got, Err(crate::Error::Panicked(_))), "{of}: {got:?}");
        };
        caught("rms_norm", |all| all.retain(|access| !access.write));
        caught("rms_norm", |all| all.retain(|access| access.write));
        caught("logits", |all| all.retain(|access| access.write));
        caught("embed", Vec::clear);
        // Of 600 tokens and one output, a thread's shares are not the same rows.
        caught("embed", |all| {
            all.iter_mut().for_each(|access| access.reach = Reach::Own(Deal::Outputs));
        });
    }
}
