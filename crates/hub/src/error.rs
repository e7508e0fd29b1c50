//! The one error type of the crate.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Why a model could not be named, found, fetched or removed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A name that does not follow the grammar.
    #[error(
        "{text:?} names no model: {why}; write OWNER/REPO, OWNER/REPO:QUANT, OWNER/REPO:FILE or a short \
         name such as qwen3:4b"
    )]
    BadName {
        /// The name as given.
        text: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A short name that the table does not have.
    #[error("{name:?} is neither a file nor a short name{}", hint(near))]
    UnknownShort {
        /// The name as given.
        name: String,
        /// Names that are written alike.
        near: Vec<String>,
    },
    /// The repository is not on the site, or is hidden from this user.
    #[error(
        "{site} has no repository {repo}, or it is private{}{}",
        if *token { "" } else { " (HF_TOKEN is not set)" },
        hint(near)
    )]
    NoRepository {
        /// Host of the site.
        site: String,
        /// `OWNER/REPO`.
        repo: String,
        /// Whether a token was sent.
        token: bool,
        /// Repositories that are called alike.
        near: Vec<String>,
    },
    /// The repository wants its licence accepted first.
    #[error(
        "{repo} is gated: accept its licence at {page}, {}",
        if *token {
            "with the account that HF_TOKEN belongs to, and see that the token may read gated repositories"
        } else {
            "make a token at https://huggingface.co/settings/tokens and set HF_TOKEN to it"
        }
    )]
    Gated {
        /// `OWNER/REPO`.
        repo: String,
        /// Where the licence is accepted.
        page: String,
        /// Whether a token was sent.
        token: bool,
    },
    /// The site does not know the token.
    #[error("{site} does not accept the token: set HF_TOKEN to another, or unset it and remove {}", file.display())]
    BadToken {
        /// Host of the site.
        site: String,
        /// The file that holds a token when the variable is not set.
        file: PathBuf,
    },
    /// The repository has no such quantisation or file.
    #[error("{repo} has no {asked}{}", have_hint(have))]
    NoFile {
        /// `OWNER/REPO`.
        repo: String,
        /// The quantisation or file that was asked for.
        asked: String,
        /// What it has instead.
        have: Vec<String>,
    },
    /// The repository has no model in GGUF files.
    #[error("{repo} has no GGUF files{}", hint(near))]
    NoGguf {
        /// `OWNER/REPO`.
        repo: String,
        /// Repositories that are called alike and have some.
        near: Vec<String>,
    },
    /// A part of a split model is missing in the repository.
    #[error("{repo} has {first} but not {missing}, which belongs to it")]
    MissingPart {
        /// `OWNER/REPO`.
        repo: String,
        /// The part that was found.
        first: String,
        /// The part that was not.
        missing: String,
    },
    /// The model is not here, and the network is not to be used.
    #[error(
        "{name} is not on this machine, and nothing is fetched offline (--offline or HF_HUB_OFFLINE)"
    )]
    Offline {
        /// The name as given.
        name: String,
    },
    /// The model is not here.
    #[error("{name} is not on this machine{}", hint(near))]
    NotHere {
        /// The name as given.
        name: String,
        /// Names of models that are here and are called alike.
        near: Vec<String>,
    },
    /// The site cannot be reached.
    #[error(
        "cannot reach {host}: {why} (HTTPS_PROXY names a proxy, HF_ENDPOINT another site; --offline uses \
         what is here)"
    )]
    Unreachable {
        /// Host of the site.
        host: String,
        /// What the network says.
        why: String,
    },
    /// The download stopped again and again.
    #[error("{file}: {why}; tried {tries} times; the same command goes on where this one stopped")]
    Cut {
        /// What was fetched.
        file: String,
        /// The last reason.
        why: String,
        /// Tries without a byte.
        tries: u32,
    },
    /// The site wants to be left alone for longer than anybody would wait.
    #[error("{host} asks to wait {} s before the next request; the same command goes on from here", wait.as_secs())]
    Limited {
        /// Host of the site.
        host: String,
        /// How long.
        wait: Duration,
    },
    /// An answer that is neither success nor one of the faults above.
    #[error("{url}: the server answers {status}{}", message.as_ref().map(|m| format!(": {m}")).unwrap_or_default())]
    Status {
        /// What was asked for.
        url: String,
        /// The HTTP status.
        status: u16,
        /// The server's reason.
        message: Option<String>,
    },
    /// An answer that is not what the API promises.
    #[error("{url}: the server's answer cannot be used: {why}")]
    BadAnswer {
        /// What was asked for.
        url: String,
        /// What is wrong with it.
        why: String,
    },
    /// The server sends whole files only.
    #[error("{host} does not send parts of files: try again with --connections 1")]
    NoRanges {
        /// Host of the server.
        host: String,
    },
    /// The bytes that came are not those that the repository has.
    #[error("{file} came damaged: its {kind} is {got}, not {want}; it was removed, pull it again")]
    Checksum {
        /// The file's name in the repository.
        file: String,
        /// `sha256` or `git hash`.
        kind: &'static str,
        /// As it should be, in hexadecimal digits.
        want: String,
        /// As it is.
        got: String,
    },
    /// The disk has too little room.
    #[error(
        "{} has {} free and {} are needed: make room, or set HF_HUB_CACHE to a folder of another disk",
        folder.display(), size(*free), size(*need)
    )]
    NoSpace {
        /// Folder of the cache.
        folder: PathBuf,
        /// Bytes that are to be fetched.
        need: u64,
        /// Bytes that are free.
        free: u64,
    },
    /// A model that another program manages.
    #[error("{} belongs to {owner}: remove it there", path.display())]
    NotOurs {
        /// The file.
        path: PathBuf,
        /// The program.
        owner: &'static str,
    },
    /// A name that several models have.
    #[error("{name} is several models here: name one of {}, or all with --all", have.join(", "))]
    Several {
        /// The name as given.
        name: String,
        /// Names that say which.
        have: Vec<String>,
    },
    /// No place for the cache is known.
    #[error("there is no folder for models: set HF_HUB_CACHE, or HOME")]
    NoHome,
    /// A file of certificates that cannot be used.
    #[error("SSL_CERT_FILE {}: {why}", path.display())]
    Certificates {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// An endpoint that is no address.
    #[error("{variable}={text}: it must begin with http:// or https://")]
    BadEndpoint {
        /// The environment variable.
        variable: &'static str,
        /// Its value.
        text: String,
    },
    /// A file or folder that cannot be read or written.
    #[error("{what}")]
    Io {
        /// What was tried, with the file's name.
        what: String,
        /// The system's reason.
        source: io::Error,
    },
}

impl Error {
    /// Whether what was typed is at fault rather than the world.
    pub fn is_usage(&self) -> bool {
        use Error as E;
        matches!(
            self,
            E::BadName { .. } | E::UnknownShort { .. } | E::Several { .. } | E::BadEndpoint { .. }
        )
    }

    /// For `map_err`: what was tried with a path.
    pub(crate) fn io(what: &str, path: &std::path::Path) -> impl Fn(io::Error) -> Error + use<> {
        let what = format!("cannot {what} {}", path.display());
        move |source| Error::Io { what: what.clone(), source }
    }
}

fn hint(near: &[String]) -> String {
    match near {
        [] => String::new(),
        [one] => format!("; did you mean {one}?"),
        _ => format!("; similar names: {}", near.join(", ")),
    }
}

fn have_hint(have: &[String]) -> String {
    if have.is_empty() { String::new() } else { format!("; it has {}", have.join(", ")) }
}

/// Bytes for people, with a binary unit.
fn size(bytes: u64) -> String {
    let (unit, name) = match bytes {
        0..0x10_0000 => (1 << 10, "KiB"),
        0x10_0000..0x4000_0000 => (1 << 20, "MiB"),
        _ => (1 << 30, "GiB"),
    };
    format!("{:.1} {name}", bytes as f64 / f64::from(unit))
}
