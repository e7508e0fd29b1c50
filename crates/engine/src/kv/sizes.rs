//! The number of pages that sequences need, and the distance of snapshots of fixed states.

use graph::Keep;
use kernels::KV_PAGE;

/// Tokens by which a sequence can always be shortened from the longest that it was: so far its pages go
/// back behind a window. Enough for the end of an answer that the next prompt tells otherwise, and for
/// drafts that are refused.
pub(super) const ROLLBACK: usize = 64;

/// Windows at ends of prompts and of sequences that stay in the prefix cache beside those that sequences hold, at
/// least: for another answer to a prompt, and for a next turn without what the last one thought.
const WINDOWS: usize = 2;

/// The sequences of a cache.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// The most that exist at once.
    pub sequences: usize,
    /// Tokens that each can hold.
    pub context: usize,
    /// Tokens from one snapshot of fixed states to the next.
    pub interval: usize,
}

impl Sizes {
    /// The pages that a class needs for all sequences, which have up to `tokens` tokens together, in steps of up to
    /// `step` tokens over all of them. One more is for a copy of a page that is shared with the prefix cache, and with a
    /// window some are for [`WINDOWS`]. Of fixed states each sequence has one, another before a guess and one that the
    /// step makes; the others are for snapshots in the prefix cache: those at every `interval`th token, and those at the
    /// ends of prompts and answers.
    pub(crate) fn pages(self, keep: impl Into<Keep>, tokens: usize, step: usize) -> usize {
        let Sizes { sequences, context, interval } = self;
        let whole = context.div_ceil(KV_PAGE);
        let all = (whole * sequences).min(tokens.div_ceil(KV_PAGE).max(whole)) + 1;
        let window = match keep.into() {
            Keep::All | Keep::Text { .. } | Keep::Runs => return all,
            Keep::Fixed => return 5 * sequences + tokens / interval + 8,
            Keep::Window(held) | Keep::Chunk(held) => held,
        };
        // Between steps a sequence holds up to window + ROLLBACK - 1 tokens, which may begin at the end of
        // a page. A step adds its tokens, and a page more for each sequence that begins one.
        let held = (window + ROLLBACK - 2).div_ceil(KV_PAGE) + 1;
        let kept = WINDOWS + sequences / 2;
        all.min((held + 1) * sequences + kept * window.div_ceil(KV_PAGE) + step / KV_PAGE + 1)
    }
}

/// Tokens from one snapshot of a sequence in the prefix cache to the next, at least: a multiple of a page.
const SNAPSHOT: usize = 1024;

/// Tokens from one snapshot to the next, if one has `state` bytes and a token `token` bytes of keys and values:
/// so many that snapshots take no more memory than these.
pub(crate) fn interval(state: usize, token: usize) -> usize {
    match state.checked_div(token) {
        None => SNAPSHOT,
        Some(tokens) => tokens.next_power_of_two().max(SNAPSHOT),
    }
}
