//! Folders of the user: what variables say, or the usual ones below the home.
//!
//! Source: the XDG Base Directory Specification, on every system.

use std::path::PathBuf;

/// The folder that a variable names by an absolute path.
pub(crate) fn named(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute())
}

/// `XDG_CACHE_HOME`, or `.cache` below the home; `None` without one.
pub(crate) fn cache() -> Option<PathBuf> {
    named("XDG_CACHE_HOME").or_else(|| below(".cache"))
}

/// `XDG_STATE_HOME`, or `.local/state` below the home; `None` without one.
pub(crate) fn state() -> Option<PathBuf> {
    named("XDG_STATE_HOME").or_else(|| below(".local/state"))
}

fn below(folder: &str) -> Option<PathBuf> {
    // Where there is none, Linux would look into the list of users, which a service does not mean.
    let home = if cfg!(windows) { std::env::home_dir() } else { named("HOME") };
    home.map(|home| home.join(folder))
}
