//! Sockets for cache events: peers that misbehave next to one that gets every message.

use super::events::CachePublisher;
use super::kept::{Change, Most};
use super::sockets::Bounds;
use super::zmtp::{Inbox, Said, greeting, put_message};
use bytes::Bytes;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use zeromq::{DealerSocket, Socket, SocketRecv, SocketSend, SubSocket, ZmqMessage};

const MOST: Most = Most { messages: 1000, bytes: 64 << 20 };

const BOUNDS: Bounds = Bounds {
    connections: 8,
    of_address: 8,
    greeting: Duration::from_secs(600),
    send: Duration::from_secs(600),
    replays: 2,
    replay: Duration::from_secs(600),
};

async fn publisher(most: Most, bounds: Bounds) -> CachePublisher {
    let (any, pod) = ("tcp://127.0.0.1:0", "pod".to_owned());
    CachePublisher::within((most, bounds), any, Some(any), pod).await.unwrap()
}

fn push(publisher: &CachePublisher, payload: usize) {
    let (topic, payload) = ("kv@pod@model".into(), vec![7; payload].into());
    publisher.kept().push(Change { topic, payload });
}

fn host(endpoint: &str) -> &str {
    endpoint.strip_prefix("tcp://").unwrap()
}

/// A subscriber of another implementation, which is there for certain: it has got a message.
async fn subscriber(publisher: &CachePublisher) -> (SubSocket, u64) {
    let mut socket = SubSocket::new();
    socket.connect(publisher.endpoint()).await.unwrap();
    socket.subscribe("kv@").await.unwrap();
    loop {
        push(publisher, 1);
        if let Ok(message) = tokio::time::timeout(Duration::from_millis(50), socket.recv()).await {
            // The others that were published until then come too.
            let mut last = number(&message.unwrap());
            while last + 1 < *publisher.kept().news().borrow() {
                last = number(&socket.recv().await.unwrap());
            }
            return (socket, last + 1);
        }
    }
}

fn number(message: &ZmqMessage) -> u64 {
    let frames: Vec<&Bytes> = message.iter().collect();
    u64::from_be_bytes(frames[frames.len() - 2].as_ref().try_into().unwrap())
}

/// A peer of bytes.
struct Raw {
    stream: TcpStream,
    inbox: Inbox,
}

impl Raw {
    async fn connect(endpoint: &str, bytes: &[u8]) -> Raw {
        let mut stream = TcpStream::connect(host(endpoint)).await.unwrap();
        // It may be closed at once.
        let _ = stream.write_all(bytes).await;
        Raw { stream, inbox: Inbox::default() }
    }

    /// What the server says next, until it closes the connection.
    async fn next(&mut self) -> Option<Said> {
        loop {
            if let Some(said) = self.inbox.next().unwrap() {
                return Some(said);
            }
            let read = self.stream.read_buf(&mut self.inbox.buffer).await;
            if read.is_err() || matches!(read, Ok(0)) {
                return None;
            }
        }
    }

    /// The bytes that come until the server closes the connection.
    async fn drain(&mut self) -> u64 {
        let mut bytes = 0;
        loop {
            self.inbox.buffer.clear();
            match self.stream.read_buf(&mut self.inbox.buffer).await {
                Ok(0) | Err(_) => return bytes,
                Ok(read) => bytes += read as u64,
            }
        }
    }

    /// Numbers of messages, up to the one that is `last`.
    async fn numbers(&mut self, last: u64) -> Vec<u64> {
        let mut numbers = Vec::new();
        while numbers.last() != Some(&last) {
            if let Said::Message(frames) = self.next().await.expect("it is served") {
                numbers.push(u64::from_be_bytes(frames[1].as_ref().try_into().unwrap()));
            }
        }
        numbers
    }
}

fn subscribed() -> Vec<u8> {
    let mut bytes = greeting("SUB");
    put_message(&mut bytes, &[b"\x01kv@"]);
    bytes
}

fn asked(from: u64) -> Vec<u8> {
    let mut bytes = greeting("DEALER");
    put_message(&mut bytes, &[b"", &from.to_be_bytes()]);
    bytes
}

#[tokio::test]
async fn peers_that_misbehave_hold_nobody_up() {
    let endless = |frame: &[u8]| [&greeting("SUB")[..], frame].concat();
    // What a peer sends; it reads nothing. To the socket of messages, or that of questions.
    let table: [(&str, bool, Vec<u8>); 9] = [
        ("a question, and the answer is not read", true, asked(0)),
        ("a subscriber that does not read", false, subscribed()),
        ("nothing to the one", false, vec![]),
        ("nothing to the other", true, vec![]),
        ("half a greeting", true, greeting("REQ")[..20].to_vec()),
        ("another protocol", false, b"GET / HTTP/1.1\r\n\r\n".to_vec()),
        ("a frame of any length", false, endless(&[2, 0x3f, 255, 255, 255, 255, 255, 255, 255])),
        ("a message of any length", false, endless(&[1, 0].repeat(10_000))),
        ("no number", true, [&greeting("REQ")[..], &[0, 3, 1, 2, 3]].concat()),
    ];
    for (what, question, bytes) in table {
        let publisher = publisher(MOST, BOUNDS).await;
        // More than the buffers of a connection hold.
        (0..500).for_each(|_| push(&publisher, 64 << 10));
        let (mut good, begin) = subscriber(&publisher).await;
        let at = if question { publisher.replay().unwrap() } else { publisher.endpoint() };
        let mut peers = Vec::new();
        for _ in 0..4 {
            peers.push(Raw::connect(at, &bytes).await);
        }
        for due in begin..begin + 200 {
            push(&publisher, 64 << 10);
            assert_eq!(number(&good.recv().await.unwrap()), due, "{what}");
        }
        drop(peers);
    }
}

#[tokio::test]
async fn a_slow_subscriber_finds_a_gap_and_asks_for_the_rest() {
    let publisher = publisher(Most { messages: 8, ..MOST }, BOUNDS).await;
    let mut slow = Raw::connect(publisher.endpoint(), &subscribed()).await;
    // One that it gets: it has subscribed.
    push(&publisher, 1);
    let first = loop {
        let next = tokio::time::timeout(Duration::from_millis(50), slow.next()).await;
        match next {
            Ok(Some(Said::Message(frames))) => break frames,
            Ok(said) => assert!(said.is_some(), "it was closed"),
            Err(_) => push(&publisher, 1),
        }
    };
    assert_eq!(first[0], "kv@pod@model");
    let last = *publisher.kept().news().borrow() + 99;
    // Nothing else runs meanwhile.
    (0..100).for_each(|_| push(&publisher, 10));
    let numbers = slow.numbers(last).await;
    let kept: Vec<u64> = (last - 7..=last).collect();
    assert!(numbers.ends_with(&kept) && !numbers.contains(&(last - 8)), "{numbers:?}");
    // By another implementation: those that are kept, and the end.
    let mut asker = DealerSocket::new();
    asker.connect(publisher.replay().unwrap()).await.unwrap();
    for from in [0, last - 2, u64::MAX - 1] {
        let mut message = ZmqMessage::from(Bytes::new());
        message.push_back(Bytes::copy_from_slice(&from.to_be_bytes()));
        asker.send(message).await.unwrap();
        let mut numbers = Vec::new();
        while numbers.last() != Some(&u64::MAX) {
            numbers.push(number(&asker.recv().await.unwrap()));
        }
        let mut want: Vec<u64> = kept.iter().copied().filter(|n| *n >= from).collect();
        want.push(u64::MAX);
        assert_eq!(numbers, want);
    }
}

#[tokio::test]
async fn peers_that_take_too_long_are_left() {
    let soon = Duration::from_millis(50);
    let bounds = Bounds { greeting: soon, send: soon, replay: soon, ..BOUNDS };
    let publisher = publisher(MOST, bounds).await;
    (0..500).for_each(|_| push(&publisher, 64 << 10));
    let replay = publisher.replay().unwrap().to_owned();
    let (silent, idle) = (Vec::new(), greeting("REQ"));
    for (at, bytes) in [(publisher.endpoint(), &silent), (&*replay, &silent), (&*replay, &idle)] {
        let mut peer = Raw::connect(at, bytes).await;
        while peer.next().await.is_some() {}
    }
    // Those that do not read are closed before all was sent.
    let mut asker = Raw::connect(&replay, &asked(0)).await;
    let mut slow = Raw::connect(publisher.endpoint(), &subscribed()).await;
    while publisher.peers() > 0 {
        push(&publisher, 64 << 10);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let pushed = *publisher.kept().news().borrow() << 16;
    let read = asker.drain().await + slow.drain().await;
    assert!(read < pushed, "{read} of {pushed} bytes");
}

#[tokio::test]
async fn connections_are_bounded_by_socket_and_address() {
    for bounds in [Bounds { connections: 3, ..BOUNDS }, Bounds { of_address: 3, ..BOUNDS }] {
        let publisher = publisher(MOST, bounds).await;
        let mut peers = Vec::new();
        for _ in 0..3 {
            let mut peer = Raw::connect(publisher.endpoint(), &greeting("SUB")).await;
            assert_eq!(peer.next().await, Some(Said::Greeting));
            peers.push(peer);
        }
        let mut other = Raw::connect(publisher.endpoint(), &greeting("SUB")).await;
        assert_eq!(other.next().await, None, "one too many");
        // The other socket has places of its own.
        let mut other = Raw::connect(publisher.replay().unwrap(), &greeting("REQ")).await;
        assert_eq!(other.next().await, Some(Said::Greeting));
        peers.pop();
        loop {
            let mut again = Raw::connect(publisher.endpoint(), &greeting("SUB")).await;
            if again.next().await.is_some() {
                break;
            }
        }
    }
}

#[tokio::test]
async fn endpoints_that_cannot_be_are_refused() {
    for endpoint in ["5557", "ipc:///tmp/events", "tcp://*", "tcp://*:x", "tcp://127.0.0.1"] {
        let opened = CachePublisher::open(endpoint, None, "pod".to_owned()).await;
        let error = opened.map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(endpoint), "{error}");
    }
}

#[test]
fn any_bytes_of_a_peer_are_taken_or_refused() {
    let mut rng = testkit::Rng::new(4);
    let mut whole = subscribed();
    put_message(&mut whole, &[b"\0kv@"]);
    put_message(&mut whole, &[b"", &7u64.to_be_bytes()]);
    whole.extend(b"\x04\x0b\x04PING\0\0abcd");
    for round in 0..5000 {
        let mut bytes = whole.clone();
        for _ in 0..rng.below(4) {
            let at = rng.below(bytes.len());
            bytes[at] = rng.bits() as u8;
        }
        super::fuzz_event_peer(round % 2 == 0, 1 + rng.below(99), &bytes);
    }
}
