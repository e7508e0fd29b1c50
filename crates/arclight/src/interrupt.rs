//! Ctrl-C: ends an answer where there is one, and the program where there is none.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

const QUIET: u8 = 0;
const ANSWERING: u8 = 1;
const ASKED: u8 = 2;

static STATE: AtomicU8 = AtomicU8::new(QUIET);

/// What a shell gives a program that SIGINT ended.
pub(crate) const EXIT_CODE: u8 = 130;

/// Takes over Ctrl-C for the rest of the program. Call it before threads are pinned, and once.
pub(crate) fn install() {
    let handler = || {
        if STATE.compare_exchange(ANSWERING, ASKED, Relaxed, Relaxed).is_err() {
            std::process::exit(EXIT_CODE.into());
        }
    };
    if let Err(e) = ctrlc::set_handler(handler) {
        tracing::warn!("Ctrl-C ends the program, not an answer: {e}");
    }
}

/// While this lives, the first Ctrl-C only sets a mark; a second one ends the program.
pub(crate) struct Answering(());

impl Answering {
    pub(crate) fn begin() -> Answering {
        STATE.store(ANSWERING, Relaxed);
        Answering(())
    }

    /// Whether Ctrl-C was pressed since.
    pub(crate) fn interrupted(&self) -> bool {
        STATE.load(Relaxed) == ASKED
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        STATE.store(QUIET, Relaxed);
    }
}
