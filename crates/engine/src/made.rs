//! A file whose data are made when they are wanted: a model in another form, which is converted as it is
//! loaded.
//!
//! Every byte of the file has an address, at which nothing is. Who loads asks for ranges of addresses; their
//! rows are made by as many threads as there are processors, packed, and forgotten.

use crate::error::Error;
use gguf::{Gguf, Tensor};
use memory::Reserved;
use std::ops::Range;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

/// Makes the data of a file's tensors, by their numbers in its directory. Many threads ask at once.
pub trait Produce: Send + Sync {
    /// Appends rows in the tensor's type.
    ///
    /// # Errors
    /// When the type cannot hold them.
    fn rows(&self, tensor: usize, rows: Range<usize>, out: &mut Vec<u8>)
    -> Result<(), gguf::Error>;

    /// The same as numbers, not rounded.
    ///
    /// # Errors
    /// When there are no such numbers.
    fn values(&self, tensor: usize, rows: Range<usize>, out: &mut [f32])
    -> Result<(), gguf::Error>;
}

/// Tensors up to so many bytes are made at once: those that a graph depends on are among them.
const SMALL: usize = 64 << 10;

/// Bytes that a thread makes at a time.
const PIECE: usize = 1 << 20;

/// See the module.
pub(crate) struct Made {
    space: Reserved,
    /// In the order of the data.
    tensors: Vec<Place>,
    by: Box<dyn Produce>,
}

/// Where a tensor's data would be.
struct Place {
    bytes: Range<usize>,
    row: usize,
    /// In the directory.
    number: usize,
    name: String,
}

impl Made {
    pub(crate) fn new(
        path: &Path,
        head: &[u8],
        bytes: u64,
        by: Box<dyn Produce>,
    ) -> Result<Made, Error> {
        let fault = |source| Error::Gguf { path: path.to_owned(), source };
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let mut tensors = Vec::new();
        let space = Reserved::new(bytes, |space| {
            let start = head.len().min(space.len());
            space[..start].copy_from_slice(&head[..start]);
            let base = space.as_ptr() as usize;
            let place = |(number, tensor): (usize, &Tensor<'_>)| {
                let start = tensor.data.as_ptr() as usize - base;
                let bytes = start..start + tensor.data.len();
                Place { bytes, row: tensor.row_bytes(), number, name: tensor.name().to_owned() }
            };
            let gguf = Gguf::parse(space).map_err(fault)?;
            tensors = gguf.tensors().iter().enumerate().map(place).collect();
            for of in tensors.iter().filter(|of: &&Place| of.bytes.len() <= SMALL) {
                let mut data = Vec::with_capacity(of.bytes.len());
                let rows = 0..of.bytes.len().checked_div(of.row).unwrap_or(0);
                by.rows(of.number, rows, &mut data).map_err(fault)?;
                space[of.bytes.clone()].copy_from_slice(&data);
            }
            Ok::<_, Error>(())
        })?;
        tensors.sort_by_key(|of| of.bytes.start);
        Ok(Made { space, tensors, by })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.space
    }

    /// The tensor that bytes of the file are of, and its rows there.
    fn place(&self, part: &[u8]) -> (&Place, Range<usize>) {
        let at = part.as_ptr() as usize - self.space.as_ptr() as usize;
        let next = self.tensors.partition_point(|of| of.bytes.start <= at);
        let of = &self.tensors[next.saturating_sub(1)];
        let first = (at - of.bytes.start) / of.row;
        (of, first..first + part.len() / of.row)
    }

    /// The rows of a tensor that `part` of the file has.
    pub(crate) fn rows(&self, part: &[u8]) -> Result<Vec<u8>, gguf::Error> {
        let (of, rows) = self.place(part);
        let mut out = Vec::with_capacity(part.len());
        self.by.rows(of.number, rows, &mut out)?;
        Ok(out)
    }

    /// The same as numbers.
    pub(crate) fn values(&self, part: &[u8], out: &mut [f32]) -> Result<(), gguf::Error> {
        let (of, rows) = self.place(part);
        self.by.values(of.number, rows, out)
    }

    /// Makes these parts of the file, each of whole rows.
    pub(crate) fn make(
        &self,
        parts: &[&[u8]],
        stop: &AtomicBool,
    ) -> Result<Vec<Vec<u8>>, graph::Error> {
        // Pieces of all parts, in order.
        let mut pieces: Vec<(&Place, Range<usize>)> = Vec::new();
        let mut counts = Vec::with_capacity(parts.len());
        for part in parts {
            let (of, rows) = self.place(part);
            let each = (PIECE / of.row.max(1)).max(1);
            let before = pieces.len();
            let starts = rows.clone().step_by(each);
            pieces.extend(starts.map(|row| (of, row..(row + each).min(rows.end))));
            counts.push(pieces.len() - before);
        }
        let next = AtomicUsize::new(0);
        let done: Mutex<Vec<Option<Vec<u8>>>> = Mutex::new(vec![None; pieces.len()]);
        let work = || -> Result<(), graph::Error> {
            loop {
                let n = next.fetch_add(1, Relaxed);
                let Some((of, rows)) = pieces.get(n) else { return Ok(()) };
                if stop.load(Relaxed) {
                    return Err(graph::Error::Stopped);
                }
                let mut data = Vec::with_capacity(rows.len() * of.row);
                let made = self.by.rows(of.number, rows.clone(), &mut data);
                made.map_err(|source| graph::Error::Make {
                    tensor: of.name.clone(),
                    source: Box::new(source),
                })?;
                done.lock().unwrap_or_else(|e| e.into_inner())[n] = Some(data);
            }
        };
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        std::thread::scope(|scope| {
            let more: Vec<_> = (1..threads.min(pieces.len())).map(|_| scope.spawn(work)).collect();
            let mine = work();
            let others = more.into_iter().map(|thread| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            });
            others.fold(mine, Result::and)
        })?;
        let mut done = done.into_inner().unwrap_or_else(|e| e.into_inner()).into_iter();
        let joined = counts.into_iter().map(|count| {
            let pieces = done.by_ref().take(count).flatten();
            pieces.reduce(|mut all, piece| {
                all.extend(piece);
                all
            })
        });
        Ok(joined.map(Option::unwrap_or_default).collect())
    }
}
