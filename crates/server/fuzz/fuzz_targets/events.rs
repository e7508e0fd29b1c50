//! Any bytes of a peer at the sockets for cache events: greetings, subscriptions, questions.
//!
//! The first byte chooses the socket, the second the size of a piece.
#![no_main]

use arclight_server::fuzz_event_peer;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let [socket, piece, rest @ ..] = bytes else { return };
    fuzz_event_peer(socket % 2 == 0, 1 + usize::from(*piece), rest);
});
