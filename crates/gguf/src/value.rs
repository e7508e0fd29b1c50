//! Metadata values: scalars, byte strings, and arrays that are checked once and decoded lazily.

use std::fmt;

use crate::Error;
use crate::cursor::{Cursor, What};

/// How deep arrays may nest. Real files do not nest them at all; the limit bounds recursion.
const MAX_DEPTH: u32 = 4;

/// The type of a metadata value, with its id in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
#[expect(missing_docs, reason = "each variant says what it is")]
pub enum ValueType {
    U8 = 0,
    I8 = 1,
    U16 = 2,
    I16 = 3,
    U32 = 4,
    I32 = 5,
    F32 = 6,
    Bool = 7,
    Str = 8,
    Array = 9,
    U64 = 10,
    I64 = 11,
    F64 = 12,
}

impl ValueType {
    /// The type with this id in the file, if GGUF defines it.
    pub fn from_id(id: u32) -> Option<Self> {
        use ValueType::*;
        [U8, I8, U16, I16, U32, I32, F32, Bool, Str, Array, U64, I64, F64].get(id as usize).copied()
    }

    /// The id in the file.
    pub fn id(self) -> u32 {
        self as u32
    }

    /// Name for messages, e.g. `"u32"`.
    pub fn name(self) -> &'static str {
        match self {
            ValueType::U8 => "u8",
            ValueType::I8 => "i8",
            ValueType::U16 => "u16",
            ValueType::I16 => "i16",
            ValueType::U32 => "u32",
            ValueType::I32 => "i32",
            ValueType::F32 => "f32",
            ValueType::Bool => "bool",
            ValueType::Str => "string",
            ValueType::Array => "array",
            ValueType::U64 => "u64",
            ValueType::I64 => "i64",
            ValueType::F64 => "f64",
        }
    }

    /// Fewest bytes a value takes; for all but strings and arrays, exactly what it takes.
    fn least_bytes(self) -> u64 {
        match self {
            ValueType::U8 | ValueType::I8 | ValueType::Bool => 1,
            ValueType::U16 | ValueType::I16 => 2,
            ValueType::U32 | ValueType::I32 | ValueType::F32 => 4,
            ValueType::U64 | ValueType::I64 | ValueType::F64 | ValueType::Str => 8,
            ValueType::Array => 12,
        }
    }
}

impl fmt::Display for ValueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A metadata value. Strings are bytes: GGUF vocabularies hold partial UTF-8.
#[derive(Debug, Clone, Copy, PartialEq)]
#[expect(missing_docs, reason = "each variant says what it is")]
pub enum Value<'a> {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    Str(&'a [u8]),
    Array(Array<'a>),
    U64(u64),
    I64(i64),
    F64(f64),
}

impl<'a> Value<'a> {
    /// The type of this value.
    pub fn value_type(&self) -> ValueType {
        match self {
            Value::U8(_) => ValueType::U8,
            Value::I8(_) => ValueType::I8,
            Value::U16(_) => ValueType::U16,
            Value::I16(_) => ValueType::I16,
            Value::U32(_) => ValueType::U32,
            Value::I32(_) => ValueType::I32,
            Value::F32(_) => ValueType::F32,
            Value::Bool(_) => ValueType::Bool,
            Value::Str(_) => ValueType::Str,
            Value::Array(_) => ValueType::Array,
            Value::U64(_) => ValueType::U64,
            Value::I64(_) => ValueType::I64,
            Value::F64(_) => ValueType::F64,
        }
    }

    /// The value of any integer type, without loss.
    pub fn as_int(&self) -> Option<i128> {
        match *self {
            Value::U8(v) => Some(v.into()),
            Value::I8(v) => Some(v.into()),
            Value::U16(v) => Some(v.into()),
            Value::I16(v) => Some(v.into()),
            Value::U32(v) => Some(v.into()),
            Value::I32(v) => Some(v.into()),
            Value::U64(v) => Some(v.into()),
            Value::I64(v) => Some(v.into()),
            _ => None,
        }
    }

    /// The value of either float type, without loss.
    pub fn as_float(&self) -> Option<f64> {
        match *self {
            Value::F32(v) => Some(v.into()),
            Value::F64(v) => Some(v),
            _ => None,
        }
    }

    /// Reads a value of type `ty`, checking all of it.
    pub(crate) fn read(
        cursor: &mut Cursor<'a>,
        ty: ValueType,
        what: What<'_>,
    ) -> Result<Self, Error> {
        Self::read_at_depth(cursor, ty, what, 1)
    }

    fn read_at_depth(
        cursor: &mut Cursor<'a>,
        ty: ValueType,
        what: What<'_>,
        depth: u32,
    ) -> Result<Self, Error> {
        Ok(match ty {
            ValueType::U8 => Value::U8(u8::from_le_bytes(cursor.array(what)?)),
            ValueType::I8 => Value::I8(i8::from_le_bytes(cursor.array(what)?)),
            ValueType::U16 => Value::U16(u16::from_le_bytes(cursor.array(what)?)),
            ValueType::I16 => Value::I16(i16::from_le_bytes(cursor.array(what)?)),
            ValueType::U32 => Value::U32(u32::from_le_bytes(cursor.array(what)?)),
            ValueType::I32 => Value::I32(i32::from_le_bytes(cursor.array(what)?)),
            ValueType::F32 => Value::F32(f32::from_le_bytes(cursor.array(what)?)),
            ValueType::U64 => Value::U64(u64::from_le_bytes(cursor.array(what)?)),
            ValueType::I64 => Value::I64(i64::from_le_bytes(cursor.array(what)?)),
            ValueType::F64 => Value::F64(f64::from_le_bytes(cursor.array(what)?)),
            // As ggml reads it: the specification allows 0 and 1 only, and some writers differ.
            ValueType::Bool => Value::Bool(cursor.array::<1>(what)? != [0]),
            ValueType::Str => Value::Str(cursor.string(what)?),
            ValueType::Array => Value::Array(Array::read(cursor, what, depth)?),
        })
    }
}

/// The first boolean byte other than 0 and 1 of a value that was read from `bytes`.
pub(crate) fn odd_bool(value: &Value<'_>, bytes: &[u8]) -> Option<u8> {
    match value {
        Value::Bool(_) => bytes.iter().copied().find(|&byte| byte > 1),
        Value::Array(array) => array.odd_bool(),
        _ => None,
    }
}

impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::U8(v) => v.fmt(f),
            Value::I8(v) => v.fmt(f),
            Value::U16(v) => v.fmt(f),
            Value::I16(v) => v.fmt(f),
            Value::U32(v) => v.fmt(f),
            Value::I32(v) => v.fmt(f),
            Value::F32(v) => v.fmt(f),
            Value::Bool(v) => v.fmt(f),
            Value::Str(v) => write!(f, "{:?}", String::from_utf8_lossy(v)),
            Value::Array(v) => v.fmt(f),
            Value::U64(v) => v.fmt(f),
            Value::I64(v) => v.fmt(f),
            Value::F64(v) => v.fmt(f),
        }
    }
}

/// An array of values of one type, checked when the file was parsed, decoded when iterated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Array<'a> {
    ty: ValueType,
    len: usize,
    /// The elements as they stand in the file.
    bytes: &'a [u8],
}

impl<'a> Array<'a> {
    /// Type of the elements.
    pub fn element_type(&self) -> ValueType {
        self.ty
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The elements, whatever their type.
    pub fn values(&self) -> Values<'a> {
        Values { ty: self.ty, left: self.len, cursor: Cursor::new(self.bytes) }
    }

    /// The elements of an array of strings, as bytes.
    pub fn strings(&self) -> Option<Strings<'a>> {
        (self.ty == ValueType::Str).then(|| Strings(self.values()))
    }

    /// The elements of an array of any integer type, without loss.
    pub fn ints(&self) -> Option<impl Iterator<Item = i128> + use<'a>> {
        use ValueType::*;
        matches!(self.ty, U8 | I8 | U16 | I16 | U32 | I32 | U64 | I64)
            .then(|| self.values().filter_map(|v| v.as_int()))
    }

    /// The elements of an array of either float type, without loss.
    pub fn floats(&self) -> Option<impl Iterator<Item = f64> + use<'a>> {
        matches!(self.ty, ValueType::F32 | ValueType::F64)
            .then(|| self.values().filter_map(|v| v.as_float()))
    }

    fn odd_bool(&self) -> Option<u8> {
        match self.ty {
            ValueType::Bool => self.bytes.iter().copied().find(|&byte| byte > 1),
            ValueType::Array => self.values().find_map(|value| odd_bool(&value, &[])),
            _ => None,
        }
    }

    /// Type, length and elements, all as in the file.
    pub(crate) fn parts(&self) -> (ValueType, u64, &'a [u8]) {
        (self.ty, self.len as u64, self.bytes)
    }

    fn read(cursor: &mut Cursor<'a>, what: What<'_>, depth: u32) -> Result<Self, Error> {
        let offset = cursor.offset();
        if depth > MAX_DEPTH {
            return Err(Error::NestedTooDeep { what: what.to_string(), offset, limit: MAX_DEPTH });
        }
        let ty = read_type(cursor, what)?;
        let len = cursor.count(ty.least_bytes(), 0, what)?;
        let start = cursor.offset();
        match ty {
            ValueType::Str => {
                for _ in 0..len {
                    cursor.string(what)?;
                }
            }
            ValueType::Array => {
                for _ in 0..len {
                    Array::read(cursor, what, depth + 1)?;
                }
            }
            // No overflow: `count` has just seen that so many bytes follow.
            _ => _ = cursor.take(len * ty.least_bytes(), what)?,
        }
        Ok(Array { ty, len: len as usize, bytes: cursor.since(start) })
    }
}

impl fmt::Display for Array<'_> {
    /// The first few elements, and how many there are when that is more.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 8;
        f.write_str("[")?;
        for (i, value) in self.values().take(SHOWN).enumerate() {
            let comma = if i > 0 { ", " } else { "" };
            write!(f, "{comma}{value}")?;
        }
        if self.len > SHOWN {
            write!(f, ", … {} in all", self.len)?;
        }
        f.write_str("]")
    }
}

/// Reads a value type id.
pub(crate) fn read_type(cursor: &mut Cursor<'_>, what: What<'_>) -> Result<ValueType, Error> {
    let offset = cursor.offset();
    let id = cursor.u32(what)?;
    ValueType::from_id(id).ok_or_else(|| Error::UnknownValueType {
        what: what.to_string(),
        offset,
        id,
    })
}

/// Iterator over the elements of an [`Array`].
#[derive(Clone)]
pub struct Values<'a> {
    ty: ValueType,
    left: usize,
    cursor: Cursor<'a>,
}

impl<'a> Iterator for Values<'a> {
    type Item = Value<'a>;

    fn next(&mut self) -> Option<Value<'a>> {
        self.left = self.left.checked_sub(1)?;
        let value = Value::read(&mut self.cursor, self.ty, What::Header("array element"));
        debug_assert!(value.is_ok(), "array passed its check at parse");
        value.ok()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Values<'_> {}

/// Iterator over the byte strings of an [`Array`] of strings.
#[derive(Clone)]
pub struct Strings<'a>(Values<'a>);

impl<'a> Iterator for Strings<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        match self.0.next()? {
            Value::Str(s) => Some(s),
            _ => None,
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl ExactSizeIterator for Strings<'_> {}
