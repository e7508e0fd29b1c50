//! ZeroMQ's protocol (ZMTP 3.0, <https://rfc.zeromq.org/spec/23/>) on the side of a server, as far as cache events need
//! it: the greeting without authentication, frames, the signs of life of version 3.1.
//!
//! A peer sends subscriptions and questions, which are short: a frame has at most [`FRAME`] bytes and a message at most
//! [`FRAMES`] frames, which is checked before memory is taken. What is written is not limited.

use bytes::{Buf, Bytes, BytesMut};

/// Bytes of a frame that a peer may send.
const FRAME: usize = 1024;

/// Frames of a message that a peer may send.
const FRAMES: usize = 8;

/// Bytes of a greeting.
const GREETING: usize = 64;

const MORE: u8 = 1;
const LONG: u8 = 2;
const COMMAND: u8 = 4;

/// Why a connection ends.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ZmtpError {
    /// The peer has closed it.
    #[error("it closed the connection")]
    Closed,
    /// Something took longer than it may.
    #[error("it was not ready for {0} in time")]
    Late(&'static str),
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// The bytes are not of this protocol, or not what such a socket may send.
    #[error("it sent {0}")]
    Bad(&'static str),
}

/// What a peer has sent.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Said {
    /// It has greeted.
    Greeting,
    /// A command, with what follows its name.
    Command(Bytes, Bytes),
    /// The frames of a message.
    Message(Vec<Bytes>),
}

/// The bytes that a peer has sent, as far as they are no message yet.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    /// What was read from its connection.
    pub(crate) buffer: BytesMut,
    greeted: bool,
    frames: Vec<Bytes>,
}

impl Inbox {
    /// The next message, if all of it is there.
    pub(crate) fn next(&mut self) -> Result<Option<Said>, ZmtpError> {
        if !self.greeted {
            return self.greeting();
        }
        while let Some((flags, bytes)) = self.frame()? {
            let more = flags & MORE != 0;
            if flags & COMMAND != 0 {
                if more || !self.frames.is_empty() {
                    return Err(ZmtpError::Bad("a command within a message"));
                }
                let (name, rest) = named(bytes)?;
                return Ok(Some(Said::Command(name, rest)));
            }
            self.frames.push(bytes);
            if !more {
                return Ok(Some(Said::Message(std::mem::take(&mut self.frames))));
            }
            if self.frames.len() >= FRAMES {
                return Err(ZmtpError::Bad("a message of too many frames"));
            }
        }
        Ok(None)
    }

    fn greeting(&mut self) -> Result<Option<Said>, ZmtpError> {
        // Other protocols are refused with their first byte.
        if self.buffer.first().is_some_and(|byte| *byte != 0xff)
            || self.buffer.get(9).is_some_and(|byte| byte & 1 == 0)
        {
            return Err(ZmtpError::Bad("what is no greeting of ZeroMQ"));
        }
        if self.buffer.get(10).is_some_and(|version| *version < 3) {
            return Err(ZmtpError::Bad("a version of ZeroMQ's protocol before 3.0"));
        }
        if self.buffer.len() < GREETING {
            return Ok(None);
        }
        let greeting = self.buffer.split_to(GREETING);
        if greeting[12..32] != *b"NULL\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0" {
            return Err(ZmtpError::Bad("a mechanism of authentication: only NULL is supported"));
        }
        self.greeted = true;
        Ok(Some(Said::Greeting))
    }

    /// The next frame, if all of it is there: its flags and contents.
    fn frame(&mut self) -> Result<Option<(u8, Bytes)>, ZmtpError> {
        let Some(&flags) = self.buffer.first() else { return Ok(None) };
        if flags & !(MORE | LONG | COMMAND) != 0 {
            return Err(ZmtpError::Bad("a frame with unknown flags"));
        }
        let (length, head) = if flags & LONG != 0 {
            let Some(length) = self.buffer.get(1..).and_then(|rest| rest.first_chunk()) else {
                return Ok(None);
            };
            (u64::from_be_bytes(*length), 9)
        } else {
            let Some(&length) = self.buffer.get(1) else { return Ok(None) };
            (u64::from(length), 2)
        };
        if length > FRAME as u64 {
            return Err(ZmtpError::Bad("a frame that is too long"));
        }
        let length = length as usize;
        if self.buffer.len() < head + length {
            return Ok(None);
        }
        self.buffer.advance(head);
        // A copy: a frame that is kept holds no buffer.
        let bytes = Bytes::copy_from_slice(&self.buffer[..length]);
        self.buffer.advance(length);
        Ok(Some((flags, bytes)))
    }
}

/// A command's name, and what follows it.
fn named(mut bytes: Bytes) -> Result<(Bytes, Bytes), ZmtpError> {
    const BAD: ZmtpError = ZmtpError::Bad("a command without a name");
    let length = usize::from(bytes.try_get_u8().map_err(|_| BAD)?);
    if length > bytes.len() {
        return Err(BAD);
    }
    let rest = bytes.split_off(length);
    Ok((bytes, rest))
}

/// The value of a property in the metadata of `READY`.
fn property<'m>(mut metadata: &'m [u8], wanted: &str) -> Option<&'m [u8]> {
    while let Some((&length, rest)) = metadata.split_first() {
        let (name, rest) = rest.split_at_checked(length.into())?;
        let (length, rest) = rest.split_first_chunk()?;
        let (value, rest) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
        if name.eq_ignore_ascii_case(wanted.as_bytes()) {
            return Some(value);
        }
        metadata = rest;
    }
    None
}

/// Checks the metadata of a peer's `READY`: its socket is one of these.
pub(crate) fn check_ready(metadata: &[u8], sockets: &[&str]) -> Result<(), ZmtpError> {
    match property(metadata, "Socket-Type") {
        Some(socket) if sockets.iter().any(|known| known.as_bytes() == socket) => Ok(()),
        _ => Err(ZmtpError::Bad("the name of a socket that does not fit this one")),
    }
}

/// The bytes of a server's greeting, and of `READY` for its socket.
pub(crate) fn greeting(socket: &str) -> Vec<u8> {
    let mut bytes = vec![0; GREETING];
    (bytes[0], bytes[9], bytes[10]) = (0xff, 0x7f, 3);
    bytes[12..16].copy_from_slice(b"NULL");
    let mut ready = b"\x05READY\x0bSocket-Type".to_vec();
    ready.extend((socket.len() as u32).to_be_bytes());
    ready.extend(socket.as_bytes());
    put(&mut bytes, COMMAND, &ready);
    bytes
}

/// Appends the answer to a `PING`, which has a time to live of two bytes and then what is sent back.
pub(crate) fn put_pong(to: &mut Vec<u8>, ping: &[u8]) {
    let context = ping.get(2..).unwrap_or_default();
    let pong: Vec<u8> =
        b"\x04PONG".iter().chain(&context[..context.len().min(16)]).copied().collect();
    put(to, COMMAND, &pong);
}

/// Appends a message.
pub(crate) fn put_message(to: &mut Vec<u8>, frames: &[&[u8]]) {
    for (at, frame) in frames.iter().enumerate() {
        put(to, if at + 1 < frames.len() { MORE } else { 0 }, frame);
    }
}

fn put(to: &mut Vec<u8>, flags: u8, bytes: &[u8]) {
    match u8::try_from(bytes.len()) {
        Ok(length) => to.extend([flags, length]),
        Err(_) => {
            to.push(flags | LONG);
            to.extend((bytes.len() as u64).to_be_bytes());
        }
    }
    to.extend(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What these bytes are, in pieces of this size.
    fn read(bytes: &[u8], piece: usize) -> Result<Vec<Said>, ZmtpError> {
        let (mut inbox, mut all) = (Inbox::default(), Vec::new());
        for piece in bytes.chunks(piece) {
            inbox.buffer.extend_from_slice(piece);
            while let Some(said) = inbox.next()? {
                all.push(said);
            }
        }
        Ok(all)
    }

    fn refused(bytes: &[u8], why: &str) {
        let bytes = [&greeting("SUB")[..], bytes].concat();
        let error = read(&bytes, 7).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }

    #[test]
    fn what_is_written_can_be_read_in_any_pieces() {
        let mut bytes = greeting("SUB");
        let long = vec![7; 300];
        put_message(&mut bytes, &[b"", b"abc", &long]);
        put_pong(&mut bytes, b"\0\x05hello");
        put_message(&mut bytes, &[b""]);
        for piece in [1, 2, 9, 64, 1000] {
            let all = read(&bytes, piece).unwrap();
            let [Said::Greeting, Said::Command(ready, metadata), rest @ ..] = &all[..] else {
                panic!("{all:?}")
            };
            assert_eq!(ready, "READY");
            check_ready(metadata, &["XSUB", "SUB"]).unwrap();
            check_ready(metadata, &["DEALER"]).unwrap_err();
            let message = |frames: &[&[u8]]| {
                Said::Message(frames.iter().map(|frame| Bytes::copy_from_slice(frame)).collect())
            };
            let pong = Said::Command("PONG".into(), "hello".into());
            assert_eq!(rest, [message(&[b"", b"abc", &long]), pong, message(&[b""])]);
        }
    }

    #[test]
    fn lengths_are_bounded_before_their_bytes_come() {
        refused(b"\x02\x7f\xff\xff\xff\xff\xff\xff\xff", "too long");
        refused(b"\x02\0\0\0\0\0\0\x04\x01", "too long");
        refused(&[1, 0].repeat(FRAMES), "too many frames");
        refused(b"\x08\0", "unknown flags");
        refused(b"\x04\x02\x09a", "without a name");
        refused(b"\x04\0", "without a name");
        refused(b"\x01\0\x04\x01\0", "within a message");
        for (at, byte, why) in
            [(0, b'G', "no greeting"), (10, 2, "before 3.0"), (12, b'C', "only NULL")]
        {
            let mut bytes = greeting("SUB");
            bytes[at] = byte;
            let error = read(&bytes, 64).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
        // Not even the whole head has to come.
        assert!(read(b"GET / HTTP/1.1\r\n", 1).is_err());
    }

    #[test]
    fn metadata_of_any_bytes_is_read_or_refused() {
        for bytes in [&b""[..], b"\x0bSocket-Type", b"\x0bSocket-Type\0\0\0\x09SUB", b"\xff"] {
            check_ready(bytes, &["SUB"]).unwrap_err();
        }
        check_ready(b"\x01a\0\0\0\0\x0bsocket-type\0\0\0\x03SUB", &["SUB"]).unwrap();
    }
}
