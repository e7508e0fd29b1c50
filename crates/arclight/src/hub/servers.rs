//! The servers that run on this machine: a file for each, while it runs.
//!
//! `arclight serve` writes it when it is ready and removes it when it ends. A server that was killed leaves
//! its file behind; the time at which its process began tells it from another that has its number by now.

use crate::error::Error;
use crate::home;
use crate::replace;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What a server's file says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Server {
    /// Its process.
    pub(crate) pid: u32,
    /// When the process began, in ticks since the machine did.
    ticks: u64,
    /// Seconds since 1970.
    since: u64,
    /// Where it listens.
    pub(crate) address: String,
    /// The model's name for clients.
    pub(crate) model: String,
    /// The model's file.
    pub(crate) path: PathBuf,
}

impl Server {
    /// When it became ready.
    pub(crate) fn since(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(self.since)
    }
}

/// The file of this process's server; dropped, it is gone.
pub(crate) struct Running(PathBuf);

impl Running {
    /// Writes it.
    ///
    /// # Errors
    /// When there is no folder for it, or it cannot be written.
    pub(crate) fn announce(address: String, model: &str, path: &Path) -> Result<Running, Error> {
        let folder =
            folder().ok_or_else(|| Error::refused("there is no XDG_RUNTIME_DIR and no HOME"))?;
        fs::create_dir_all(&folder).map_err(|e| Error::write(&folder, e))?;
        let pid = std::process::id();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
        let server = Server {
            pid,
            ticks: ticks(pid).unwrap_or(0),
            since: now,
            address,
            model: model.to_owned(),
            path: fs::canonicalize(path).unwrap_or_else(|_| path.to_owned()),
        };
        let file = folder.join(format!("{pid}.json"));
        let text = serde_json::to_vec(&server).expect("numbers and text");
        replace::bytes(&file, &text).map_err(|e| Error::write(&file, e))?;
        Ok(Running(file))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Err(e) = fs::remove_file(&self.0) {
            tracing::warn!("cannot remove {}: {e}", self.0.display());
        }
    }
}

/// The servers that run, by their processes; files of others are removed.
pub(crate) fn servers() -> Vec<Server> {
    let Some(folder) = folder() else { return Vec::new() };
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let Ok(text) = fs::read(&path) else { continue };
        match serde_json::from_slice::<Server>(&text) {
            Ok(server) if ticks(server.pid) == Some(server.ticks) => found.push(server),
            Ok(_) => {
                let _ = fs::remove_file(&path);
            }
            // Somebody writes it just now, or it is of another version.
            Err(_) => {}
        }
    }
    found.sort_by_key(|server| (server.since, server.pid));
    found
}

/// Where the files are: gone when the user has logged out, or in the cache.
fn folder() -> Option<PathBuf> {
    let folder = home::named("XDG_RUNTIME_DIR").or_else(home::cache)?;
    Some(folder.join("arclight").join("servers"))
}

/// When a process began, in ticks since the machine did; `None` if there is none of this number.
fn ticks(pid: u32) -> Option<u64> {
    start_of(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The 22nd field of `/proc/PID/stat`. The second is a name in brackets that may hold anything.
fn start_of(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_of_a_process_is_read_behind_its_name() {
        let stat = "12 (a) b (c)) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20";
        assert_eq!(start_of(stat), Some(4711));
        assert!(ticks(std::process::id()).is_some_and(|ticks| ticks > 0));
        assert_eq!(start_of("12 (a"), None);
    }
}
