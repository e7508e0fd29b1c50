//! Attacks on a stage: what a peer may not send ends its connection, is not kept, and changes no answer.

use super::fuzz::{Any, FuzzStage, SIZES};
use super::greet::{self, Call, GREETING, GreetError, Identity};
use super::link::Link;
use super::message::{Message, Role, rows_frame, step_frame};
use super::options::{StageKey, StageOptions};
use super::order::{Order, Part, Told};
use super::port::GREETINGS;
use super::server::{StageServer, StageStop};
use super::status::{StageStatus, State};
use super::tables::Tables;
use super::wire::WireError;
use crate::file::ModelFile;
use crate::options::LoadOptions;
use graph::{PageCopy, PageId, PageTable};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use testkit::{Rng, TinyModel};

/// Which of the stages is attacked: it has one before and one behind.
const STAGE: u32 = 2;

struct Stage {
    address: String,
    layers: (u32, u32),
    width: usize,
    me: Identity,
    status: Arc<StageStatus>,
    stop: StageStop,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.stop.stop();
        self.thread.take().into_iter().for_each(|thread| _ = thread.join());
    }
}

fn options(key: StageKey) -> LoadOptions {
    let stage = StageOptions { number: 2, of: 3, peers: Vec::new(), key, without_key: false };
    LoadOptions { no_pin: true, threads: Some(1), stage: Some(stage), ..LoadOptions::default() }
}

impl Stage {
    fn run(key: &str) -> Stage {
        let model = TinyModel { layers: 3, ..TinyModel::qwen3(gguf::TensorType::Q4_0) };
        let file = Arc::new(ModelFile::from_bytes("tiny", model.gguf()));
        let options = options(StageKey::new(key.as_bytes()));
        let me = Identity::of(&file, options.stage.as_ref().unwrap()).unwrap();
        let width = models::Hparams::read(&file.gguf().unwrap()).unwrap().hidden;
        let server = StageServer::bind("127.0.0.1:0", &file, &options).unwrap();
        let (address, status, stop) =
            (server.address().to_string(), server.status(), server.stopper());
        let layers = (server.layers().start as u32, server.layers().end as u32);
        let thread = Some(thread::spawn(move || server.run()));
        Stage { address, layers, width, me, status, stop, thread }
    }

    fn connect(&self, role: Role, session: u64) -> Result<TcpStream, GreetError> {
        greet::connect(&self.address, &self.me, Call { role, stage: STAGE, session })
    }

    /// A front and a stage before that are in session, with loaded layers.
    fn session(&self, name: u64) -> Session<'_> {
        let mut session = self.begin(name);
        session.front.send(Message::Load { sizes: SIZES, layers: self.layers, next: None }.frame());
        assert!(matches!(session.next(), Ok(Message::Ready(_))));
        session
    }

    fn begin(&self, name: u64) -> Session<'_> {
        // The last one may be on its way out.
        let front = loop {
            match self.connect(Role::Front, name) {
                Ok(front) => break front,
                Err(GreetError::Busy(_)) => thread::sleep(Duration::from_millis(5)),
                Err(e) => panic!("{e}"),
            }
        };
        let before = self.connect(Role::Before, name).unwrap();
        let tables = Tables::default();
        Session { stage: self, front: Peer::new(front), before: Peer::new(before), tables, next: 0 }
    }
}

/// A connection of a peer that gives signs of life.
struct Peer {
    stream: TcpStream,
    link: Link,
}

impl Peer {
    fn new(stream: TcpStream) -> Peer {
        let link = Link::new(stream.try_clone().unwrap(), 1000, |_| ()).unwrap();
        Peer { stream, link }
    }

    fn send(&self, frame: Vec<u8>) {
        self.link.send(frame).unwrap();
    }
}

struct Session<'s> {
    stage: &'s Stage,
    front: Peer,
    before: Peer,
    tables: Tables,
    /// The number of the next step.
    next: u64,
}

impl Session<'_> {
    /// What the stage says to the front, but signs of life.
    fn next(&mut self) -> Result<Message, WireError> {
        loop {
            match Message::read(&mut self.front.stream, &Any) {
                Ok(Message::Ping) => {}
                other => return other,
            }
        }
    }

    /// Why the stage ends the session.
    fn fault(&mut self) -> String {
        loop {
            match self.next() {
                Ok(Message::Fault(why)) => return why,
                Ok(Message::Rows { .. }) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// An order with the next number: some tokens at the beginning of a sequence.
    fn order(&self, tokens: u32) -> Order {
        let tables = vec![PageTable { first: 0, pages: vec![PageId(0)] }];
        let tokens = (1..=tokens).collect();
        let part = Part { slot: 0, tokens, past: 0, tables, saves: Vec::new() };
        Order { number: self.next, copies: Vec::new(), sequences: vec![part] }
    }

    fn tell(&mut self, order: &Order) {
        self.next = order.number + 1;
        self.front.send(step_frame(&Told::of(order, &mut self.tables)));
    }

    fn rows(&self, number: u64, tokens: usize) -> Vec<u8> {
        let mut rng = Rng::new(5);
        let rows: Vec<f32> =
            (0..tokens * self.stage.width).map(|_| rng.below(100) as f32 / 50.0 - 1.0).collect();
        rows_frame(number, [&*rows].into_iter())
    }

    /// The bits of a step.
    fn answer(&mut self) -> Vec<u32> {
        let order = self.order(5);
        self.tell(&order);
        self.before.send(self.rows(order.number, 5));
        match self.next().unwrap() {
            Message::Rows { number, rows } if number == order.number => {
                rows.iter().map(|x| x.to_bits()).collect()
            }
            other => panic!("{other:?}"),
        }
    }
}

/// What the session of a stage may keep, at most: three orders, of which the one here has less than 4 KiB, and rows.
fn bound(stage: &Stage) -> usize {
    3 * (4096 + SIZES.step_tokens * stage.width * 4)
}

type Attack = fn(&mut Session<'_>);

#[test]
fn what_a_peer_may_not_send_ends_the_session_with_the_reason() {
    // Frames of any length whose head alone is sent.
    fn endless(kind: u8, length: u32) -> Vec<u8> {
        [&[kind][..], &length.to_le_bytes(), &[0; 64]].concat()
    }
    let table: [(&str, Attack); 20] = [
        ("rows of another step than the next", |now| {
            let order = now.order(5);
            now.tell(&order);
            now.before.send(now.rows(order.number + 1, 5));
        }),
        ("more or fewer rows than the step has", |now| {
            let order = now.order(5);
            now.tell(&order);
            now.before.send(now.rows(order.number, 6));
        }),
        ("more or fewer rows than the step has", |now| {
            let order = now.order(5);
            now.tell(&order);
            now.before.send(now.rows(order.number, 4));
        }),
        ("more or fewer rows than the step has", |now| {
            let order = now.order(5);
            now.tell(&order);
            let head = [&[11][..], &0xffff_fff8u32.to_le_bytes(), &order.number.to_le_bytes()];
            now.before.send(head.concat());
        }),
        ("rows of another step than the next", |now| {
            now.answer();
            now.before.send(now.rows(now.next - 1, 5));
        }),
        ("a row with a part of a number", |now| now.before.send(endless(11, 11))),
        ("steps than may be under way", |now| {
            for _ in 0..4 {
                let order = now.order(2);
                now.tell(&order);
            }
        }),
        ("a step out of order", |now| {
            now.answer();
            now.next += 1;
            let order = now.order(2);
            now.tell(&order);
        }),
        ("a step of more tokens than it may have", |now| {
            let order = now.order(17);
            now.tell(&order);
        }),
        ("a message that is too long", |now| now.front.send(endless(10, u32::MAX))),
        ("rows, which have no place here", |now| now.front.send(endless(11, 0xffff_fff8))),
        ("a step, which has no place here", |now| now.before.send(endless(10, u32::MAX))),
        ("something else than rows", |now| now.before.send(Message::Ask(SIZES).frame())),
        ("what a front does not say", |now| now.front.send(Message::Ready(vec![]).frame())),
        ("a question after the layers were loaded", |now| {
            now.front.send(Message::Ask(SIZES).frame());
        }),
        ("more sequences than there may be", |now| {
            let mut order = now.order(1);
            order.sequences = vec![order.sequences[0].clone(); 3];
            now.tell(&order);
        }),
        ("a sequence twice", |now| {
            let mut order = now.order(1);
            order.sequences = vec![order.sequences[0].clone(); 2];
            now.tell(&order);
        }),
        ("a sequence that is longer than the context", |now| {
            let mut order = now.order(1);
            order.sequences[0].past = 64;
            now.tell(&order);
        }),
        ("more pages than a sequence can have", |now| {
            let mut order = now.order(1);
            order.sequences[0].tables[0].pages = vec![PageId(1); 19];
            now.tell(&order);
        }),
        ("", |now| {
            // Of pages that are not there the step itself fails.
            let mut order = now.order(1);
            order.copies = vec![PageCopy { class: 0, from: PageId(9999), to: PageId(1) }];
            now.tell(&order);
            now.before.send(now.rows(order.number, 1));
        }),
    ];
    let stage = Stage::run("secret");
    let want = stage.session(0).answer();
    for (name, (why, attack)) in (1..).zip(table) {
        let mut session = stage.session(name);
        attack(&mut session);
        let fault = session.fault();
        assert!(fault.contains(why), "{name}: {fault}, and not {why}");
        drop(session);
        assert_eq!(stage.session(100 + name).answer(), want, "after: {why}");
    }
    let kept = stage.status.counts();
    assert!(kept.most_kept <= bound(&stage), "{kept:?}");
}

#[test]
fn rows_without_an_order_are_not_read() {
    let stage = Stage::run("secret");
    let mut session = stage.session(1);
    let want = session.answer();
    // As much as the connection takes: the stage reads the head of the first rows alone, and waits for their order.
    let frame = session.rows(session.next, 16);
    let mut flood = session.before.stream.try_clone().unwrap();
    let flooding = thread::spawn(move || while flood.write_all(&frame).is_ok() {});
    let fault = session.fault();
    assert!(fault.contains("rows of a step that was not ordered"), "{fault}");
    flooding.join().unwrap();
    assert!(stage.status.counts().most_kept <= bound(&stage), "{:?}", stage.status.counts());
    assert_eq!(stage.session(2).answer(), want);
    // Before its layers are loaded, too.
    let mut session = stage.begin(3);
    let order = session.order(5);
    session.tell(&order);
    let fault = session.fault();
    assert!(fault.contains("a step before its layers were loaded"), "{fault}");
}

/// Greetings of this role that fail, of all kinds.
fn broken(stage: &Stage, role: Role, round: usize, live: u64) {
    let other = Identity { key: StageKey::new(b"another"), ..stage.me.clone() };
    let session = if round.is_multiple_of(2) { live } else { round as u64 };
    let greeted = match round % 50 {
        // These take a whole greeting.
        0 => greet::connect(&stage.address, &other, Call { role, stage: STAGE, session }),
        1 => stage.connect(role, session),
        2 => greet::connect(&stage.address, &stage.me, Call { role, stage: 1, session }),
        kind => {
            let mut stream = TcpStream::connect(&stage.address).unwrap();
            let hello = greet::hello(&stage.me, Call { role, stage: STAGE, session }).unwrap();
            let frame = Message::Hello(hello).frame();
            let _ = match kind % 4 {
                0 => stream.write_all(&frame[..round % frame.len()]),
                1 => stream.write_all(&frame),
                2 => stream.write_all(&[&frame[..], &Message::Proof([7; 32]).frame()].concat()),
                _ => stream.write_all(&frame[1..]),
            };
            return;
        }
    };
    match greeted.map(|_| ()).unwrap_err() {
        GreetError::Refused(_) | GreetError::Busy(_) => {}
        other => panic!("{role:?}, {round}: {other}"),
    }
}

#[test]
fn broken_greetings_end_nothing_but_themselves() {
    let stage = Stage::run("secret");
    let mut session = stage.session(1);
    let want = session.answer();
    for role in [Role::Front, Role::Before] {
        for round in 0..10_000 {
            broken(&stage, role, round, 1);
            if round % 100 == 0 {
                assert_eq!(session.answer(), want, "{role:?}, {round}");
            }
        }
    }
    assert_eq!(session.answer(), want);
    assert_eq!(stage.status.state(), State::Serving);
    assert!(matches!(stage.connect(Role::Front, 2), Err(GreetError::Busy(_))));
    assert!(matches!(stage.connect(Role::Before, 1), Err(GreetError::Busy(_))));
}

/// Whether the other side has closed a connection on which it need say nothing.
fn closed(stream: &mut TcpStream, within: Duration) -> bool {
    stream.set_read_timeout(Some(within)).unwrap();
    loop {
        match stream.read(&mut [0; 256]) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(e) => return !matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
        }
    }
}

#[test]
fn silent_and_slow_callers_keep_no_place() {
    let stage = Stage::run("secret");
    let mut silent: Vec<TcpStream> =
        (0..GREETINGS + 8).map(|_| TcpStream::connect(&stage.address).unwrap()).collect();
    for oldest in &mut silent[..8] {
        assert!(closed(oldest, 10 * GREETING), "the oldest give way");
    }
    // All places are taken, and a front gets one.
    let mut session = stage.session(1);
    let want = session.answer();
    // Bytes that come one by one do not make the time longer.
    let mut slow = TcpStream::connect(&stage.address).unwrap();
    let (begin, frame) = (Instant::now(), Message::Refused("a".repeat(4000)).frame());
    let mut bytes = frame.iter();
    while !closed(&mut slow, Duration::from_millis(100)) {
        let _ = slow.write_all(&[*bytes.next().expect("closed before")]);
    }
    assert!(begin.elapsed() >= GREETING / 2, "{:?}", begin.elapsed());
    assert_eq!(session.answer(), want);
}

#[test]
fn a_link_to_a_peer_that_does_not_read_holds_a_bounded_number_of_messages() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (_peer, _) = listener.accept().unwrap();
    let link = Link::new(stream, 4, |_| ()).unwrap();
    // The system's buffers hold some.
    let sent = (0..200).take_while(|_| link.send(vec![0; 1 << 20]).is_ok()).count();
    assert!((4..100).contains(&sent), "{sent}");
    assert_eq!(link.send(vec![0]), Err("it does not read what is sent to it"));
}

#[test]
fn without_a_key_a_stage_listens_to_its_own_machine_alone() {
    let model = TinyModel { layers: 3, ..TinyModel::qwen3(gguf::TensorType::Q4_0) };
    let file = Arc::new(ModelFile::from_bytes("tiny", model.gguf()));
    let bind = |address: &str, key: &[u8], without_key: bool| {
        let mut options =
            options(if key.is_empty() { StageKey::default() } else { StageKey::new(key) });
        options.stage.as_mut().unwrap().without_key = without_key;
        StageServer::bind(address, &file, &options).map(|_| ()).map_err(|e| e.to_string())
    };
    for any in ["0.0.0.0:0", "[::]:0"] {
        let error = bind(any, b"", false).unwrap_err();
        // A machine may have no IPv6.
        assert!(error.contains("--stage-key-file") || any.starts_with('['), "{error}");
    }
    bind("127.0.0.1:0", b"", false).unwrap();
    bind("0.0.0.0:0", b"", true).unwrap();
    bind("0.0.0.0:0", b"secret", false).unwrap();
}

/// A session as the fuzz target has it: steps of one sequence, whose rows come early or late.
fn recorded(width: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut tables = Tables::default();
    for number in 0..4u64 {
        let (past, tokens) = (5 * number as usize, (1..=5).collect());
        let table = PageTable { first: 0, pages: vec![PageId(0)] };
        let part = Part { slot: 1, tokens, past, tables: vec![table], saves: Vec::new() };
        let order = Order { number, copies: Vec::new(), sequences: vec![part] };
        bytes.push(0);
        bytes.extend(step_frame(&Told::of(&order, &mut tables)));
        bytes.push(1);
        bytes.extend(rows_frame(number, [&*vec![0.5; 5 * width]].into_iter()));
        bytes.push(number as u8);
        bytes.extend(Message::Ping.frame());
    }
    bytes
}

#[test]
fn sessions_of_any_bytes_end_or_are_taken() {
    let model = TinyModel { layers: 3, ..TinyModel::qwen3(gguf::TensorType::Q4_0) };
    let mut stage = FuzzStage::new(model.gguf());
    let whole = recorded(256);
    assert_eq!(stage.session(&whole), 4);
    let mut rng = Rng::new(3);
    for _ in 0..500 {
        let mut bytes = whole.clone();
        for _ in 0..1 + rng.below(3) {
            let at = rng.below(bytes.len().min(400));
            bytes[at] = rng.bits() as u8;
        }
        assert!(stage.session(&bytes) <= 4);
    }
    // The committed seeds are of this protocol; `ARCLIGHT_SEEDS=1` writes them.
    let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds");
    let seeds = [("session/steps", whole), ("stages/messages", super::message::every())];
    for (name, bytes) in seeds {
        let path = corpus.join(name);
        if std::env::var_os("ARCLIGHT_SEEDS").is_some() {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, &bytes).unwrap();
        }
        // A published package is without it.
        if let Ok(committed) = std::fs::read(&path) {
            assert!(committed == bytes, "{name}: run this test with ARCLIGHT_SEEDS=1");
        }
    }
}
