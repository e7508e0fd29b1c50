//! Access to a server: keys, origins, host names, certificates.

use crate::error::Error;
use arclight_server::Key;
use clap::{Args, ValueHint};
use std::path::{Path, PathBuf};

/// Who may use it.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Access")]
pub(super) struct AccessArgs {
    /// Key that clients must bring; can be given several times [default: none is needed]
    #[arg(long, value_name = "KEY", value_delimiter = ',', hide_env_values = true)]
    api_key: Vec<String>,
    /// File with keys, one on a line, and what each may do: KEY name=ci requests=60 tokens=100000
    /// concurrent=4 models=a,b; lines that begin with # do not count
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    api_key_file: Option<PathBuf>,
    /// Serve no page at / and no dashboard at /status
    #[arg(long)]
    pub(super) no_page: bool,
    /// Origin of web pages that may call the server, or * for all; can be given several times
    #[arg(long, value_name = "ORIGIN", value_delimiter = ',')]
    pub(super) cors_origin: Vec<String>,
    /// Host name by which browsers may address the server without keys, or * for any, besides IP addresses, localhost
    /// and the names of --host; can be given several times
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub(super) allowed_host: Vec<String>,
    /// PEM file of the server's certificate and those that it is signed by: serve by TLS
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// PEM file of the certificate's private key
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "tls_cert")]
    tls_key: Option<PathBuf>,
}

impl AccessArgs {
    /// The keys that clients may bring.
    pub(super) fn keys(&self) -> Result<Vec<Key>, Error> {
        let given = self.api_key.iter().map(|key| key.parse::<Key>().map_err(Error::Usage));
        let mut keys = given.collect::<Result<Vec<Key>, Error>>()?;
        if let Some(path) = &self.api_key_file {
            keys.extend(read_keys(path)?);
        }
        Ok(keys)
    }

    /// The file that has keys.
    pub(super) fn key_file(&self) -> Option<&Path> {
        self.api_key_file.as_deref()
    }

    /// The files of certificate and key.
    pub(super) fn tls_files(&self) -> Option<(&Path, &Path)> {
        Some((self.tls_cert.as_deref()?, self.tls_key.as_deref()?))
    }
}

fn read_keys(path: &Path) -> Result<Vec<Key>, Error> {
    let text = std::fs::read_to_string(path).map_err(|e| Error::read(path, e))?;
    let lines = text.lines().enumerate().map(|(at, line)| (at + 1, line.trim()));
    let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let key = |(at, line): (usize, &str)| {
        let fault = |e: String| Error::in_file(path, format!("line {at}: {e}"));
        line.parse::<Key>().map_err(fault)
    };
    let keys = lines.map(key).collect::<Result<Vec<Key>, Error>>()?;
    if keys.is_empty() {
        // Open to everybody is not what somebody wants who names a file.
        return Err(Error::Refused(format!("{} has no keys", path.display())));
    }
    Ok(keys)
}
