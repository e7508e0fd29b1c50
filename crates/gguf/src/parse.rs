//! Reading a file: header, metadata, tensor directory, data section.

use std::collections::HashMap;

use crate::cursor::{Cursor, What};
use crate::error::shorten;
use crate::metadata::{self, Metadata};
use crate::tensor::{MAX_DIMS, OtherTensor, Shape, Tensor};
use crate::types::TensorType;
use crate::{Error, MAGIC};

/// Fewest bytes of a directory entry: name length (8), empty name, rank (4), one dimension (8),
/// type (4), offset (8).
const LEAST_TENSOR: u64 = 32;

/// A parsed model: metadata and tensors, all borrowed from the bytes of its file or files.
#[derive(Debug, Clone)]
pub struct Gguf<'a> {
    pub(crate) version: u32,
    pub(crate) alignment: u32,
    pub(crate) metadata: Metadata<'a>,
    pub(crate) tensors: Vec<Tensor<'a>>,
    pub(crate) others: Vec<OtherTensor<'a>>,
    /// Where a tensor stands among `tensors`; nowhere if it is one of the others.
    pub(crate) index: HashMap<&'a str, Option<usize>>,
}

impl<'a> Gguf<'a> {
    /// Parses a model that is one file.
    ///
    /// # Errors
    /// The first fault found, with its place; [`Error::LonePart`] if the file is one of several
    /// parts.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Error> {
        let gguf = Self::survey(&[bytes])?;
        match gguf.others.first() {
            None => Ok(gguf),
            Some(other) => Err(other.fault()),
        }
    }

    /// Format version, 2 or 3.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Alignment of tensor data within the file, in bytes; a power of two.
    pub fn alignment(&self) -> u32 {
        self.alignment
    }

    /// The metadata; that of the first part if the model is split.
    pub fn metadata(&self) -> &Metadata<'a> {
        &self.metadata
    }

    /// All tensors, in file order; those of the first part first if the model is split.
    pub fn tensors(&self) -> &[Tensor<'a>] {
        &self.tensors
    }

    /// Tensors of types that this crate does not read, in file order; none unless the file was
    /// [surveyed](Gguf::survey).
    pub fn others(&self) -> &[OtherTensor<'a>] {
        &self.others
    }

    /// The tensor of this name, in O(1), unless it is one of the [others](Gguf::others).
    pub fn tensor(&self, name: &str) -> Option<&Tensor<'a>> {
        let at = self.index.get(name).copied().flatten()?;
        Some(&self.tensors[at])
    }

    /// Takes tensors of four dimensions for matrices with the last one as rows: convolutions that go over what they
    /// read once, piece by piece.
    pub fn flatten(&mut self) {
        for tensor in self.tensors.iter_mut().filter(|tensor| tensor.shape.rank() == 4) {
            let dims = tensor.shape.dims();
            let (cols, rows) = (dims[..3].iter().product(), dims[3]);
            // The product of all is in range already.
            tensor.shape = Shape::new(&[cols, rows]).unwrap_or(tensor.shape);
        }
    }

    /// Parses one file, whether it is a whole model or a part.
    pub(crate) fn parse_part(bytes: &'a [u8], part: usize) -> Result<Self, Error> {
        let cursor = &mut Cursor::new(bytes);
        let version = read_version(cursor)?;
        // The counts come first, so what they may claim is judged after both are read: 8 more
        // bytes follow the first of them.
        let tensor_count = cursor.count(LEAST_TENSOR, 8, What::Header("tensor count"))?;
        let entry_count = cursor.count(metadata::LEAST_ENTRY, 0, What::Header("metadata count"))?;
        let metadata = Metadata::read(cursor, entry_count)?;
        let alignment = metadata.alignment()?;

        let (mut entries, mut strange) = (Vec::new(), Vec::new());
        let mut index = HashMap::new();
        for n in 0..tensor_count {
            let entry = Entry::read(cursor, n)?;
            let at = entry.ty.is_ok().then_some(entries.len());
            if index.insert(entry.name, at).is_some() {
                let (tensor, offset) = (shorten(entry.name), entry.offset);
                return Err(Error::DuplicateTensor { tensor, offset });
            }
            if at.is_some() { entries.push(entry) } else { strange.push(entry) }
        }

        // No overflow: the offset is within a slice, so at most isize::MAX.
        let start = cursor.offset().next_multiple_of(alignment.into());
        let place = Place { file: bytes, start, alignment, part };
        let tensors =
            entries.iter().map(|entry| entry.locate(&place)).collect::<Result<Vec<_>, _>>()?;
        reject_overlap(&tensors)?;
        let mut others = strange
            .iter()
            .map(|entry| entry.locate_other(&place))
            .collect::<Result<Vec<_>, _>>()?;
        if !others.is_empty() {
            measure(&mut others, &tensors, bytes.len());
        }
        Ok(Gguf { version, alignment, metadata, tensors, others, index })
    }
}

fn read_version(cursor: &mut Cursor<'_>) -> Result<u32, Error> {
    let found: [u8; 4] = cursor.array(What::Header("magic"))?;
    let mut swapped = found;
    swapped.reverse();
    if swapped == MAGIC {
        return Err(Error::BigEndian { offset: 0 });
    }
    if found != MAGIC {
        return Err(Error::BadMagic { found });
    }
    // Big-endian writers keep the magic in reading order: the version gives them away.
    match cursor.u32(What::Header("version"))? {
        version @ 2..=3 => Ok(version),
        version if (1..=3).contains(&version.swap_bytes()) => Err(Error::BigEndian { offset: 4 }),
        version => Err(Error::UnsupportedVersion { version }),
    }
}

/// A directory entry whose name and shape are sound; its place is not yet checked.
struct Entry<'a> {
    name: &'a str,
    shape: Shape,
    /// Its type; of one that is not read, its id and where that stands.
    ty: Result<TensorType, (u32, u64)>,
    /// Bytes of its data, if the type is known.
    bytes: usize,
    /// Offset of its data within the data section.
    data_offset: u64,
    /// Where the entry starts in the file.
    offset: u64,
}

impl<'a> Entry<'a> {
    fn read(cursor: &mut Cursor<'a>, n: u64) -> Result<Self, Error> {
        let start = cursor.offset();
        let name = cursor.name(What::TensorName(n))?;
        let what = What::Tensor(name);
        let tensor = || shorten(name);

        let offset = cursor.offset();
        let rank = cursor.u32(what)?;
        if rank == 0 || rank > MAX_DIMS as u32 {
            return Err(Error::BadDimCount { tensor: tensor(), offset, found: rank.into() });
        }
        let offset = cursor.offset();
        let mut dims = Vec::with_capacity(MAX_DIMS);
        for dim in 0..rank as usize {
            let size = cursor.u64(what)?;
            if size == 0 {
                return Err(Error::ZeroDim { tensor: tensor(), offset, dim });
            }
            dims.push(size);
        }
        let too_large = || Error::ShapeTooLarge { tensor: tensor(), offset, dims: dims.clone() };
        let shape = dims
            .iter()
            .map(|&d| usize::try_from(d).ok())
            .collect::<Option<Vec<_>>>()
            .and_then(|dims| Shape::new(&dims))
            .ok_or_else(too_large)?;

        let type_offset = cursor.offset();
        let id = cursor.u32(what)?;
        let ty = TensorType::from_id(id).ok_or((id, type_offset));
        let bytes = match ty {
            Ok(ty) if !shape.cols().is_multiple_of(ty.block_len()) => {
                return Err(Error::PartialBlock {
                    tensor: tensor(),
                    offset,
                    cols: shape.cols(),
                    ty,
                });
            }
            Ok(ty) => ty.bytes_for(shape.elements()).ok_or_else(too_large)?,
            Err(_) => 0,
        };
        let data_offset = cursor.u64(what)?;
        Ok(Entry { name, shape, ty, bytes, data_offset, offset: start })
    }

    /// Finds the data in a file.
    fn locate(&self, place: &Place<'a>) -> Result<Tensor<'a>, Error> {
        let Entry { name, shape, ty, bytes, .. } = *self;
        let (offset, rest) = self.begin(place)?;
        match (ty, offset, rest.get(..bytes)) {
            (Ok(ty), Some(offset), Some(data)) => {
                Ok(Tensor { name, shape, ty, data, offset, part: place.part })
            }
            _ => Err(self.out_of_bounds(rest)),
        }
    }

    /// The same where it is not known how many bytes there should be. Some there must be.
    fn locate_other(&self, place: &Place<'a>) -> Result<OtherTensor<'a>, Error> {
        let Entry { name, shape, ty, .. } = *self;
        let (offset, rest) = self.begin(place)?;
        match (ty, offset) {
            (Err((type_id, type_offset)), Some(offset)) if !rest.is_empty() => {
                let (bytes, part) = (rest.len(), place.part);
                Ok(OtherTensor { name, shape, type_id, bytes, offset, part, type_offset })
            }
            _ => Err(Entry { bytes: 1, ..*self }.out_of_bounds(rest)),
        }
    }

    /// Where the data begin, if that is in the file, and the file from there on.
    fn begin(&self, place: &Place<'a>) -> Result<(Option<u64>, &'a [u8]), Error> {
        let Entry { name, data_offset, .. } = *self;
        let Place { file, start, alignment, .. } = *place;
        if !data_offset.is_multiple_of(alignment.into()) {
            let tensor = shorten(name);
            return Err(Error::Misaligned { tensor, offset: data_offset, alignment });
        }
        let offset = start.checked_add(data_offset).filter(|&o| o <= file.len() as u64);
        Ok((offset, offset.map_or(&file[..0], |o| &file[o as usize..])))
    }

    fn out_of_bounds(&self, rest: &[u8]) -> Error {
        Error::DataOutOfBounds {
            tensor: shorten(self.name),
            offset: self.data_offset,
            needed: self.bytes as u64,
            available: rest.len() as u64,
        }
    }
}

/// A file whose data section begins at `start`.
struct Place<'a> {
    file: &'a [u8],
    start: u64,
    alignment: u32,
    part: usize,
}

/// Gives each of the others the bytes up to the next tensor.
fn measure(others: &mut [OtherTensor<'_>], tensors: &[Tensor<'_>], end: usize) {
    let all = tensors.iter().map(|t| t.offset).chain(others.iter().map(|t| t.offset));
    let mut starts: Vec<u64> = all.collect();
    starts.sort_unstable();
    for other in others {
        let next = starts.partition_point(|&start| start <= other.offset);
        let next = starts.get(next).map_or(end as u64, |&start| start);
        other.bytes = (next - other.offset) as usize;
    }
}

/// Keeps the sum of all tensors below the size of the file, whatever the directory says.
fn reject_overlap(tensors: &[Tensor<'_>]) -> Result<(), Error> {
    let mut order: Vec<&Tensor<'_>> = tensors.iter().collect();
    order.sort_by_key(|t| t.offset);
    for pair in order.windows(2) {
        if pair[0].offset + pair[0].data.len() as u64 > pair[1].offset {
            return Err(Error::Overlap {
                tensor: shorten(pair[1].name),
                offset: pair[1].offset,
                other: shorten(pair[0].name),
            });
        }
    }
    Ok(())
}
