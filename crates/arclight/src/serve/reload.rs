//! What changes while a server runs: keys, and options that need no other sockets, threads or models.
//!
//! At SIGHUP the command line's file is read again, with everything that is checked at the start. If something is wrong
//! with it nothing changes. What can change then does, for requests to come; what needs a restart is named in the log
//! and stays as it was. Keys are read again when their file has changed, too.

use super::args::{Said, ServeArgs};
use super::settings;
use crate::error::Error;
use crate::{cli, logging, term};
use arclight_server::Keys;
use std::collections::BTreeSet;
use std::time::SystemTime;

/// Options that change at a reload.
const CHANGE: [&str; 26] = [
    "api-key",
    "api-key-file",
    "drain-timeout",
    "keep-alive",
    "log",
    "max-body",
    "max-choices",
    "max-connections",
    "max-connections-per-address",
    "max-image-megapixels",
    "max-managed-models",
    "max-models",
    "media-path",
    "min-p",
    "models-memory",
    "no-page",
    "pooling",
    "queue",
    "read-timeout",
    "repeat-penalty",
    "request-timeout",
    "slot-save-bytes",
    "temp",
    "top-k",
    "top-p",
    "write-timeout",
];

/// Checks other options, and gives what takes them.
pub(super) type Prepare = Box<dyn Fn(&ServeArgs) -> Result<Box<dyn FnOnce()>, Error> + Send>;

/// The options of a server that runs, and what takes others.
pub(super) struct Settings {
    keys: Keys,
    args: ServeArgs,
    /// When the file of keys was written.
    written: Option<SystemTime>,
    prepare: Prepare,
}

impl Settings {
    pub(super) fn new(keys: Keys, args: &ServeArgs, prepare: Prepare) -> Settings {
        Settings { keys, written: written(args), args: args.clone(), prepare }
    }

    /// Reads everything again; what is wrong is told, and what was read before holds then.
    pub(super) fn reload(&mut self) {
        match settings::again() {
            Ok(new) => match self.change(new) {
                Ok(()) => {}
                Err(e) => tracing::error!("options stay as they were: {}", e.line()),
            },
            Err(e) => {
                let line = cli::one_line(&e.render().to_string());
                tracing::error!("options stay as they were: {line}");
            }
        }
        self.read_keys();
    }

    /// Takes other options.
    fn change(&mut self, mut new: ServeArgs) -> Result<(), Error> {
        let (changed, stays) = differences(&self.args.said, &new.said);
        new.as_started(&self.args);
        let take = (self.prepare)(&new)?;
        if let Some(text) = &new.log {
            logging::check(text)?;
        }
        take();
        if changed.contains("log") {
            logging::change(term::is_quiet(), self.args.log_format, new.log.as_deref())?;
        }
        // What stays is told at the next reload again.
        for key in &stays {
            match self.args.said.get(key) {
                Some(value) => drop(new.said.insert(key.clone(), value.clone())),
                None => drop(new.said.remove(key)),
            }
        }
        if !changed.is_empty() {
            tracing::info!(options = list(&changed), "options have changed");
        }
        if !stays.is_empty() {
            tracing::warn!(options = list(&stays), "options stay as they were until a restart");
        }
        self.args = new;
        Ok(())
    }

    fn read_keys(&mut self) {
        self.written = written(&self.args);
        match self.args.access.keys() {
            Ok(new) => self.keys.set(new),
            Err(e) => tracing::error!("keys stay as they were: {}", e.line()),
        }
    }

    /// Reads keys again if their file has changed.
    pub(super) fn look(&mut self) {
        let now = written(&self.args);
        // Between a file's removal and its return nothing is known.
        if now.is_some() && now != self.written {
            self.read_keys();
            tracing::info!("the file of keys was read again");
        }
    }
}

/// When the file of keys was written.
fn written(args: &ServeArgs) -> Option<SystemTime> {
    args.access.key_file()?.metadata().and_then(|file| file.modified()).ok()
}

/// Names alone: values may be secrets.
fn list(keys: &BTreeSet<String>) -> String {
    keys.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
}

/// The options of which something else is said now: those that change, and those that stay.
fn differences(before: &Said, now: &Said) -> (BTreeSet<String>, BTreeSet<String>) {
    let all: BTreeSet<&String> = before.keys().chain(now.keys()).collect();
    let differ = all.into_iter().filter(|key| before.get(*key) != now.get(*key)).cloned();
    let model = |key: &str| {
        let (model, own) = key.strip_prefix("models.")?.rsplit_once('.')?;
        Some((format!("models.{model}.model"), own.to_owned()))
    };
    differ.partition(|key| match model(key) {
        None => CHANGE.contains(&key.as_str()),
        // A model that was not there, or is not there any more.
        Some((file, own)) => {
            before.contains_key(&file) && now.contains_key(&file) && CHANGE.contains(&own.as_str())
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(pairs: &[(&str, &str)]) -> Said {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), vec![(*value).into()])).collect()
    }

    #[test]
    fn what_needs_other_sockets_or_models_stays() {
        let before = [
            ("port", "1"),
            ("queue", "2"),
            ("temp", "1"),
            ("models.a.model", "a"),
            ("models.a.temp", "1"),
            ("models.a.ctx", "5"),
            ("models.gone.model", "g"),
            ("models.gone.temp", "1"),
        ];
        let now = [
            ("port", "2"),
            ("queue", "3"),
            ("temp", "1"),
            ("models.a.model", "a"),
            ("models.a.temp", "2"),
            ("models.a.top-k", "2"),
            ("models.a.ctx", "6"),
            ("models.new.model", "n"),
            ("models.new.temp", "1"),
        ];
        let (changed, stays) = differences(&said(&before), &said(&now));
        assert_eq!(list(&changed), "models.a.temp, models.a.top-k, queue");
        assert_eq!(
            list(&stays),
            "models.a.ctx, models.gone.model, models.gone.temp, models.new.model, models.new.temp, port"
        );
        let same = differences(&said(&now), &said(&now));
        assert!(same.0.is_empty() && same.1.is_empty());
    }

    #[test]
    fn options_that_change_are_options() {
        let command = settings::command();
        let serve = command.find_subcommand("serve").unwrap();
        let known: Vec<&str> = serve.get_arguments().filter_map(|arg| arg.get_long()).collect();
        for key in CHANGE {
            assert!(known.contains(&key), "{key}");
        }
    }
}
