//! Number of connections in addition to those that serve.

/// Requests of one side that are served while all connections are busy.
pub(super) const RESERVE: usize = 32;

/// Connections that can wait, whatever the options say.
pub(super) const LEAST_WAITING: usize = 64;

/// Files beyond those of connections that serve or wait: both reserves, and one connection that was just accepted.
pub(super) const FURTHER: usize = 2 * RESERVE + 1;

/// Maximum number of files of all connections, for `connections` that serve.
pub(crate) fn files(connections: usize) -> usize {
    connections + connections.max(LEAST_WAITING) + FURTHER
}
