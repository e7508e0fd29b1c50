//! The greeting of two hosts of a model.
//!
//! The caller sends its program, model and the stage that it means. Then each side proves that it has the same key, by a
//! keyed hash over that and over two numbers that are used once; the key itself is not sent. The caller proves first: a
//! stranger at the port of a stage gets nothing from it with which keys could be tried elsewhere. Only greetings are
//! read before, in [`GREETING`] altogether, and of at most a few KiB. Without a key both sides have the same empty one.
//! What follows the greeting is neither secret nor signed.

use super::message::{Hello, Message, PROTOCOL, Role, Short};
use super::options::{StageKey, StageOptions};
use super::wire::{WireError, write_frame};
use crate::disk::digest;
use crate::error::Error;
use crate::file::ModelFile;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// How long a connection may take to be made, and then a whole greeting.
pub(super) const GREETING: Duration = Duration::from_secs(5);

/// How often something is said where nothing else is to be said.
pub(super) const BEAT: Duration = Duration::from_secs(1);

/// A side that says nothing for so long is lost.
pub(super) const SILENCE: Duration = Duration::from_secs(5);

/// Why a stage cannot be had.
#[derive(Debug, thiserror::Error)]
pub(super) enum GreetError {
    /// Nobody is there.
    #[error("it cannot be reached: {0}")]
    Unreachable(String),
    /// It is there and does not want to, which waiting alone does not change.
    #[error("it refused: {0}")]
    Refused(String),
    /// It serves another front now.
    #[error("it is busy: {0}")]
    Busy(String),
    #[error(transparent)]
    Wire(#[from] WireError),
}

/// How a refusal begins that ends by itself.
const BUSY: &str = "busy: ";

/// A number that is used once.
pub(super) fn nonce() -> Result<[u8; 32], WireError> {
    let mut nonce = [0; 32];
    let mut system = std::fs::File::open("/dev/urandom").map_err(WireError::Io)?;
    system.read_exact(&mut nonce).map_err(WireError::Io)?;
    Ok(nonce)
}

/// A host as others have to know it.
#[derive(Clone, Debug)]
pub(super) struct Identity {
    /// From 1 on.
    pub stage: u32,
    pub of: u32,
    pub model: [u8; 32],
    pub key: StageKey,
}

impl Identity {
    /// This host's.
    pub(super) fn of(file: &ModelFile, stage: &StageOptions) -> Result<Identity, Error> {
        Ok(Identity {
            stage: stage.number as u32,
            of: stage.of as u32,
            model: digest(file)?,
            key: stage.key.clone(),
        })
    }

    /// The proof that a side of this greeting has the key.
    fn proof(&self, who: &str, hello: &Hello, nonce: &[u8; 32]) -> blake3::Hash {
        let hello = Message::Hello(hello.clone()).frame();
        self.key.hash(&[who.as_bytes(), &hello, nonce])
    }

    /// Messages that may wait on a link: of all steps that may be under way, and a few others.
    pub(super) fn links(&self) -> usize {
        self.of as usize + 4
    }
}

/// A connection that a host makes to a stage.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    pub role: Role,
    /// The stage, from 1 on.
    pub stage: u32,
    /// The front's name of the session.
    pub session: u64,
}

/// Connects to a stage as this host.
pub(super) fn connect(address: &str, me: &Identity, call: Call) -> Result<TcpStream, GreetError> {
    let unreachable = |e: std::io::Error| GreetError::Unreachable(e.to_string());
    let mut stream = Err(GreetError::Unreachable("the name has no address".to_owned()));
    for address in address.to_socket_addrs().map_err(unreachable)? {
        stream = TcpStream::connect_timeout(&address, GREETING).map_err(unreachable);
        if stream.is_ok() {
            break;
        }
    }
    let stream = stream?;
    prepare(&stream).map_err(unreachable)?;
    let mut greeting = Greeting::of(&stream);
    let hello = hello(me, call)?;
    write_frame(&mut greeting, &Message::Hello(hello.clone()).frame())?;
    let Message::Welcome(nonce) = answer(&mut greeting)? else {
        return Err(WireError::Bad("something else than a greeting").into());
    };
    let proof = *me.proof("caller", &hello, &nonce).as_bytes();
    write_frame(&mut greeting, &Message::Proof(proof).frame())?;
    let Message::Accepted(proof) = answer(&mut greeting)? else {
        return Err(WireError::Bad("something else than a greeting").into());
    };
    // Hashes are compared in constant time.
    if me.proof("stage", &hello, &nonce) != blake3::Hash::from_bytes(proof) {
        return Err(GreetError::Refused("it does not have the stage key".to_owned()));
    }
    silence(&stream).map_err(WireError::from)?;
    Ok(stream)
}

/// The first words of this host to a stage.
pub(super) fn hello(me: &Identity, call: Call) -> Result<Hello, WireError> {
    Ok(Hello {
        protocol: PROTOCOL,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        role: call.role,
        stage: call.stage,
        of: me.of,
        model: me.model,
        session: call.session,
        nonce: nonce()?,
    })
}

fn answer(greeting: &mut Greeting<'_>) -> Result<Message, GreetError> {
    match Message::read(greeting, &Short)? {
        Message::Refused(why) => Err(match why.strip_prefix(BUSY) {
            Some(why) => GreetError::Busy(why.to_owned()),
            None => GreetError::Refused(why),
        }),
        message => Ok(message),
    }
}

/// Greets a caller; `accept` decides last, or returns with whom the host is busy.
pub(super) fn hear<T>(
    stream: &TcpStream,
    me: &Identity,
    accept: impl FnOnce(&Hello) -> Result<T, String>,
) -> Result<T, GreetError> {
    prepare(stream).map_err(WireError::from)?;
    let mut greeting = Greeting::of(stream);
    let accepted = greet(&mut greeting, me, accept)?;
    silence(stream).map_err(WireError::from)?;
    Ok(accepted)
}

fn greet<T>(
    stream: &mut (impl Read + Write),
    me: &Identity,
    accept: impl FnOnce(&Hello) -> Result<T, String>,
) -> Result<T, GreetError> {
    fn refuse<T>(stream: &mut impl Write, why: String) -> Result<T, GreetError> {
        // A caller that has gone need not have it.
        let _ = write_frame(stream, &Message::Refused(why.clone()).frame());
        Err(GreetError::Refused(why))
    }
    let Message::Hello(hello) = Message::read(stream, &Short)? else {
        return Err(WireError::Bad("something else than a greeting").into());
    };
    if hello.protocol != PROTOCOL {
        return refuse(stream, other_version(&hello));
    }
    let nonce = nonce()?;
    write_frame(stream, &Message::Welcome(nonce).frame())?;
    let Message::Proof(proof) = Message::read(stream, &Short)? else {
        return Err(WireError::Bad("something else than a proof").into());
    };
    // Hashes are compared in constant time.
    if me.proof("caller", &hello, &nonce) != blake3::Hash::from_bytes(proof) {
        return refuse(stream, "the caller has another stage key".to_owned());
    }
    let (stage, of) = (me.stage, me.of);
    if (hello.stage, hello.of) != (stage, of) {
        let (asked, among) = (hello.stage, hello.of);
        return refuse(stream, format!("this is stage {stage}/{of}, not {asked}/{among}"));
    }
    if hello.version != env!("CARGO_PKG_VERSION") {
        return refuse(stream, other_version(&hello));
    }
    if hello.model != me.model {
        return refuse(stream, "this stage has another model file".to_owned());
    }
    let accepted = match accept(&hello) {
        Ok(accepted) => accepted,
        Err(why) => return refuse(stream, format!("{BUSY}{why}")),
    };
    let proof = *me.proof("stage", &hello, &nonce).as_bytes();
    write_frame(stream, &Message::Accepted(proof).frame())?;
    Ok(accepted)
}

fn other_version(hello: &Hello) -> String {
    let (theirs, mine) = (&hello.version, env!("CARGO_PKG_VERSION"));
    format!("this stage runs arclight {mine}, and you {theirs}: use one version")
}

fn prepare(stream: &TcpStream) -> io::Result<()> {
    // Rows of one token are small, and the next stage waits for them.
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(SILENCE))
}

/// Has reads fail after a silence, from the greeting on.
fn silence(stream: &TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(SILENCE))
}

/// A connection that has to greet within a time, however slowly single bytes come.
struct Greeting<'s> {
    stream: &'s TcpStream,
    end: Instant,
}

impl Greeting<'_> {
    fn of(stream: &TcpStream) -> Greeting<'_> {
        Greeting { stream, end: Instant::now() + GREETING }
    }
}

impl Read for Greeting<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        self.stream.read(bytes)
    }
}

impl Write for Greeting<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}
