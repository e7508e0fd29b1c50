//! Messages and sessions of any bytes, for fuzzing and tests: what a front and a stage before send goes through all that
//! a stage has for it, without connections.

use super::ledger::{Kept, Ledger, Limits};
use super::message::{Bounds, Message, Sizes};
use super::options::{StageKey, StageOptions};
use super::order::{GivenRows, Told};
use super::port::{Said, rows, said};
use super::server::{Part, StageServer, limits};
use super::tables::Tables;
use super::wire::WireError;
use crate::file::ModelFile;
use crate::options::{KvSize, LoadOptions};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Sizes that a front has asked for.
pub(super) const SIZES: Sizes = Sizes {
    kv: graph::KvTypes { keys: graph::KvType::F16, values: graph::KvType::F16 },
    context: Some(64),
    kv_size: KvSize::Each,
    sequences: 2,
    step_tokens: 16,
};

/// Reads bytes as messages, as far as they are some: each is then written as it was read, and page tables are those
/// that were told. For fuzzing.
#[cfg(fuzzing)]
pub fn fuzz_stage_messages(bytes: &[u8]) {
    read_any(bytes);
}

/// The same as `fuzz_stage_messages`, for tests.
pub(super) fn read_any(mut bytes: &[u8]) {
    // Of the reader, and of both ends of a link over which they go on.
    let [mut tables, mut near, mut far] = [(); 3].map(|()| Tables::default());
    while let Ok(message) = Message::read(&mut bytes, &Any) {
        let frame = message.frame();
        let read = Message::read(&mut &*frame, &Any).expect("what was written can be read");
        assert_eq!(read.frame(), frame);
        let limits = Limits {
            steps: 4,
            order: 1 << 16,
            sequences: 64,
            tokens: 1 << 14,
            context: usize::MAX,
            classes: 1,
            pages: 1 << 10,
        };
        if let Message::Step(told) = message
            && let Ok(order) = told.order(&mut tables, &limits)
        {
            let heard = Told::of(&order, &mut near).order(&mut far, &limits);
            assert_eq!(heard.as_ref(), Ok(&order));
        }
    }
}

/// Bounds of steps and rows for fuzzing and tests.
pub(super) struct Any;

impl Bounds for Any {
    fn step(&self) -> Result<usize, WireError> {
        Ok(1 << 16)
    }

    fn rows(&self, _: u64, bytes: usize) -> Result<(), WireError> {
        match bytes <= 1 << 16 {
            true => Ok(()),
            false => Err(WireError::Bad("rows that are too long")),
        }
    }
}

/// The second of three stages, with loaded layers.
pub struct FuzzStage {
    server: StageServer,
    part: Option<Part>,
}

impl FuzzStage {
    /// Of a model of three layers at least.
    ///
    /// # Panics
    /// When the model cannot be cut or loaded.
    pub fn new(model: Vec<u8>) -> FuzzStage {
        let file = Arc::new(ModelFile::from_bytes("tiny", model));
        let (peers, key, without_key) = (Vec::new(), StageKey::default(), false);
        let stage = StageOptions { number: 2, of: 3, peers, key, without_key };
        let (no_pin, threads) = (true, Some(1));
        let options = LoadOptions { no_pin, threads, stage: Some(stage), ..LoadOptions::default() };
        let server = StageServer::bind("127.0.0.1:0", &file, &options).expect("a stage");
        FuzzStage { server, part: None }
    }

    /// Takes a session, and returns the number of its steps. Before each message a byte says whose it is: the front's
    /// (even) or that of the stage before.
    ///
    /// # Panics
    /// When more is kept than the limits allow.
    pub fn session(&mut self, mut bytes: &[u8]) -> usize {
        let part = self.part.get_or_insert_with(|| self.server.load(SIZES).expect("a part"));
        let (kept, width) = (Arc::new(Kept::default()), self.server.width());
        let ledger = Ledger::new(width, kept.clone());
        let limits: Limits = limits(&SIZES, &part.cache, 3);
        // As orders take more memory than their messages: see `Order::bytes`.
        let most = limits.steps * (8 * limits.order + limits.tokens * width * size_of::<f32>());
        ledger.allow(Some(limits));
        let (mut tables, mut steps) = (Tables::default(), 0);
        let (mut orders, mut fed) = (VecDeque::new(), VecDeque::new());
        while let Some((who, rest)) = bytes.split_first() {
            bytes = rest;
            let read: Result<(), WireError> = if who.is_multiple_of(2) {
                said(&mut bytes, &mut tables, &ledger).map(|said| {
                    if let Some(Said::Step(order)) = said {
                        orders.push_back(order);
                    }
                })
            } else {
                rows(&mut bytes, &ledger, Duration::ZERO).map(|rows| fed.extend(rows))
            };
            assert!(kept.now() <= most && orders.len() <= 3 && fed.len() <= orders.len());
            if read.is_err() {
                break;
            }
            if let Some(order) = orders.pop_front_if(|_| !fed.is_empty()) {
                let rows: Option<Vec<f32>> = fed.pop_front();
                if part.take(&order, GivenRows { rows: rows.as_deref(), width }).is_err() {
                    // As a stage does: what a step that failed has left is not to be relied on.
                    self.part = None;
                    break;
                }
                ledger.taken();
                steps += 1;
            }
        }
        ledger.end();
        assert_eq!(kept.now(), 0);
        steps
    }
}
