//! What the hosts of a model say to each other.

use super::order::Told;
use super::wire::{Put, Take, WireError, read_body, read_floats, read_head};
use crate::options::KvSize;
use graph::{KvType, KvTypes};
use std::io::Read;

/// Counts changes of the protocol.
pub(super) const PROTOCOL: u32 = 2;

/// How every connection begins.
pub(super) const MAGIC: &[u8; 16] = b"arclight stages\n";

/// What a frame may have before both sides know each other, and of all that is no step and no rows.
const SHORT: usize = 4096;

/// Who connects, and to what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// The front, which gives orders.
    Front,
    /// The stage before, which sends rows.
    Before,
}

/// The first words of who connects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    pub protocol: u32,
    /// Of the program.
    pub version: String,
    pub role: Role,
    /// Which stage it wants to speak to, from 1 on, and of how many.
    pub stage: u32,
    pub of: u32,
    /// The file's digest.
    pub model: [u8; 32],
    /// Of the front, which both of its ends know.
    pub session: u64,
    /// Used once.
    pub nonce: [u8; 32],
}

/// How large the cache is, which all stages have to agree on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sizes {
    pub kv: KvTypes,
    /// As large as fits, if nothing is said.
    pub context: Option<usize>,
    pub kv_size: KvSize,
    pub sequences: usize,
    pub step_tokens: usize,
}

/// A message behind the greetings.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Message {
    Hello(Hello),
    /// The answer to it: a nonce.
    Welcome([u8; 32]),
    /// Of the caller, that it has the key.
    Proof([u8; 32]),
    /// The same of the stage.
    Accepted([u8; 32]),
    /// Why not.
    Refused(String),
    /// How much of this would fit?
    Ask(Sizes),
    /// So many tokens of a sequence, and of all.
    Fits {
        context: usize,
        tokens: usize,
    },
    /// Load the layers, and send rows there; nowhere: to the front.
    Load {
        sizes: Sizes,
        layers: (u32, u32),
        next: Option<String>,
    },
    /// The pages of each class that there are.
    Ready(Vec<u32>),
    Step(Told),
    /// Rows of the residual stream of a step.
    Rows {
        number: u64,
        rows: Vec<f32>,
    },
    /// The stage cannot go on.
    Fault(String),
    /// A sign of life.
    Ping,
}

/// What may come on a connection; asked with the head of a message, before memory is taken for it.
pub(super) trait Bounds {
    /// Bytes of a step.
    fn step(&self) -> Result<usize, WireError> {
        Err(WireError::Unasked("a step, which has no place here"))
    }

    /// Allows rows of this step and number of bytes.
    fn rows(&self, _number: u64, _bytes: usize) -> Result<(), WireError> {
        Err(WireError::Unasked("rows, which have no place here"))
    }
}

/// Neither steps nor rows.
pub(super) struct Short;

impl Bounds for Short {}

mod kind {
    pub(super) const HELLO: u8 = 1;
    pub(super) const WELCOME: u8 = 2;
    pub(super) const PROOF: u8 = 3;
    pub(super) const ACCEPTED: u8 = 4;
    pub(super) const REFUSED: u8 = 5;
    pub(super) const ASK: u8 = 6;
    pub(super) const FITS: u8 = 7;
    pub(super) const LOAD: u8 = 8;
    pub(super) const READY: u8 = 9;
    pub(super) const STEP: u8 = 10;
    pub(super) const ROWS: u8 = 11;
    pub(super) const FAULT: u8 = 12;
    pub(super) const PING: u8 = 13;
}

const KV_TYPES: [KvType; 5] = [KvType::F16, KvType::Bf16, KvType::F32, KvType::Q8_0, KvType::Q4_0];

fn kv_type(take: &mut Take<'_>) -> Result<KvType, WireError> {
    let name = take.text()?;
    let known = KV_TYPES.into_iter().find(|known| known.to_string() == name);
    known.ok_or(WireError::Bad("an unknown type of keys and values"))
}

impl Sizes {
    fn put(&self, put: &mut Put) {
        put.text(&self.kv.keys.to_string())
            .text(&self.kv.values.to_string())
            .u64(self.context.unwrap_or(0) as u64);
        match self.kv_size {
            KvSize::Each => put.u8(0).u64(0),
            KvSize::Tokens(tokens) => put.u8(1).u64(tokens as u64),
            KvSize::Fit => put.u8(2).u64(0),
        };
        put.u64(self.sequences as u64).u64(self.step_tokens as u64);
    }

    fn take(take: &mut Take<'_>) -> Result<Sizes, WireError> {
        let kv = KvTypes { keys: kv_type(take)?, values: kv_type(take)? };
        let context = Some(take.size()?).filter(|context| *context > 0);
        let kv_size = match (take.u8()?, take.size()?) {
            (0, _) => KvSize::Each,
            (1, tokens) => KvSize::Tokens(tokens),
            (2, _) => KvSize::Fit,
            _ => return Err(WireError::Bad("an unknown size of the cache")),
        };
        let sizes =
            Sizes { kv, context, kv_size, sequences: take.size()?, step_tokens: take.size()? };
        // Sums of these must not overflow; no machine holds so many.
        let tokens = if let KvSize::Tokens(tokens) = kv_size { tokens } else { 0 };
        let all = [sizes.context.unwrap_or(0), tokens, sizes.sequences, sizes.step_tokens];
        match all.into_iter().any(|size| size > 1 << 31) || sizes.sequences > 1 << 20 {
            true => Err(WireError::Bad("a size that is too large")),
            false => Ok(sizes),
        }
    }
}

impl Message {
    /// The frame of a message.
    pub(super) fn frame(&self) -> Vec<u8> {
        match self {
            Message::Hello(hello) => {
                let mut put = Put::new(kind::HELLO);
                put.bytes(MAGIC).u32(hello.protocol).text(&hello.version);
                put.u8(u8::from(hello.role == Role::Before)).u32(hello.stage).u32(hello.of);
                put.bytes(&hello.model).u64(hello.session).bytes(&hello.nonce);
                put.frame()
            }
            Message::Welcome(nonce) => digest(kind::WELCOME, nonce),
            Message::Proof(proof) => digest(kind::PROOF, proof),
            Message::Accepted(proof) => digest(kind::ACCEPTED, proof),
            Message::Refused(why) => text(kind::REFUSED, why),
            Message::Ask(sizes) => {
                let mut put = Put::new(kind::ASK);
                sizes.put(&mut put);
                put.frame()
            }
            Message::Fits { context, tokens } => {
                let mut put = Put::new(kind::FITS);
                put.u64(*context as u64).u64(*tokens as u64);
                put.frame()
            }
            Message::Load { sizes, layers, next } => {
                let mut put = Put::new(kind::LOAD);
                sizes.put(&mut put);
                put.u32(layers.0).u32(layers.1).text(next.as_deref().unwrap_or_default());
                put.frame()
            }
            Message::Ready(pages) => {
                let mut put = Put::new(kind::READY);
                put.list(pages.iter().copied());
                put.frame()
            }
            Message::Step(order) => step_frame(order),
            Message::Rows { number, rows } => rows_frame(*number, [&**rows].into_iter()),
            Message::Fault(why) => text(kind::FAULT, why),
            Message::Ping => Put::new(kind::PING).frame(),
        }
    }

    /// Reads a message that is within bounds.
    pub(super) fn read(from: &mut impl Read, bounds: &impl Bounds) -> Result<Message, WireError> {
        let (kind, length) = read_head(from)?;
        let most = match kind {
            kind::ROWS => return Message::rows(from, length, bounds),
            kind::STEP => bounds.step()?,
            kind::HELLO..=kind::READY | kind::FAULT..=kind::PING => SHORT,
            _ => return Err(WireError::Bad("an unknown kind of message")),
        };
        Message::of(kind, &read_body(from, length, most)?)
    }

    fn rows(
        from: &mut impl Read,
        length: usize,
        bounds: &impl Bounds,
    ) -> Result<Message, WireError> {
        const NUMBER: usize = size_of::<u64>();
        let number = Take(&read_body(from, length.min(NUMBER), NUMBER)?).u64()?;
        let bytes = length - NUMBER;
        if !bytes.is_multiple_of(size_of::<f32>()) {
            return Err(WireError::Bad("a row with a part of a number"));
        }
        bounds.rows(number, bytes)?;
        Ok(Message::Rows { number, rows: read_floats(from, bytes / size_of::<f32>())? })
    }

    fn of(kind: u8, bytes: &[u8]) -> Result<Message, WireError> {
        let mut take = Take(bytes);
        let message = match kind {
            kind::HELLO => {
                if take.array::<16>()? != *MAGIC {
                    return Err(WireError::Bad("another program's greeting"));
                }
                Message::Hello(Hello {
                    protocol: take.u32()?,
                    version: take.text()?,
                    role: if take.u8()? == 0 { Role::Front } else { Role::Before },
                    stage: take.u32()?,
                    of: take.u32()?,
                    model: take.array()?,
                    session: take.u64()?,
                    nonce: take.array()?,
                })
            }
            kind::WELCOME => Message::Welcome(take.array()?),
            kind::PROOF => Message::Proof(take.array()?),
            kind::ACCEPTED => Message::Accepted(take.array()?),
            kind::REFUSED => Message::Refused(take.text()?),
            kind::ASK => Message::Ask(Sizes::take(&mut take)?),
            kind::FITS => Message::Fits { context: take.size()?, tokens: take.size()? },
            kind::LOAD => Message::Load {
                sizes: Sizes::take(&mut take)?,
                layers: (take.u32()?, take.u32()?),
                next: Some(take.text()?).filter(|next| !next.is_empty()),
            },
            kind::READY => Message::Ready(take.list()?),
            kind::STEP => Message::Step(Told::take(&mut take)?),
            kind::FAULT => Message::Fault(take.text()?),
            kind::PING => Message::Ping,
            _ => return Err(WireError::Bad("an unknown kind of message")),
        };
        take.end()?;
        Ok(message)
    }
}

/// The frame of a step.
pub(super) fn step_frame(order: &Told) -> Vec<u8> {
    let mut put = Put::new(kind::STEP);
    order.put(&mut put);
    put.frame()
}

/// The frame of rows, without a copy of them.
pub(super) fn rows_frame<'f>(number: u64, rows: impl Iterator<Item = &'f [f32]>) -> Vec<u8> {
    let mut put = Put::new(kind::ROWS);
    put.u64(number).floats(rows);
    put.frame()
}

/// A message of 32 bytes.
fn digest(kind: u8, bytes: &[u8; 32]) -> Vec<u8> {
    let mut put = Put::new(kind);
    put.bytes(bytes);
    put.frame()
}

/// A message that is a text, of which only the beginning fits.
fn text(kind: u8, text: &str) -> Vec<u8> {
    let end = (0..=text.len().min(SHORT - 64)).rev().find(|end| text.is_char_boundary(*end));
    let mut put = Put::new(kind);
    put.text(&text[..end.unwrap_or(0)]);
    put.frame()
}

/// A message of each kind, one after the other, for tests.
#[cfg(test)]
pub(super) fn every() -> Vec<u8> {
    tests::all().iter().flat_map(Message::frame).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::Rng;

    use crate::stages::fuzz::{Any, read_any};

    fn sizes() -> Sizes {
        Sizes {
            kv: KvTypes { keys: KvType::Q8_0, values: KvType::Q4_0 },
            context: Some(4096),
            kv_size: KvSize::Tokens(9000),
            sequences: 8,
            step_tokens: 512,
        }
    }

    pub(super) fn all() -> Vec<Message> {
        let hello = Hello {
            protocol: PROTOCOL,
            version: "0.1.0".to_owned(),
            role: Role::Before,
            stage: 2,
            of: 3,
            model: [9; 32],
            session: u64::MAX,
            nonce: [7; 32],
        };
        vec![
            Message::Hello(hello),
            Message::Welcome([1; 32]),
            Message::Proof([3; 32]),
            Message::Accepted([2; 32]),
            Message::Refused("this is another stage".to_owned()),
            Message::Ask(Sizes { context: None, kv_size: KvSize::Fit, ..sizes() }),
            Message::Fits { context: 4096, tokens: 1 << 20 },
            Message::Load { sizes: sizes(), layers: (2, 9), next: Some("b:7001".to_owned()) },
            Message::Load { sizes: sizes(), layers: (2, 9), next: None },
            Message::Ready(vec![1, 2]),
            Message::Step(Told::of_test()),
            Message::Rows { number: 3, rows: vec![1.5, -0.0, f32::MIN_POSITIVE] },
            Message::Fault("no room".to_owned()),
            Message::Ping,
        ]
    }

    #[test]
    fn messages_come_as_they_were_sent() {
        for message in all() {
            let frame = message.frame();
            let read = Message::read(&mut &*frame, &Any).unwrap();
            assert_eq!(read, message);
            // Zeros have signs.
            assert_eq!(read.frame(), frame);
        }
        let long = Message::Refused("ü".repeat(9000)).frame();
        assert!(matches!(Message::read(&mut &*long, &Any), Ok(Message::Refused(_))));
    }

    #[test]
    fn any_bytes_are_a_message_or_an_error() {
        let mut rng = Rng::new(5);
        let frames: Vec<Vec<u8>> = all().iter().map(Message::frame).collect();
        for round in 0..20_000 {
            let mut frame = frames[round % frames.len()].clone();
            for _ in 0..1 + rng.below(4) {
                let at = rng.below(frame.len());
                match rng.below(3) {
                    0 => frame[at] = rng.bits() as u8,
                    1 => frame[at] ^= 1 << rng.below(8),
                    _ => frame.truncate(at.max(1)),
                }
            }
            let _ = Message::of(frame[0], &frame[1..]);
            read_any(&[&*frame, &frames[round / 7 % frames.len()]].concat());
        }
    }

    #[test]
    fn steps_and_rows_are_refused_before_they_are_expected() {
        for message in [Message::Step(Told::of_test()), Message::Rows { number: 1, rows: vec![] }] {
            let read = Message::read(&mut &*message.frame(), &Short);
            assert!(matches!(read, Err(WireError::Unasked(_))), "{read:?}");
        }
    }
}
