//! A server that is started here: a message on each line of its standard input and output.

use crate::Error;
use crate::message::{Answered, Said, read};
use serde_json::Value as Json;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// Bytes of a line.
const LONGEST: u64 = 16 << 20;

/// Messages that a server has not read yet. More are refused: a program that does not read its input stops no caller.
const UNREAD: usize = 4;

/// Time that a server has to end by itself when its input does.
const GRACE: Duration = Duration::from_millis(500);

pub(crate) struct Program {
    child: Child,
    /// Closed first, which ends the server.
    input: Option<SyncSender<String>>,
    lines: Receiver<Result<String, String>>,
}

impl Drop for Program {
    fn drop(&mut self) {
        self.input = None;
        let end = Instant::now() + GRACE;
        while Instant::now() < end {
            if matches!(self.child.try_wait(), Ok(Some(_)) | Err(_)) {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Writes messages until there are no more, or the server does not read them.
fn write(mut input: ChildStdin, messages: &Receiver<String>) {
    for message in messages {
        if let Err(error) = input.write_all(message.as_bytes()).and_then(|()| input.flush()) {
            return tracing::debug!("a server does not read any more: {error}");
        }
    }
}

impl Program {
    /// Starts a program.
    pub(crate) fn start(server: &str, command: &mut Command) -> Result<Program, Error> {
        let name = command.get_program().to_string_lossy().into_owned();
        let start =
            |source| Error::Start { server: server.to_owned(), command: name.clone(), source };
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(start)?;
        let gone = || start(std::io::Error::other("it has no standard streams"));
        let input = child.stdin.take().ok_or_else(gone)?;
        let output = child.stdout.take().ok_or_else(gone)?;
        let errors = child.stderr.take().ok_or_else(gone)?;
        let (to_write, messages) = sync_channel(UNREAD);
        thread::Builder::new()
            .name("mcp".to_owned())
            .spawn(move || write(input, &messages))
            .map_err(start)?;
        let (tell, lines) = sync_channel(64);
        thread::Builder::new()
            .name("mcp".to_owned())
            .spawn(move || {
                let mut output = BufReader::new(output);
                loop {
                    let mut line = Vec::new();
                    let read = (&mut output).take(LONGEST + 1).read_until(b'\n', &mut line);
                    let said = match read {
                        Ok(0) => Err("it has ended".to_owned()),
                        Ok(_) if line.len() as u64 > LONGEST => {
                            Err(format!("a line of it has more than {LONGEST} bytes"))
                        }
                        Ok(_) => Ok(String::from_utf8_lossy(&line).into_owned()),
                        Err(error) => Err(format!("its output cannot be read: {error}")),
                    };
                    let ends = said.is_err();
                    if tell.send(said).is_err() || ends {
                        return;
                    }
                }
            })
            .map_err(start)?;
        let of = server.to_owned();
        thread::Builder::new()
            .name("mcp".to_owned())
            .spawn(move || {
                let mut errors = BufReader::new(errors.take(u64::MAX));
                let mut line = Vec::new();
                // Read to the end, so that the server is never stopped by it.
                while (&mut errors).take(64 << 10).read_until(b'\n', &mut line).is_ok_and(|n| n > 0)
                {
                    tracing::debug!(server = of, "{}", String::from_utf8_lossy(&line).trim_end());
                    line.clear();
                }
            })
            .map_err(start)?;
        Ok(Program { child, input: Some(to_write), lines })
    }

    /// Sends a message, without waiting until it is read.
    pub(crate) fn send(&mut self, message: &Json) -> Result<(), String> {
        let input = self.input.as_ref().ok_or("its input is closed")?;
        input.try_send(format!("{message}\n")).map_err(|e| match e {
            TrySendError::Full(_) => format!("it has not read {UNREAD} messages"),
            TrySendError::Disconnected(_) => "it does not read any more".to_owned(),
        })
    }

    /// Waits for the answer to a request; `None` if it does not come in time.
    pub(crate) fn answer(&mut self, id: u64, until: Instant) -> Result<Option<Answered>, String> {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            // Also while it prints other lines.
            if left.is_zero() {
                return Ok(None);
            }
            let line = match self.lines.recv_timeout(left) {
                Ok(line) => line?,
                Err(RecvTimeoutError::Timeout) => return Ok(None),
                Err(RecvTimeoutError::Disconnected) => return Err("it has ended".to_owned()),
            };
            // Some servers print what is no message.
            let Ok(message) = serde_json::from_str::<Json>(&line) else {
                tracing::debug!("not a message: {}", line.trim_end());
                continue;
            };
            match read(&message) {
                Said::Answer(of, answer) if of == id => return Ok(Some(answer)),
                Said::Asks(answer) => self.send(&answer)?,
                Said::Answer(..) | Said::Other => {}
            }
        }
    }
}
