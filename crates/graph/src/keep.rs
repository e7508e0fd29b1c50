//! The content that layers keep of a sequence.
//!
//! A layer keeps something of every token (keys and values), the same of the last tokens that its window
//! holds, or a state of fixed size that every token changes ([`Keep`]). Layers that keep alike form a
//! class and share its pages.

/// The most classes that a graph can have. Families have one window beside full attention, or states.
pub const KV_CLASSES: usize = 4;

/// What a layer keeps of a sequence.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Keep {
    /// Something of every token.
    All,
    /// The same of the last so many tokens: those that a token sees, itself included.
    Window(usize),
    /// The same of the tokens from the last multiple of so many on (chunked attention).
    Chunk(usize),
    /// Something of every token of a text that is one step: its tokens see those behind them too.
    Text {
        /// How far away what a token sees may be; `None`: anywhere.
        near: Option<usize>,
    },
    /// Something of every row of an [`Inset`](crate::Inset) that is one step: its rows see those of their own run.
    Runs,
    /// A state of fixed size. What it was before a token is gone afterwards, but for snapshots.
    Fixed,
}

impl Keep {
    /// The first token of which the one at `position` needs what is kept; itself, if it needs the state
    /// that the token before it has left.
    pub fn first_seen(self, position: usize) -> usize {
        match self {
            Keep::All => 0,
            Keep::Window(window) => (position + 1).saturating_sub(window),
            Keep::Chunk(chunk) => position / chunk * chunk,
            Keep::Text { near } => near.map_or(0, |near| position.saturating_sub(near)),
            Keep::Runs | Keep::Fixed => position,
        }
    }

    /// The token behind the last that the one at `position` of a sequence of `len` sees.
    pub fn end_seen(self, position: usize, len: usize) -> usize {
        match self {
            Keep::Text { near: None } => len,
            Keep::Text { near: Some(near) } => (position + near + 1).min(len),
            _ => position + 1,
        }
    }

    /// Whether tokens see those behind them, so that a sequence is one step.
    pub fn is_text(self) -> bool {
        matches!(self, Keep::Text { .. } | Keep::Runs)
    }

    /// How many tokens a window or a chunk holds, where there is one.
    pub fn window(self) -> Option<usize> {
        match self {
            Keep::Window(held) | Keep::Chunk(held) => Some(held),
            Keep::All | Keep::Text { .. } | Keep::Runs | Keep::Fixed => None,
        }
    }

    /// Whether there is a page for every so many tokens, and not one for all.
    pub fn is_paged(self) -> bool {
        self != Keep::Fixed
    }
}

impl From<Option<usize>> for Keep {
    /// Of attention with this window.
    fn from(window: Option<usize>) -> Keep {
        window.map_or(Keep::All, Keep::Window)
    }
}
