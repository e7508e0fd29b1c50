//! Connections whose client does not read are cut.
//!
//! A write that cannot go on for a while is an error, which ends the connection, drops the answer and
//! so cancels what is still computed for it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// A stream that fails when a write does not advance within a time.
pub(super) struct Stalling<S> {
    stream: S,
    limit: Duration,
    /// Runs while a write waits.
    timer: Option<Pin<Box<Sleep>>>,
    blocked: Blocked,
}

/// Whether a write waits for the client to read.
#[derive(Clone, Default)]
pub(super) struct Blocked(Arc<AtomicBool>);

impl Blocked {
    pub(super) fn is_blocked(&self) -> bool {
        self.0.load(Relaxed)
    }
}

impl<S> Stalling<S> {
    pub(super) fn new(stream: S, limit: Duration) -> (Stalling<S>, Blocked) {
        let blocked = Blocked::default();
        (Stalling { stream, limit, timer: None, blocked: blocked.clone() }, blocked)
    }

    fn watch<T>(&mut self, cx: &mut Context<'_>, poll: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        self.blocked.0.store(poll.is_pending(), Relaxed);
        if poll.is_ready() {
            self.timer = None;
            return poll;
        }
        let until = Instant::now() + self.limit;
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until)));
        ready!(timer.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Stalling<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Stalling<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.watch(cx, poll)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let poll = Pin::new(&mut self.stream).poll_flush(cx);
        self.watch(cx, poll)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let poll = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.watch(cx, poll)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.watch(cx, poll)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_stops_ends_the_writer_and_a_slow_one_does_not() {
        let (mut client, server) = tokio::io::duplex(4);
        let (mut server, blocked) = Stalling::new(server, Duration::from_secs(5));
        let writer = tokio::spawn(async move { server.write_all(b"0123456789").await });
        let mut four = [0; 4];
        // Each read comes before the limit is over, all together do not.
        for _ in 0..1 {
            tokio::time::sleep(Duration::from_secs(4)).await;
            assert!(blocked.is_blocked());
            client.read_exact(&mut four).await.unwrap();
        }
        tokio::time::sleep(Duration::from_secs(6)).await;
        let error = writer.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(&four, b"0123");
    }
}
