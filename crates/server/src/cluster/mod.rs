//! What gateways in front of several servers ask for: the contract of the Gateway API Inference Extension and of llm-d,
//! whose words are vLLM's.
//!
//! A gateway reads load and cache sizes from `/metrics`, has prompts tokenized by the `render` endpoints, and follows
//! which beginnings each server has in its prefix cache by [`events`].

pub(crate) mod events;
mod kept;
pub(crate) mod render;
mod sockets;
#[cfg(test)]
mod tests;
mod zmtp;

/// What the sockets for cache events do with the bytes of a peer, in pieces of this size: `publishes`, or answers
/// questions. For fuzzing.
///
/// # Panics
/// When a peer has more kept than it may.
#[cfg(any(fuzzing, test))]
pub fn fuzz_event_peer(publishes: bool, piece: usize, bytes: &[u8]) {
    /// Bytes of the longest frame and of its head.
    const FRAME: usize = 1024 + 9;
    let (mut inbox, mut subscriptions) =
        (zmtp::Inbox::default(), sockets::Subscriptions::default());
    for piece in bytes.chunks(piece.max(1)) {
        inbox.buffer.extend_from_slice(piece);
        loop {
            let said = match inbox.next() {
                Ok(Some(said)) => said,
                Ok(None) => break,
                Err(_) => return,
            };
            if let zmtp::Said::Command(_, rest) = &said {
                let _ = zmtp::check_ready(rest, &["SUB"]);
                let mut pong = Vec::new();
                zmtp::put_pong(&mut pong, rest);
                assert!(pong.len() < 32);
            }
            if publishes && subscriptions.hear(&said).is_err() {
                return;
            }
            if let zmtp::Said::Message(frames) = &said {
                let _ = sockets::question(frames);
                let frames: Vec<&[u8]> = frames.iter().map(|frame| &**frame).collect();
                let mut again = zmtp::greeting("SUB");
                zmtp::put_message(&mut again, &frames);
                let mut other = zmtp::Inbox::default();
                other.buffer.extend_from_slice(&again);
                let read: Vec<zmtp::Said> =
                    std::iter::from_fn(|| other.next().expect("what was written")).collect();
                assert_eq!(read.last(), Some(&said));
            }
        }
        assert!(inbox.buffer.len() < FRAME + piece.len());
    }
}
