//! The metadata of a file: ordered, with getters that name the key when something is wrong.

use std::collections::HashMap;

use crate::cursor::{Cursor, What};
use crate::error::shorten;
use crate::value::{Array, Strings, Value, odd_bool, read_type};
use crate::{ALIGNMENT_KEY, DEFAULT_ALIGNMENT, Error};

/// Fewest bytes of an entry: name length (8), empty name, type (4), one-byte value.
pub(crate) const LEAST_ENTRY: u64 = 13;

/// The key-value pairs of a file, in file order. Lookup is O(1).
#[derive(Debug, Clone, Default)]
pub struct Metadata<'a> {
    entries: Vec<Entry<'a>>,
    index: HashMap<&'a str, usize>,
    odd_bools: Vec<(&'a str, u8)>,
}

#[derive(Debug, Clone)]
struct Entry<'a> {
    key: &'a str,
    value: Value<'a>,
    /// Where the entry starts in the file.
    offset: u64,
}

/// Why a value is not what a getter wants.
enum Mismatch {
    /// Another type; what was wanted.
    Type(&'static str),
    /// A number out of range; the number and what was wanted.
    Range(String, &'static str),
    /// Text wanted, bytes found.
    Utf8,
}

/// Defines, for each row, a getter that requires its key and one that does not.
macro_rules! getters {
    ($($what:literal, $get:ident, $opt:ident: $t:ty = $convert:expr;)*) => {$(
        #[doc = concat!("The value of `key` as ", $what, ".\n\n# Errors\n")]
        #[doc = "[`Error::MissingKey`] if absent; [`Error::WrongType`], [`Error::OutOfRange`] or"]
        #[doc = "[`Error::NotText`] if it is something else."]
        pub fn $get(&self, key: &str) -> Result<$t, Error> {
            self.$opt(key)?.ok_or_else(|| Error::MissingKey { key: key.to_owned() })
        }

        #[doc = concat!("The value of `key` as ", $what, ", or `None` if the key is absent.\n\n# Errors\n")]
        #[doc = "[`Error::WrongType`], [`Error::OutOfRange`] or [`Error::NotText`] if it is something else."]
        pub fn $opt(&self, key: &str) -> Result<Option<$t>, Error> {
            self.lookup(key, $convert)
        }
    )*};
}

impl<'a> Metadata<'a> {
    getters! {
        "`u32`, from any integer type", u32, opt_u32: u32 = |v| int(v, "u32");
        "`u64`, from any integer type", u64, opt_u64: u64 = |v| int(v, "u64");
        "`i64`, from any integer type", i64, opt_i64: i64 = |v| int(v, "i64");
        "`f32`, from either float type, rounded", f32, opt_f32: f32 = |v| {
            v.as_float().map(|v| v as f32).ok_or(Mismatch::Type("float"))
        };
        "a boolean", bool, opt_bool: bool = |v| match *v {
            Value::Bool(v) => Ok(v),
            _ => Err(Mismatch::Type("bool")),
        };
        "text", str, opt_str: &'a str = |v| {
            std::str::from_utf8(bytes(v)?).map_err(|_| Mismatch::Utf8)
        };
        "a byte string", bytes, opt_bytes: &'a [u8] = bytes;
        "an array of any type", array, opt_array: Array<'a> = |v| match *v {
            Value::Array(array) => Ok(array),
            _ => Err(Mismatch::Type("array")),
        };
        "an array of byte strings", strings, opt_strings: Strings<'a> = |v| {
            elements(v, Array::strings, "array of strings")
        };
        "an array of `i32`, from any integer type", i32s, opt_i32s: Vec<i32> = |v| {
            ints(v, "array of i32")
        };
        "an array of `u32`, from any integer type", u32s, opt_u32s: Vec<u32> = |v| {
            ints(v, "array of u32")
        };
        "an array of `f32`, from either float type, rounded", f32s, opt_f32s: Vec<f32> = |v| {
            Ok(elements(v, Array::floats, "array of floats")?.map(|v| v as f32).collect())
        };
    }

    /// The value of `key`.
    pub fn get(&self, key: &str) -> Option<&Value<'a>> {
        self.index.get(key).map(|&i| &self.entries[i].value)
    }

    /// All pairs, in file order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&'a str, &Value<'a>)> {
        self.entries.iter().map(|e| (e.key, &e.value))
    }

    /// Number of pairs.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Keys whose booleans have bytes other than 0 and 1, each with the first such byte. Such a boolean is read as
    /// true, as ggml does; the specification does not allow it.
    pub fn odd_bools(&self) -> &[(&'a str, u8)] {
        &self.odd_bools
    }

    /// Whether there are no pairs.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn lookup<T>(
        &self,
        key: &str,
        convert: impl FnOnce(&Value<'a>) -> Result<T, Mismatch>,
    ) -> Result<Option<T>, Error> {
        let Some(&i) = self.index.get(key) else { return Ok(None) };
        let Entry { value, offset, .. } = &self.entries[i];
        let (key, offset) = (shorten(key), *offset);
        convert(value).map(Some).map_err(|mismatch| match mismatch {
            Mismatch::Type(expected) => {
                let found = match value {
                    Value::Array(array) => format!("array of {}", array.element_type()),
                    _ => value.value_type().to_string(),
                };
                Error::WrongType { key, offset, expected, found }
            }
            Mismatch::Range(value, expected) => Error::OutOfRange { key, offset, value, expected },
            Mismatch::Utf8 => Error::NotText { key, offset },
        })
    }

    /// Reads `count` entries.
    pub(crate) fn read(cursor: &mut Cursor<'a>, count: u64) -> Result<Self, Error> {
        let mut metadata = Metadata::default();
        for n in 0..count {
            let offset = cursor.offset();
            let key = cursor.name(What::Key(n))?;
            if metadata.index.insert(key, metadata.entries.len()).is_some() {
                return Err(Error::DuplicateKey { key: shorten(key), offset });
            }
            let ty = read_type(cursor, What::Value(key))?;
            let start = cursor.offset();
            let value = Value::read(cursor, ty, What::Value(key))?;
            if let Some(byte) = odd_bool(&value, cursor.since(start)) {
                metadata.odd_bools.push((key, byte));
            }
            metadata.entries.push(Entry { key, value, offset });
        }
        Ok(metadata)
    }

    /// Alignment of tensor data, in bytes; a power of two.
    pub(crate) fn alignment(&self) -> Result<u32, Error> {
        let value = self.opt_u32(ALIGNMENT_KEY)?.unwrap_or(DEFAULT_ALIGNMENT);
        if !value.is_power_of_two() {
            let offset = self.index.get(ALIGNMENT_KEY).map_or(0, |&i| self.entries[i].offset);
            return Err(Error::BadAlignment { value, offset });
        }
        Ok(value)
    }
}

fn int<T: TryFrom<i128>>(value: &Value<'_>, expected: &'static str) -> Result<T, Mismatch> {
    let value = value.as_int().ok_or(Mismatch::Type("integer"))?;
    T::try_from(value).map_err(|_| Mismatch::Range(value.to_string(), expected))
}

fn bytes<'a>(value: &Value<'a>) -> Result<&'a [u8], Mismatch> {
    match *value {
        Value::Str(s) => Ok(s),
        _ => Err(Mismatch::Type("string")),
    }
}

fn elements<'a, I>(
    value: &Value<'a>,
    iterate: impl FnOnce(&Array<'a>) -> Option<I>,
    expected: &'static str,
) -> Result<I, Mismatch> {
    match value {
        Value::Array(array) => iterate(array).ok_or(Mismatch::Type(expected)),
        _ => Err(Mismatch::Type(expected)),
    }
}

fn ints<T: TryFrom<i128>>(value: &Value<'_>, expected: &'static str) -> Result<Vec<T>, Mismatch> {
    elements(value, Array::ints, expected)?
        .map(|v| T::try_from(v).map_err(|_| Mismatch::Range(v.to_string(), expected)))
        .collect()
}
