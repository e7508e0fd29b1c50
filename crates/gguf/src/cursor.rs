//! A bounds-checked reader of little-endian fields that knows what it is reading.

use std::fmt;

use crate::Error;
use crate::error::shorten;

/// Longest key or tensor name, in bytes.
pub(crate) const MAX_NAME: u64 = 65535;

/// What is being read, for error messages; formatted only when something is wrong.
#[derive(Clone, Copy)]
pub(crate) enum What<'a> {
    Header(&'static str),
    /// Name of the n-th metadata key.
    Key(u64),
    /// Value of a metadata key.
    Value(&'a str),
    /// Name of the n-th tensor.
    TensorName(u64),
    /// Directory entry of a tensor.
    Tensor(&'a str),
}

impl fmt::Display for What<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            What::Header(field) => f.write_str(field),
            What::Key(n) => write!(f, "name of metadata key {n}"),
            What::Value(key) => write!(f, "value of key {:?}", shorten(key)),
            What::TensorName(n) => write!(f, "name of tensor {n}"),
            What::Tensor(name) => write!(f, "entry of tensor {:?}", shorten(name)),
        }
    }
}

/// A position in the file. Every read is checked against the end.
#[derive(Clone)]
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Cursor { bytes, at: 0 }
    }

    pub(crate) fn offset(&self) -> u64 {
        self.at as u64
    }

    pub(crate) fn remaining(&self) -> u64 {
        (self.bytes.len() - self.at) as u64
    }

    /// The bytes from `start`, an earlier offset of this cursor, up to here.
    pub(crate) fn since(&self, start: u64) -> &'a [u8] {
        &self.bytes[start as usize..self.at]
    }

    /// The next `n` bytes.
    pub(crate) fn take(&mut self, n: u64, what: What<'_>) -> Result<&'a [u8], Error> {
        if n > self.remaining() {
            return Err(Error::Truncated {
                what: what.to_string(),
                offset: self.offset(),
                needed: n,
                available: self.remaining(),
            });
        }
        let start = self.at;
        self.at += n as usize; // fits: n <= remaining, which is a usize
        Ok(&self.bytes[start..self.at])
    }

    pub(crate) fn array<const N: usize>(&mut self, what: What<'_>) -> Result<[u8; N], Error> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N as u64, what)?);
        Ok(out)
    }

    pub(crate) fn u32(&mut self, what: What<'_>) -> Result<u32, Error> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    pub(crate) fn u64(&mut self, what: What<'_>) -> Result<u64, Error> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }

    /// A string value: length and bytes.
    pub(crate) fn string(&mut self, what: What<'_>) -> Result<&'a [u8], Error> {
        let length = self.u64(what)?;
        self.take(length, what)
    }

    /// A key or tensor name: limited in length, and UTF-8.
    pub(crate) fn name(&mut self, what: What<'_>) -> Result<&'a str, Error> {
        let offset = self.offset();
        let length = self.u64(what)?;
        if length > MAX_NAME {
            return Err(Error::NameTooLong { what: what.to_string(), offset, length });
        }
        let offset = self.offset();
        std::str::from_utf8(self.take(length, what)?)
            .map_err(|_| Error::NameNotUtf8 { what: what.to_string(), offset })
    }

    /// A count of entries of at least `least` bytes each, refused when they cannot all follow
    /// `skip` further bytes of header.
    pub(crate) fn count(&mut self, least: u64, skip: u64, what: What<'_>) -> Result<u64, Error> {
        let offset = self.offset();
        let count = self.u64(what)?;
        let most = self.remaining().saturating_sub(skip) / least;
        if count > most {
            return Err(Error::CountTooLarge { what: what.to_string(), offset, count, most });
        }
        Ok(count)
    }
}
