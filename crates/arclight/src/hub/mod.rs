//! Models by name: what MODEL means on a command line, and the commands about models on this machine.

mod fetch;
pub(crate) mod list;
pub(crate) mod named;
mod progress;
pub(crate) mod ps;
pub(crate) mod pull;
pub(crate) mod rm;
pub(crate) mod servers;
pub(crate) mod show;
