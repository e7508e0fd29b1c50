//! Windows: the events of a console. No service manager is told, and open files have no limit.

use super::signal::Signal;
use std::io;
use tokio::signal::windows::{CtrlBreak, CtrlC, CtrlClose, ctrl_break, ctrl_c, ctrl_close};

pub(in crate::serve) fn ready() {}

pub(in crate::serve) fn watch() {}

pub(in crate::serve) fn reloading() {}

pub(in crate::serve) fn stopping() {}

pub(in crate::serve) fn allow_files(_: usize) -> usize {
    usize::MAX
}

/// Ctrl-C, Ctrl-Break, and the end of the console.
pub(in crate::serve) struct Signals {
    interrupt: CtrlC,
    stop: CtrlBreak,
    close: CtrlClose,
}

impl Signals {
    /// They are heard from now on.
    pub(in crate::serve) fn install() -> io::Result<Signals> {
        Ok(Signals { interrupt: ctrl_c()?, stop: ctrl_break()?, close: ctrl_close()? })
    }

    pub(in crate::serve) async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.stop.recv() => {}
            _ = self.close.recv() => {}
        }
        Signal::End
    }
}
