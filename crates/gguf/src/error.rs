//! What can be wrong with a file, a metadata lookup, a conversion or a write.

use std::fmt;

/// A fault, with the key or tensor concerned and, for files, the byte offset at which it was found.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file does not begin with `GGUF`.
    #[error("not a GGUF file: it begins with {}, not \"GGUF\"", Bytes(.found))]
    BadMagic {
        /// The four bytes found at offset 0.
        found: [u8; 4],
    },

    /// The file was written for a big-endian machine.
    #[error(
        "big-endian GGUF file (byte-swapped field at offset {offset}): convert it to little endian"
    )]
    BigEndian {
        /// Offset of the byte-swapped field.
        offset: u64,
    },

    /// A format version other than 2 and 3.
    #[error("GGUF version {version} (offset 4) is not supported: versions 2 and 3 are")]
    UnsupportedVersion {
        /// The version found.
        version: u32,
    },

    /// The file ends inside a field, or a length points past its end.
    #[error(
        "file ends early: {what} at offset {offset} needs {needed} bytes, {available} are left"
    )]
    Truncated {
        /// The field being read.
        what: String,
        /// Where it starts.
        offset: u64,
        /// Bytes it needs.
        needed: u64,
        /// Bytes left in the file from `offset`.
        available: u64,
    },

    /// A count that the rest of the file cannot hold.
    #[error(
        "{what} at offset {offset} claims {count} entries, the rest of the file can hold at most {most}"
    )]
    CountTooLarge {
        /// What is counted.
        what: String,
        /// Where the count stands.
        offset: u64,
        /// The count found.
        count: u64,
        /// The most that could follow.
        most: u64,
    },

    /// A key or tensor name longer than 65535 bytes.
    #[error("{what} at offset {offset} is {length} bytes long: at most 65535 are allowed")]
    NameTooLong {
        /// Which name.
        what: String,
        /// Where its length stands.
        offset: u64,
        /// The length found.
        length: u64,
    },

    /// A key or tensor name that is not UTF-8.
    #[error("{what} at offset {offset} is not valid UTF-8")]
    NameNotUtf8 {
        /// Which name.
        what: String,
        /// Where it starts.
        offset: u64,
    },

    /// A metadata key that occurs twice.
    #[error("duplicate metadata key {key:?} at offset {offset}")]
    DuplicateKey {
        /// The key.
        key: String,
        /// Where it occurs again.
        offset: u64,
    },

    /// A value type id that GGUF does not define.
    #[error("{what} at offset {offset} has unknown value type {id}")]
    UnknownValueType {
        /// The value concerned.
        what: String,
        /// Where the type id stands.
        offset: u64,
        /// The id found.
        id: u32,
    },

    /// Arrays nested too deeply.
    #[error("{what} at offset {offset} nests arrays more than {limit} deep")]
    NestedTooDeep {
        /// The value concerned.
        what: String,
        /// Where the innermost array stands.
        offset: u64,
        /// The depth allowed.
        limit: u32,
    },

    /// `general.alignment` is not a power of two.
    #[error("key \"general.alignment\" at offset {offset} is {value}: it must be a power of two")]
    BadAlignment {
        /// The value found.
        value: u32,
        /// Where the key stands.
        offset: u64,
    },

    /// A tensor name that occurs twice.
    #[error("duplicate tensor {tensor:?} at offset {offset}")]
    DuplicateTensor {
        /// The name.
        tensor: String,
        /// Where it occurs again.
        offset: u64,
    },

    /// A number of dimensions other than 1 to 4.
    #[error("tensor {tensor:?} at offset {offset} has {found} dimensions: 1 to 4 are allowed")]
    BadDimCount {
        /// The tensor.
        tensor: String,
        /// Where the number stands.
        offset: u64,
        /// The number found.
        found: u64,
    },

    /// A dimension of size zero.
    #[error("tensor {tensor:?} at offset {offset}: dimension {dim} is zero")]
    ZeroDim {
        /// The tensor.
        tensor: String,
        /// Where the dimensions stand.
        offset: u64,
        /// Which dimension, from 0.
        dim: usize,
    },

    /// A shape whose elements or bytes cannot be counted in this machine's address space.
    #[error("tensor {tensor:?} at offset {offset}: shape {dims:?} is too large")]
    ShapeTooLarge {
        /// The tensor.
        tensor: String,
        /// Where the dimensions stand.
        offset: u64,
        /// The dimensions found.
        dims: Vec<u64>,
    },

    /// A type that ggml knows and this crate does not read.
    #[error(
        "tensor {tensor:?} at offset {offset} has type {name}, which is not supported: requantise the model to one of {}",
        crate::types::Supported
    )]
    UnsupportedType {
        /// The tensor.
        tensor: String,
        /// Where the type id stands.
        offset: u64,
        /// The type's name in ggml.
        name: &'static str,
    },

    /// A type id that is not known at all.
    #[error("tensor {tensor:?} at offset {offset} has unknown type id {id}")]
    UnknownType {
        /// The tensor.
        tensor: String,
        /// Where the type id stands.
        offset: u64,
        /// The id found.
        id: u32,
    },

    /// A row that does not fill whole blocks.
    #[error(
        "tensor {tensor:?} at offset {offset}: rows of {cols} elements are not whole {ty} blocks of {}",
        .ty.block_len()
    )]
    PartialBlock {
        /// The tensor.
        tensor: String,
        /// Where its entry stands.
        offset: u64,
        /// Elements per row.
        cols: usize,
        /// Its type.
        ty: crate::TensorType,
    },

    /// Tensor data that does not start on the file's alignment.
    #[error(
        "data of tensor {tensor:?} at data offset {offset} is not aligned to {alignment} bytes"
    )]
    Misaligned {
        /// The tensor.
        tensor: String,
        /// Offset of its data within the data section.
        offset: u64,
        /// The file's alignment.
        alignment: u32,
    },

    /// Tensor data that reaches past the end of the file.
    #[error(
        "data of tensor {tensor:?} at data offset {offset} is {needed} bytes, {available} are left: the file is incomplete"
    )]
    DataOutOfBounds {
        /// The tensor.
        tensor: String,
        /// Offset of its data within the data section.
        offset: u64,
        /// Bytes that its shape and type need.
        needed: u64,
        /// Bytes left in the file from there.
        available: u64,
    },

    /// Two tensors that share bytes.
    #[error("data of tensor {tensor:?} at offset {offset} overlaps that of tensor {other:?}")]
    Overlap {
        /// The tensor that starts later.
        tensor: String,
        /// File offset at which it starts.
        offset: u64,
        /// The tensor that is not over yet.
        other: String,
    },

    /// A metadata key that is required and absent.
    #[error("metadata key {key:?} is missing")]
    MissingKey {
        /// The key.
        key: String,
    },

    /// A metadata value of another type than the one asked for.
    #[error("metadata key {key:?} at offset {offset} is {found}, expected {expected}")]
    WrongType {
        /// The key.
        key: String,
        /// Where it stands.
        offset: u64,
        /// The type wanted.
        expected: &'static str,
        /// The type found.
        found: String,
    },

    /// A number that does not fit the type asked for.
    #[error("metadata key {key:?} at offset {offset} holds {value}, which does not fit {expected}")]
    OutOfRange {
        /// The key.
        key: String,
        /// Where it stands.
        offset: u64,
        /// The number found.
        value: String,
        /// The type wanted.
        expected: &'static str,
    },

    /// A string asked for as text that is not UTF-8.
    #[error("metadata key {key:?} at offset {offset} is not valid UTF-8 text")]
    NotText {
        /// The key.
        key: String,
        /// Where it stands.
        offset: u64,
    },

    /// One part of a split model was opened alone.
    #[error(
        "file is part {} of {count} of a split model: keep the parts' names (\"-00001-of-{count:05}.gguf\") and open all of them",
        .part.saturating_add(1)
    )]
    LonePart {
        /// The part found, from 0.
        part: u64,
        /// Parts of the model.
        count: u64,
    },

    /// A split model was opened with no parts.
    #[error("no parts given for a split model")]
    NoParts,

    /// The parts of a split model do not belong together.
    #[error("part {} of a split model: key {key:?} is {found}, expected {expected}", .part + 1)]
    SplitMismatch {
        /// The part, from 0, in the order given.
        part: usize,
        /// The key that disagrees.
        key: &'static str,
        /// Its value.
        found: u64,
        /// The value that would fit.
        expected: u64,
    },

    /// A fault in one part of a split model.
    #[error("part {}: {source}", .part + 1)]
    InPart {
        /// The part, from 0, in the order given.
        part: usize,
        /// The fault.
        source: Box<Error>,
    },

    /// Buffers of a conversion that do not fit together.
    #[error("{ty} conversion: {bytes} bytes do not match {elements} elements (blocks of {} elements, {} bytes)", .ty.block_len(), .ty.block_bytes())]
    LengthMismatch {
        /// The type.
        ty: crate::TensorType,
        /// Bytes given.
        bytes: usize,
        /// Elements given.
        elements: usize,
    },

    /// Quantisation to a type of very few bits from values alone.
    #[error(
        "cannot quantise to {ty} without importances: measure them on text (an importance matrix), or take IQ3_S, Q3_K or Q2_K, which are near in size"
    )]
    NeedsImportance {
        /// The type.
        ty: crate::TensorType,
    },

    /// Importances that are not one for each column of whole rows.
    #[error(
        "cannot quantise {elements} elements to {ty} with {found} importances: it takes one for each column, in whole blocks of {}",
        .ty.block_len()
    )]
    ImportanceLength {
        /// The type.
        ty: crate::TensorType,
        /// Elements given.
        elements: usize,
        /// Importances given.
        found: usize,
    },

    /// An importance that is negative, infinite or not a number.
    #[error("importance {index} is {value}: it must be a number from 0 up")]
    BadImportance {
        /// Which column.
        index: usize,
        /// Its value.
        value: f32,
    },

    /// Quantisation of a number of elements that is not a whole number of blocks.
    #[error("cannot quantise {elements} elements to {ty}: its blocks have {}", .ty.block_len())]
    PartialQuantise {
        /// The type.
        ty: crate::TensorType,
        /// Elements given.
        elements: usize,
    },

    /// Quantisation of an infinity or NaN to a type whose blocks share a scale.
    #[error("cannot quantise to {ty}: element {index} is {value}")]
    NotFinite {
        /// The type.
        ty: crate::TensorType,
        /// Which element.
        index: usize,
        /// Its value.
        value: f32,
    },

    /// Quantisation of values too large for a half-precision scale.
    #[error(
        "cannot quantise to {ty}: the block at element {index} needs scale {scale}, beyond what it can hold"
    )]
    ScaleOverflow {
        /// The type.
        ty: crate::TensorType,
        /// First element of the block.
        index: usize,
        /// The scale needed.
        scale: f32,
    },

    /// A file that is no importance matrix in either format.
    #[error(
        "not an importance matrix: it begins with {}, neither \"GGUF\" nor a number of entries",
        Bytes(.found)
    )]
    NotImportances {
        /// What it begins with, at most 4 bytes.
        found: Vec<u8>,
    },

    /// An importance matrix file without entries.
    #[error("the importance matrix has no entries")]
    NoImportances,

    /// Sums without counts, or counts without sums.
    #[error("importances of {entry:?}: {entry}{missing} is missing")]
    ImportanceUnpaired {
        /// The matrix that they are of.
        entry: String,
        /// Ending of the tensor that is not there.
        missing: &'static str,
    },

    /// Sums or counts that are not single precision.
    #[error("importances in tensor {tensor:?} are {ty}: they must be F32")]
    ImportanceType {
        /// The tensor.
        tensor: String,
        /// Its type.
        ty: crate::TensorType,
    },

    /// Counts that do not divide the sums.
    #[error("importances of {entry:?}: {sums} sums cannot be shared by {counts} counts")]
    ImportanceCounts {
        /// The matrix that they are of.
        entry: String,
        /// Number of sums.
        sums: usize,
        /// Number of counts.
        counts: usize,
    },

    /// An importance in a file that is negative, infinite or not a number.
    #[error("importances of {entry:?}: number {index} is {value}, it must be 0 or more")]
    ImportanceValue {
        /// The matrix that it is of.
        entry: String,
        /// Which one.
        index: usize,
        /// Its value.
        value: f32,
    },

    /// Data handed to the writer is not as long as its shape and type say.
    #[error("tensor {tensor:?}: data is {found} bytes, its shape and type need {needed}")]
    WrongDataLength {
        /// The tensor.
        tensor: String,
        /// Bytes given.
        found: u64,
        /// Bytes needed.
        needed: u64,
    },

    /// The output could not be written.
    #[error("cannot write GGUF output: {0}")]
    Io(#[from] std::io::Error),
}

/// Shortens a name from an untrusted file for use in an error.
pub(crate) fn shorten(name: &str) -> String {
    const MOST: usize = 128;
    if name.len() <= MOST {
        return name.to_owned();
    }
    format!("{}…", &name[..name.floor_char_boundary(MOST)])
}

/// Prints bytes as an escaped string literal.
struct Bytes<'a>(&'a [u8]);

impl fmt::Display for Bytes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}
