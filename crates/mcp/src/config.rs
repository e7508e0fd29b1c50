//! Where servers are: a command, an address, or a file of several.

use crate::Error;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Where a server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A program that is started, and spoken to by its standard input and output.
    Command {
        /// The program.
        command: String,
        /// Its arguments.
        args: Vec<String>,
        /// Variables beside those of this process.
        env: BTreeMap<String, String>,
        /// Its folder.
        cwd: Option<PathBuf>,
    },
    /// An address of streamable HTTP.
    Url {
        /// The address.
        url: String,
        /// Headers of every request.
        headers: BTreeMap<String, String>,
    },
}

impl Target {
    /// An address, or a command line with quotes as in a shell.
    ///
    /// # Errors
    /// When quotes do not match, or there is nothing.
    pub fn parse(text: &str) -> Result<Target, Error> {
        if text.starts_with("http://") || text.starts_with("https://") {
            return Ok(Target::Url { url: text.to_owned(), headers: BTreeMap::new() });
        }
        let words = shlex::split(text).filter(|words| !words.is_empty());
        let mut words = words.ok_or_else(|| Error::BadCommand { command: text.to_owned() })?;
        let command = words.remove(0);
        Ok(Target::Command { command, args: words, env: BTreeMap::new(), cwd: None })
    }

    /// What it is called where nobody says: the program's name, or the host's.
    pub fn name(&self) -> String {
        let name = match self {
            // Of an interpreter the script tells more.
            Target::Command { command, args, .. } => {
                let script = args.iter().find(|arg| !arg.starts_with('-') && arg.contains('.'));
                let path = Path::new(script.unwrap_or(command));
                path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
            }
            Target::Url { url, .. } => {
                let rest = url.split_once("://").map_or(url.as_str(), |(_, rest)| rest);
                rest.split(['/', ':', '?']).next().unwrap_or_default().to_owned()
            }
        };
        if name.is_empty() { "mcp".to_owned() } else { name }
    }
}

/// The file as Claude Desktop, Claude Code and others have it.
#[derive(Deserialize)]
struct File {
    #[serde(rename = "mcpServers")]
    servers: BTreeMap<String, Entry>,
}

#[derive(Deserialize)]
struct Entry {
    #[serde(rename = "type")]
    kind: Option<String>,
    command: Option<String>,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    cwd: Option<PathBuf>,
    url: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default)]
    disabled: bool,
}

/// Reads the servers of a file, `{"mcpServers": {NAME: {"command", "args", "env"} | {"url", "headers"}}}`, by their
/// names. Those that are `disabled` are left out.
///
/// # Errors
/// When it cannot be read, or a server has neither a command nor an address of a kind that is spoken.
pub fn read_config(path: &Path) -> Result<Vec<(String, Target)>, Error> {
    let fault = |why: String| Error::Config { path: path.to_owned(), why };
    let text = std::fs::read_to_string(path).map_err(|e| fault(e.to_string()))?;
    let file: File = serde_json::from_str(&text).map_err(|e| fault(e.to_string()))?;
    let target = |(name, entry): (String, Entry)| {
        let Entry { kind, command, args, env, cwd, url, headers, disabled: _ } = entry;
        let target = match (command, url, kind.as_deref()) {
            (_, Some(_), Some(kind @ "sse")) => {
                return Err(fault(format!(
                    "{name}: servers of type {kind:?} are not supported: use the server's address of \
                     streamable HTTP, with type \"http\""
                )));
            }
            (Some(command), None, None | Some("stdio")) => {
                Target::Command { command, args, env, cwd }
            }
            (None, Some(url), None | Some("http" | "streamable-http" | "streamableHttp")) => {
                Target::Url { url, headers }
            }
            _ => {
                return Err(fault(format!(
                    "{name}: a server has either a command, or a url and the type \"http\""
                )));
            }
        };
        Ok((name, target))
    };
    file.servers.into_iter().filter(|(_, entry)| !entry.disabled).map(target).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_have_quotes_and_addresses_have_none() {
        let target = Target::parse("python3 'my server.py' --port 1").unwrap();
        let Target::Command { command, args, .. } = &target else { panic!("{target:?}") };
        assert_eq!(
            (&**command, &**args),
            ("python3", &["my server.py".into(), "--port".into(), "1".into()][..])
        );
        assert_eq!(target.name(), "my server");
        assert_eq!(Target::parse("/opt/files-mcp -v").unwrap().name(), "files-mcp");
        assert_eq!(Target::parse("https://tools.example:81/mcp").unwrap().name(), "tools.example");
        assert!(Target::parse("a 'b").is_err() && Target::parse(" ").is_err());
    }

    #[test]
    fn a_file_names_servers_of_both_kinds() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mcp.json");
        let read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            read_config(&path).map_err(|e| e.to_string())
        };
        let all = read(
            r#"{"mcpServers": {
                "files": {"command": "files", "args": ["-r"], "env": {"A": "b"}},
                "web": {"type": "http", "url": "http://x/mcp", "headers": {"Authorization": "Bearer k"}},
                "off": {"command": "off", "disabled": true}}}"#,
        );
        let all = all.unwrap();
        assert_eq!(all.iter().map(|(name, _)| &**name).collect::<Vec<_>>(), ["files", "web"]);
        assert!(
            matches!(&all[1].1, Target::Url { headers, .. } if headers["Authorization"] == "Bearer k")
        );
        for (text, words) in [
            ("{", "EOF"),
            ("{}", "mcpServers"),
            (r#"{"mcpServers": {"a": {}}}"#, "a: a server has either"),
            (r#"{"mcpServers": {"a": {"type": "sse", "url": "http://x"}}}"#, "streamable HTTP"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(words) && error.contains("mcp.json"), "{error}");
        }
    }
}
