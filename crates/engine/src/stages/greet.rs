//! How two hosts of a model come to know each other.
//!
//! Who connects says which program, model and stage it means. Both prove that they have the same key, by a keyed hash
//! over that and over two numbers that are used once, without sending it. Nothing but greetings is read before.
//! Without a key both have the same empty one. What follows is neither secret nor signed.

use super::message::{Bounds, Hello, Message, PROTOCOL, Role};
use super::wire::{WireError, write_frame};
use std::fmt;
use std::io::Read;
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

/// How long a connection, and each word of a greeting, may take.
pub(super) const GREETING: Duration = Duration::from_secs(5);

/// How often something is said where nothing else is to be said.
pub(super) const BEAT: Duration = Duration::from_secs(1);

/// A side that says nothing for so long is lost.
pub(super) const SILENCE: Duration = Duration::from_secs(5);

/// A secret that the hosts of a model share.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct StageKey([u8; 32]);

impl StageKey {
    /// Made of any bytes, spaces at their end not counted.
    pub fn new(secret: &[u8]) -> StageKey {
        StageKey(blake3::derive_key("arclight stage key 1", secret.trim_ascii_end()))
    }

    fn proof(&self, who: &str, hello: &Hello, nonce: &[u8; 32]) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(who.as_bytes());
        hasher.update(&Message::Hello(hello.clone()).frame());
        hasher.update(nonce);
        hasher.finalize()
    }
}

impl fmt::Debug for StageKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StageKey")
    }
}

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

/// Connects to a stage as this host.
pub(super) fn connect(
    address: &str,
    me: &Identity,
    (role, stage, session): (Role, u32, u64),
) -> Result<TcpStream, GreetError> {
    let unreachable = |e: std::io::Error| GreetError::Unreachable(e.to_string());
    let mut stream = Err(GreetError::Unreachable("the name has no address".to_owned()));
    for address in address.to_socket_addrs().map_err(unreachable)? {
        stream = TcpStream::connect_timeout(&address, GREETING).map_err(unreachable);
        if stream.is_ok() {
            break;
        }
    }
    let mut stream = stream?;
    prepare(&stream).map_err(unreachable)?;
    let hello = Hello {
        protocol: PROTOCOL,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        role,
        stage,
        of: me.of,
        model: me.model,
        session,
        nonce: nonce()?,
    };
    write_frame(&mut stream, &Message::Hello(hello.clone()).frame())?;
    let (nonce, proof) = match answer(&mut stream)? {
        Message::Welcome { nonce, proof } => (nonce, proof),
        _ => return Err(WireError::Bad("something else than a greeting").into()),
    };
    if me.key.proof("stage", &hello, &nonce) != blake3::Hash::from_bytes(proof) {
        return Err(GreetError::Refused("it has another stage key".to_owned()));
    }
    let proof = *me.key.proof("caller", &hello, &nonce).as_bytes();
    write_frame(&mut stream, &Message::Proof(proof).frame())?;
    match answer(&mut stream)? {
        Message::Accepted => Ok(stream),
        _ => Err(WireError::Bad("something else than a greeting").into()),
    }
}

fn answer(stream: &mut TcpStream) -> Result<Message, GreetError> {
    match Message::read(stream, Bounds::GREETING)? {
        Message::Refused(why) => Err(match why.strip_prefix(BUSY) {
            Some(why) => GreetError::Busy(why.to_owned()),
            None => GreetError::Refused(why),
        }),
        message => Ok(message),
    }
}

/// Hears who has connected to this host; `accept` has the last word, or says with whom the host is busy.
pub(super) fn hear(
    stream: &mut TcpStream,
    me: &Identity,
    accept: impl FnOnce(&Hello) -> Result<(), String>,
) -> Result<Hello, GreetError> {
    prepare(stream).map_err(WireError::from)?;
    let refuse = |stream: &mut TcpStream, why: String| {
        // Who has gone need not hear it.
        let _ = write_frame(stream, &Message::Refused(why.clone()).frame());
        Err(GreetError::Refused(why))
    };
    let Message::Hello(hello) = Message::read(stream, Bounds::GREETING)? else {
        return Err(WireError::Bad("something else than a greeting").into());
    };
    if hello.protocol != PROTOCOL {
        return refuse(stream, other_version(&hello));
    }
    let nonce = nonce()?;
    let proof = *me.key.proof("stage", &hello, &nonce).as_bytes();
    write_frame(stream, &Message::Welcome { nonce, proof }.frame())?;
    let Message::Proof(proof) = Message::read(stream, Bounds::GREETING)? else {
        return Err(WireError::Bad("something else than a proof").into());
    };
    if me.key.proof("caller", &hello, &nonce) != blake3::Hash::from_bytes(proof) {
        return refuse(stream, "you have another stage key".to_owned());
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
    if let Err(why) = accept(&hello) {
        return refuse(stream, format!("{BUSY}{why}"));
    }
    write_frame(stream, &Message::Accepted.frame())?;
    Ok(hello)
}

fn other_version(hello: &Hello) -> String {
    let (theirs, mine) = (&hello.version, env!("CARGO_PKG_VERSION"));
    format!("this stage runs arclight {mine}, and you {theirs}: use one version")
}

fn prepare(stream: &TcpStream) -> std::io::Result<()> {
    // Rows of one token are small, and the next stage waits for them.
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(GREETING))?;
    stream.set_write_timeout(Some(SILENCE))
}
