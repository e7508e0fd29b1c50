//! Bytes of frames: numbers in little endian, lists with their lengths before them.
//!
//! A length that was read is not trusted: a list is no longer than the rest of its frame, and the reader of a frame sets
//! a limit for its length.

use std::io::{ErrorKind, Read, Write};

/// Bytes before a frame's contents: its kind and their length.
pub(super) const HEAD: usize = 5;

/// Bytes that are read at once, and taken before they came.
const PIECE: usize = 16 << 10;

/// Why a frame cannot be had.
#[derive(Debug, thiserror::Error)]
pub(super) enum WireError {
    /// The other side has closed the connection.
    #[error("it closed the connection")]
    Closed,
    /// Nothing came for too long.
    #[error("it was silent for too long")]
    Silent,
    /// The connection broke.
    #[error("{0}")]
    Io(std::io::Error),
    /// What came is no frame, or not one that may come now.
    #[error("it sent what is no message of this protocol: {0}")]
    Bad(&'static str),
    /// What came is a message that may not come now.
    #[error("it sent {0}")]
    Unasked(&'static str),
}

impl WireError {
    /// Whether the connection is lost, and not the fault of what came.
    pub(super) fn is_loss(&self) -> bool {
        matches!(self, WireError::Closed | WireError::Silent | WireError::Io(_))
    }
}

impl From<std::io::Error> for WireError {
    fn from(error: std::io::Error) -> WireError {
        match error.kind() {
            ErrorKind::UnexpectedEof
            | ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::BrokenPipe => WireError::Closed,
            ErrorKind::WouldBlock | ErrorKind::TimedOut => WireError::Silent,
            _ => WireError::Io(error),
        }
    }
}

/// Reads the head of a frame: its kind, and the length of its contents.
pub(super) fn read_head(from: &mut impl Read) -> Result<(u8, usize), WireError> {
    let mut head = [0; HEAD];
    from.read_exact(&mut head)?;
    let [kind, length @ ..] = head;
    Ok((kind, u32::from_le_bytes(length) as usize))
}

/// Reads the contents of a frame, of at most `most` bytes.
pub(super) fn read_body(
    from: &mut impl Read,
    length: usize,
    most: usize,
) -> Result<Vec<u8>, WireError> {
    if length > most {
        return Err(WireError::Bad("a message that is too long"));
    }
    // As long as it says only when as much has come.
    let mut bytes = Vec::with_capacity(length.min(PIECE));
    match from.by_ref().take(length as u64).read_to_end(&mut bytes)? {
        read if read == length => Ok(bytes),
        _ => Err(WireError::Closed),
    }
}

/// Reads floats that are the rest of a frame.
pub(super) fn read_floats(from: &mut impl Read, count: usize) -> Result<Vec<f32>, WireError> {
    let mut floats = Vec::with_capacity(count.min(PIECE));
    let mut piece = [0; PIECE];
    while floats.len() < count {
        let next = &mut piece[..(4 * (count - floats.len())).min(PIECE)];
        from.read_exact(next)?;
        floats.extend(next.as_chunks().0.iter().map(|n| f32::from_le_bytes(*n)));
    }
    Ok(floats)
}

/// Writes a frame that [`Put::frame`] has made.
pub(super) fn write_frame(to: &mut impl Write, frame: &[u8]) -> Result<(), WireError> {
    to.write_all(frame)?;
    Ok(to.flush()?)
}

/// A frame that is being made.
pub(super) struct Put(Vec<u8>);

impl Put {
    pub(super) fn new(kind: u8) -> Put {
        Put(vec![kind, 0, 0, 0, 0])
    }

    pub(super) fn u8(&mut self, n: u8) -> &mut Put {
        self.0.push(n);
        self
    }

    pub(super) fn u32(&mut self, n: u32) -> &mut Put {
        self.bytes(&n.to_le_bytes())
    }

    pub(super) fn u64(&mut self, n: u64) -> &mut Put {
        self.bytes(&n.to_le_bytes())
    }

    /// Bytes whose number the reader knows.
    pub(super) fn bytes(&mut self, bytes: &[u8]) -> &mut Put {
        self.0.extend_from_slice(bytes);
        self
    }

    pub(super) fn text(&mut self, text: &str) -> &mut Put {
        self.u32(text.len() as u32).bytes(text.as_bytes())
    }

    pub(super) fn list(&mut self, numbers: impl ExactSizeIterator<Item = u32>) -> &mut Put {
        self.u32(numbers.len() as u32);
        numbers.for_each(|n| _ = self.u32(n));
        self
    }

    pub(super) fn floats<'f>(&mut self, rows: impl Iterator<Item = &'f [f32]>) -> &mut Put {
        for row in rows {
            let first = self.0.len();
            self.0.resize(first + size_of_val(row), 0);
            let to = self.0[first..].as_chunks_mut().0;
            to.iter_mut().zip(row).for_each(|(to, x)| *to = x.to_le_bytes());
        }
        self
    }

    /// The whole frame.
    pub(super) fn frame(mut self) -> Vec<u8> {
        let length = (self.0.len() - HEAD) as u32;
        self.0[1..HEAD].copy_from_slice(&length.to_le_bytes());
        self.0
    }
}

/// The contents of a frame that are being read.
pub(super) struct Take<'a>(pub(super) &'a [u8]);

const SHORT: WireError = WireError::Bad("a message that ends too early");

impl<'a> Take<'a> {
    pub(super) fn bytes(&mut self, count: usize) -> Result<&'a [u8], WireError> {
        let (now, rest) = self.0.split_at_checked(count).ok_or(SHORT)?;
        self.0 = rest;
        Ok(now)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        Ok(*self.bytes(N)?.first_chunk().ok_or(SHORT)?)
    }

    pub(super) fn u8(&mut self) -> Result<u8, WireError> {
        Ok(self.array::<1>()?[0])
    }

    pub(super) fn u32(&mut self) -> Result<u32, WireError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(super) fn u64(&mut self) -> Result<u64, WireError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub(super) fn size(&mut self) -> Result<usize, WireError> {
        usize::try_from(self.u64()?).map_err(|_| WireError::Bad("a number that is too large"))
    }

    pub(super) fn text(&mut self) -> Result<String, WireError> {
        let length = self.u32()? as usize;
        let text = str::from_utf8(self.bytes(length)?);
        Ok(text.map_err(|_| WireError::Bad("a text that is no UTF-8"))?.to_owned())
    }

    /// How many things follow, of `each` bytes at least.
    pub(super) fn count(&mut self, each: usize) -> Result<usize, WireError> {
        let count = self.u32()? as usize;
        if count > self.0.len() / each { Err(SHORT) } else { Ok(count) }
    }

    pub(super) fn list(&mut self) -> Result<Vec<u32>, WireError> {
        let count = self.count(4)?;
        let (numbers, _) = self.bytes(4 * count)?.as_chunks();
        Ok(numbers.iter().map(|n| u32::from_le_bytes(*n)).collect())
    }

    /// Nothing is left.
    pub(super) fn end(self) -> Result<(), WireError> {
        if self.0.is_empty() { Ok(()) } else { Err(WireError::Bad("a message that is too long")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_bounded_before_anything_is_allocated() {
        let mut put = Put::new(7);
        put.list([1, 2, 3].into_iter()).text("ab");
        let frame = put.frame();
        let read = |mut bytes: &[u8], most| {
            let (kind, length) = read_head(&mut bytes)?;
            Ok((kind, read_body(&mut bytes, length, most)?))
        };
        let (kind, bytes) = read(&frame, 100).unwrap();
        let mut take = Take(&bytes);
        assert_eq!((kind, take.list().unwrap()), (7, vec![1, 2, 3]));
        assert_eq!(take.text().unwrap(), "ab");
        take.end().unwrap();
        assert!(matches!(read(&frame, 10), Err(WireError::Bad(_))), "longer than it may be");
        assert!(matches!(read(&frame[..9], 100), Err(WireError::Closed)));
        assert!(matches!(read(&frame[..3], 100), Err(WireError::Closed)));
        // A list that says it is longer than its frame.
        assert!(matches!(Take(&[255, 255, 255, 255, 1]).list(), Err(WireError::Bad(_))));
        assert!(matches!(Take(&[9, 0, 0, 0, b'x']).text(), Err(WireError::Bad(_))));
        // Floats that do not come, and those of more than one piece.
        assert!(matches!(read_floats(&mut &[0; 7][..], 2), Err(WireError::Closed)));
        assert!(matches!(read_floats(&mut &[0; 7][..], 1 << 40), Err(WireError::Closed)));
        let mut put = Put::new(7);
        let row: Vec<f32> = (0..9000).map(|n| n as f32).collect();
        put.floats([&*row].into_iter());
        assert_eq!(read_floats(&mut &put.frame()[HEAD..], 9000).unwrap(), row);
    }
}
