//! Signals by their purpose.

/// What a signal wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::serve) enum Signal {
    /// The server is to end.
    End,
    /// Options, keys and certificates are to be read again.
    #[cfg_attr(not(unix), expect(dead_code, reason = "no signal is for that there"))]
    Reload,
}
