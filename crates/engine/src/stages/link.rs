//! The writing side of a connection: a thread that sends what is to be sent, and a sign of life where nothing is.
//!
//! So a stage computes its next step while the rows of the last one are under way. The number of messages that wait is
//! bounded: a peer that does not read has been sent no more than it has asked for.

use super::greet::BEAT;
use super::message::Message;
use super::wire::write_frame;
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread;

/// Sends frames in order. Dropped, it lets those go that were given before, and closes.
#[derive(Clone, Debug)]
pub(super) struct Link(SyncSender<Vec<u8>>);

impl Link {
    /// For at most `most` frames that wait; `lost` hears why nothing can be sent any more, once.
    pub(super) fn new(
        stream: TcpStream,
        most: usize,
        lost: impl FnOnce(String) + Send + 'static,
    ) -> std::io::Result<Link> {
        let (to, frames) = sync_channel(most);
        thread::Builder::new().name("stage-send".to_owned()).spawn(move || {
            if let Err(why) = send(&stream, &frames) {
                lost(why);
            }
            // The reader of this connection ends too.
            let _ = stream.shutdown(Shutdown::Both);
        })?;
        Ok(Link(to))
    }

    /// Sends a frame. Where the link is lost, which was reported, nothing happens.
    ///
    /// # Errors
    /// When all places are taken: the peer has more under way than it may have.
    pub(super) fn send(&self, frame: Vec<u8>) -> Result<(), &'static str> {
        match self.0.try_send(frame) {
            Ok(()) | Err(TrySendError::Disconnected(_)) => Ok(()),
            Err(TrySendError::Full(_)) => Err("it does not read what is sent to it"),
        }
    }
}

fn send(mut stream: &TcpStream, frames: &Receiver<Vec<u8>>) -> Result<(), String> {
    loop {
        let frame = match frames.recv_timeout(BEAT) {
            Ok(frame) => frame,
            Err(RecvTimeoutError::Timeout) => Message::Ping.frame(),
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        };
        write_frame(&mut stream, &frame).map_err(|e| e.to_string())?;
    }
}
