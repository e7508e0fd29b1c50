//! Writing a file: version 3, little endian.

use std::borrow::Cow;
use std::collections::HashSet;
use std::io::{self, Write};

use crate::cursor::{Cursor, MAX_NAME, What};
use crate::value::{Array, Value, ValueType};
use crate::{ALIGNMENT_KEY, DEFAULT_ALIGNMENT, Error, MAGIC, MAX_DIMS, Shape, TensorType};

/// A metadata value that owns its bytes, encoded as in the file.
///
/// Made from numbers, booleans, text, byte strings ([`OwnedValue::bytes`]), vectors and slices of
/// these, and any [`Value`] read from another file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnedValue {
    ty: ValueType,
    encoded: Vec<u8>,
}

impl OwnedValue {
    /// A string of any bytes. (A `Vec<u8>` converts to an array of numbers instead.)
    pub fn bytes(bytes: impl AsRef<[u8]>) -> Self {
        let mut encoded = Vec::new();
        put_string(&mut encoded, bytes.as_ref());
        OwnedValue { ty: ValueType::Str, encoded }
    }

    /// An array of strings of any bytes.
    pub fn strings<S: AsRef<[u8]>>(strings: impl IntoIterator<Item = S>) -> Self {
        Self::array_of(ValueType::Str, strings.into_iter().map(OwnedValue::bytes))
    }

    /// The type of this value.
    pub fn value_type(&self) -> ValueType {
        self.ty
    }

    fn array_of(ty: ValueType, elements: impl Iterator<Item = OwnedValue>) -> Self {
        let (mut len, mut encoded) = (0u64, Vec::new());
        for element in elements {
            len += 1;
            encoded.extend(element.encoded);
        }
        Self::array_from(ty, len, &encoded)
    }

    fn array_from(ty: ValueType, len: u64, elements: &[u8]) -> Self {
        let mut encoded = Vec::with_capacity(12 + elements.len());
        encoded.extend(ty.id().to_le_bytes());
        encoded.extend(len.to_le_bytes());
        encoded.extend(elements);
        OwnedValue { ty: ValueType::Array, encoded }
    }
}

fn put_string(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend((bytes.len() as u64).to_le_bytes());
    out.extend(bytes);
}

macro_rules! from_numbers {
    ($($variant:ident $t:ty),*) => {$(
        impl From<$t> for OwnedValue {
            fn from(value: $t) -> Self {
                OwnedValue { ty: ValueType::$variant, encoded: value.to_le_bytes().into() }
            }
        }

        impl From<&[$t]> for OwnedValue {
            fn from(values: &[$t]) -> Self {
                let elements: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
                OwnedValue::array_from(ValueType::$variant, values.len() as u64, &elements)
            }
        }
    )*};
}

from_numbers!(
    U8 u8, I8 i8, U16 u16, I16 i16, U32 u32, I32 i32, U64 u64, I64 i64, F32 f32, F64 f64
);

impl From<bool> for OwnedValue {
    fn from(value: bool) -> Self {
        OwnedValue { ty: ValueType::Bool, encoded: vec![value.into()] }
    }
}

impl From<&[bool]> for OwnedValue {
    fn from(values: &[bool]) -> Self {
        Self::array_of(ValueType::Bool, values.iter().map(|&v| v.into()))
    }
}

impl From<&str> for OwnedValue {
    fn from(value: &str) -> Self {
        Self::bytes(value)
    }
}

impl From<String> for OwnedValue {
    fn from(value: String) -> Self {
        Self::bytes(value)
    }
}

impl From<&[&str]> for OwnedValue {
    fn from(values: &[&str]) -> Self {
        Self::strings(values)
    }
}

impl From<&[String]> for OwnedValue {
    fn from(values: &[String]) -> Self {
        Self::strings(values)
    }
}

impl<T> From<Vec<T>> for OwnedValue
where
    Self: for<'a> From<&'a [T]>,
{
    fn from(values: Vec<T>) -> Self {
        values.as_slice().into()
    }
}

impl From<Array<'_>> for OwnedValue {
    fn from(array: Array<'_>) -> Self {
        let (ty, len, elements) = array.parts();
        Self::array_from(ty, len, elements)
    }
}

impl From<Value<'_>> for OwnedValue {
    fn from(value: Value<'_>) -> Self {
        match value {
            Value::U8(v) => v.into(),
            Value::I8(v) => v.into(),
            Value::U16(v) => v.into(),
            Value::I16(v) => v.into(),
            Value::U32(v) => v.into(),
            Value::I32(v) => v.into(),
            Value::F32(v) => v.into(),
            Value::Bool(v) => v.into(),
            Value::Str(v) => Self::bytes(v),
            Value::Array(v) => v.into(),
            Value::U64(v) => v.into(),
            Value::I64(v) => v.into(),
            Value::F64(v) => v.into(),
        }
    }
}

impl From<&Value<'_>> for OwnedValue {
    fn from(value: &Value<'_>) -> Self {
        (*value).into()
    }
}

type WriteData<'w> = Box<dyn FnMut(&mut dyn Write) -> io::Result<()> + 'w>;

struct TensorEntry<'w> {
    name: String,
    dims: Vec<usize>,
    ty: TensorType,
    data: Data<'w>,
}

enum Data<'w> {
    Bytes(Cow<'w, [u8]>),
    Stream(WriteData<'w>),
}

/// Builds a file from metadata and tensors, in the order given.
///
/// Faults (duplicate names, shapes that are no shapes, data of the wrong length) are reported by
/// [`write_to`](Self::write_to), the first ones before anything is written. The key
/// `general.alignment`, a `u32`, sets the alignment of tensor data.
#[derive(Default)]
pub struct Writer<'w> {
    metadata: Vec<(String, OwnedValue)>,
    tensors: Vec<TensorEntry<'w>>,
}

impl<'w> Writer<'w> {
    /// A file without metadata and tensors.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a metadata pair.
    pub fn kv(&mut self, key: impl Into<String>, value: impl Into<OwnedValue>) -> &mut Self {
        self.metadata.push((key.into(), value.into()));
        self
    }

    /// Adds a tensor with dimensions `dims` (contiguous one first) from its bytes.
    pub fn tensor(
        &mut self,
        name: impl Into<String>,
        dims: &[usize],
        ty: TensorType,
        data: impl Into<Cow<'w, [u8]>>,
    ) -> &mut Self {
        self.push(name.into(), dims, ty, Data::Bytes(data.into()))
    }

    /// Adds a tensor whose bytes `write` will produce when the file is written, so that they need
    /// not be held in memory. It must write exactly as many as shape and type need.
    pub fn tensor_with(
        &mut self,
        name: impl Into<String>,
        dims: &[usize],
        ty: TensorType,
        write: impl FnMut(&mut dyn Write) -> io::Result<()> + 'w,
    ) -> &mut Self {
        self.push(name.into(), dims, ty, Data::Stream(Box::new(write)))
    }

    fn push(&mut self, name: String, dims: &[usize], ty: TensorType, data: Data<'w>) -> &mut Self {
        self.tensors.push(TensorEntry { name, dims: dims.to_vec(), ty, data });
        self
    }

    /// Writes the file. `out` is written to in many small pieces: give it a buffer.
    ///
    /// # Errors
    /// The same as [`Gguf::parse`](crate::Gguf::parse) would find in the file,
    /// [`Error::WrongDataLength`], or [`Error::Io`].
    pub fn write_to(&mut self, mut out: impl Write) -> Result<(), Error> {
        let alignment = u64::from(self.alignment()?);
        let (head, lengths) = self.parts(alignment)?;
        out.write_all(&head)?;
        for (tensor, &needed) in self.tensors.iter_mut().zip(&lengths) {
            let found = match &mut tensor.data {
                Data::Bytes(bytes) => {
                    out.write_all(bytes)?;
                    bytes.len() as u64
                }
                Data::Stream(write) => {
                    let mut counted = Counted { out: &mut out, written: 0 };
                    write(&mut counted)?;
                    counted.written
                }
            };
            if found != needed {
                return Err(Error::WrongDataLength { tensor: tensor.name.clone(), found, needed });
            }
            // At its end too, so that a reader may round lengths up.
            pad(&mut out, needed, alignment)?;
        }
        out.flush()?;
        Ok(())
    }

    /// All of the file before the data of its tensors, padded, and the bytes of the whole file. Data are not
    /// asked for.
    ///
    /// # Errors
    /// Those of [`write_to`](Self::write_to) that are found before anything is written.
    pub fn head(&self) -> Result<(Vec<u8>, u64), Error> {
        let alignment = u64::from(self.alignment()?);
        let (head, lengths) = self.parts(alignment)?;
        // Their sum was seen to be none too large.
        let data: u64 = lengths.iter().map(|length| length.next_multiple_of(alignment)).sum();
        let whole = data + head.len() as u64;
        Ok((head, whole))
    }

    /// The head, and the length of each tensor's data.
    fn parts(&self, alignment: u64) -> Result<(Vec<u8>, Vec<u64>), Error> {
        self.check_keys()?;
        let mut header = Vec::new();
        header.extend(MAGIC);
        header.extend(3u32.to_le_bytes());
        header.extend((self.tensors.len() as u64).to_le_bytes());
        header.extend((self.metadata.len() as u64).to_le_bytes());
        for (key, value) in &self.metadata {
            put_string(&mut header, key.as_bytes());
            header.extend(value.ty.id().to_le_bytes());
            header.extend(&value.encoded);
        }
        let lengths = self.put_directory(&mut header, alignment)?;
        let before = header.len() as u64;
        pad(&mut header, before, alignment)?;
        Ok((header, lengths))
    }

    fn alignment(&self) -> Result<u32, Error> {
        let Some((_, value)) = self.metadata.iter().find(|(key, _)| key == ALIGNMENT_KEY) else {
            return Ok(DEFAULT_ALIGNMENT);
        };
        let key = ALIGNMENT_KEY.to_owned();
        let mut cursor = Cursor::new(&value.encoded);
        match Value::read(&mut cursor, value.ty, What::Value(ALIGNMENT_KEY))? {
            Value::U32(v) if v.is_power_of_two() => Ok(v),
            Value::U32(value) => Err(Error::BadAlignment { value, offset: 0 }),
            _ => {
                let found = value.ty.to_string();
                Err(Error::WrongType { key, offset: 0, expected: "u32", found })
            }
        }
    }

    fn check_keys(&self) -> Result<(), Error> {
        let mut seen = HashSet::new();
        for (key, value) in &self.metadata {
            check_name(key, "metadata key")?;
            if !seen.insert(key) {
                return Err(Error::DuplicateKey { key: key.clone(), offset: 0 });
            }
            // Only an array copied from an array can be nested deeper than a reader allows; it
            // was read, so it is not.
            debug_assert!(
                Value::read(&mut Cursor::new(&value.encoded), value.ty, What::Value(key)).is_ok()
            );
        }
        Ok(())
    }

    /// Writes the directory and gives the length of each tensor's data.
    fn put_directory(&self, header: &mut Vec<u8>, alignment: u64) -> Result<Vec<u64>, Error> {
        let mut seen = HashSet::new();
        let mut lengths = Vec::with_capacity(self.tensors.len());
        let mut offset = 0u64;
        for TensorEntry { name, dims, ty, data } in &self.tensors {
            check_name(name, "tensor name")?;
            if !seen.insert(name) {
                return Err(Error::DuplicateTensor { tensor: name.clone(), offset });
            }
            let length = checked_length(name, dims, *ty)?;
            if let Data::Bytes(bytes) = data
                && bytes.len() as u64 != length
            {
                let (tensor, found) = (name.clone(), bytes.len() as u64);
                return Err(Error::WrongDataLength { tensor, found, needed: length });
            }
            put_string(header, name.as_bytes());
            header.extend((dims.len() as u32).to_le_bytes());
            header.extend(dims.iter().flat_map(|&d| (d as u64).to_le_bytes()));
            header.extend(ty.id().to_le_bytes());
            header.extend(offset.to_le_bytes());
            offset = length
                .checked_next_multiple_of(alignment)
                .and_then(|padded| padded.checked_add(offset))
                .ok_or_else(|| too_large(name, dims))?;
            lengths.push(length);
        }
        Ok(lengths)
    }
}

fn check_name(name: &str, what: &str) -> Result<(), Error> {
    let length = name.len() as u64;
    if length > MAX_NAME {
        let what = format!("{what} {:?}", crate::error::shorten(name));
        return Err(Error::NameTooLong { what, offset: 0, length });
    }
    Ok(())
}

fn too_large(name: &str, dims: &[usize]) -> Error {
    let dims = dims.iter().map(|&d| d as u64).collect();
    Error::ShapeTooLarge { tensor: name.to_owned(), offset: 0, dims }
}

fn checked_length(name: &str, dims: &[usize], ty: TensorType) -> Result<u64, Error> {
    let tensor = name.to_owned();
    if dims.is_empty() || dims.len() > MAX_DIMS {
        return Err(Error::BadDimCount { tensor, offset: 0, found: dims.len() as u64 });
    }
    if let Some(dim) = dims.iter().position(|&d| d == 0) {
        return Err(Error::ZeroDim { tensor, offset: 0, dim });
    }
    let shape = Shape::new(dims).ok_or_else(|| too_large(name, dims))?;
    if !shape.cols().is_multiple_of(ty.block_len()) {
        return Err(Error::PartialBlock { tensor, offset: 0, cols: shape.cols(), ty });
    }
    let length = ty.bytes_for(shape.elements()).ok_or_else(|| too_large(name, dims))?;
    Ok(length as u64)
}

/// Writes the zeros that bring a length of `written` to a multiple of `alignment`.
fn pad(out: &mut impl Write, written: u64, alignment: u64) -> io::Result<()> {
    let zeros = written.next_multiple_of(alignment) - written;
    io::copy(&mut io::Read::take(io::repeat(0), zeros), out)?;
    Ok(())
}

/// Counts what is written through it.
struct Counted<W> {
    out: W,
    written: u64,
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.out.write(bytes)?;
        self.written += n as u64;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
