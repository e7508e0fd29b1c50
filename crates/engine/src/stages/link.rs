//! The writing side of a connection: a thread that sends what is to be sent, and a sign of life where nothing is.
//!
//! So a stage computes its next step while the rows of the last one are under way.

use super::greet::BEAT;
use super::message::Message;
use super::wire::write_frame;
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;

/// Sends frames in order. Dropped, it lets those go that were given before, and closes.
#[derive(Clone, Debug)]
pub(super) struct Link(Sender<Vec<u8>>);

impl Link {
    /// `lost` hears why nothing can be sent any more, once.
    pub(super) fn new(
        stream: TcpStream,
        lost: impl FnOnce(String) + Send + 'static,
    ) -> std::io::Result<Link> {
        let (to, frames) = channel();
        thread::Builder::new().name("stage-send".to_owned()).spawn(move || {
            if let Err(why) = send(&stream, &frames) {
                lost(why);
            }
            // Whoever reads from it ends too.
            let _ = stream.shutdown(Shutdown::Both);
        })?;
        Ok(Link(to))
    }

    /// Nothing happens where the link is lost, which was told.
    pub(super) fn send(&self, frame: Vec<u8>) {
        let _ = self.0.send(frame);
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
