//! Adapters on the command line: files in GGUF, or folders of PEFT, which are converted as they are read.

use crate::error::Error;
use crate::term::{self, note};
use arclight_engine::{Adapter, AdapterUse, LoadOptions, ModelFile};
use clap::{Args, ValueHint};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Which adapters.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Adapters")]
pub(crate) struct LoraArgs {
    /// Adapter (LoRA): a GGUF file or a folder of PEFT, with a factor behind a colon if it is not 1; can be given
    /// several times. With NAME= before it, serve gives it to those requests only that name it
    #[arg(
        long = "lora",
        value_name = "[NAME=]PATH[:SCALE]",
        value_delimiter = ',',
        value_parser = entry,
        value_hint = ValueHint::AnyPath
    )]
    adapters: Vec<Entry>,
}

/// An adapter as it is asked for.
#[derive(Clone, Debug, PartialEq)]
struct Entry {
    name: Option<String>,
    path: PathBuf,
    scale: f32,
}

fn entry(text: &str) -> Result<Entry, String> {
    parse(text, &|path| path.exists())
}

/// Takes apart what is no path as it stands.
fn parse(text: &str, exists: &dyn Fn(&Path) -> bool) -> Result<Entry, String> {
    let whole = |text: &str| exists(Path::new(text));
    let (mut name, mut rest, mut scale) = (None, text, 1.0);
    if !whole(rest)
        && let Some((before, after)) = rest.split_once('=')
        && !before.contains('/')
    {
        if before.is_empty() {
            return Err("the name before = is empty".to_owned());
        }
        (name, rest) = (Some(before.to_owned()), after);
    }
    if !whole(rest)
        && let Some((before, after)) = rest.rsplit_once(':')
    {
        let number = after.parse::<f32>().ok().filter(|scale| scale.is_finite());
        let number = number.ok_or_else(|| format!("{after:?} behind the colon is no scale"));
        (rest, scale) = (before, number?);
    }
    if rest.is_empty() {
        return Err("it names no file".to_owned());
    }
    Ok(Entry { name, path: PathBuf::from(rest), scale })
}

impl LoraArgs {
    /// Reads the adapters for a model and adds them to the options of loading. Each has its factor in whatever is
    /// computed.
    pub(crate) fn add(&self, model: &ModelFile, options: &mut LoadOptions) -> Result<(), Error> {
        for entry in &self.adapters {
            let adapter = Arc::new(read(&entry.path, model)?);
            let name = entry.name.clone().unwrap_or_else(|| name_of(&entry.path));
            if options.adapters.iter().any(|other| other.name == name) {
                return Err(Error::Usage(format!(
                    "--lora: two adapters are called {name}: give one of them another name, as in \
                     --lora NAME={}",
                    entry.path.display()
                )));
            }
            options.adapters.push(AdapterUse { name, adapter, scale: entry.scale });
        }
        Ok(())
    }

    /// The same for a server, where adapters with names are off unless a request names them.
    pub(crate) fn add_named(
        &self,
        model: &ModelFile,
        options: &mut LoadOptions,
    ) -> Result<(), Error> {
        self.add(model, options)?;
        for (entry, adapter) in self.adapters.iter().zip(&mut options.adapters) {
            if entry.name.is_some() {
                adapter.scale = 0.0;
            }
        }
        Ok(())
    }

    /// The factors as they were given.
    pub(crate) fn scales(&self) -> impl Iterator<Item = f32> {
        self.adapters.iter().map(|entry| entry.scale)
    }
}

/// Reads either.
pub(crate) fn read(path: &Path, model: &ModelFile) -> Result<Adapter, Error> {
    let file = match convert::is_adapter(path) {
        false if path.is_dir() => {
            let message = format!(
                "{}: it has no adapter_config.json, which folders of PEFT have",
                path.display()
            );
            return Err(Error::Refused(message));
        }
        false => ModelFile::open(path)?,
        true => {
            let fault = |source| Error::Convert { path: path.to_owned(), source: Box::new(source) };
            let bytes = convert::adapter(path, &model.gguf()?).map_err(fault)?;
            ModelFile::from_bytes(&path.to_string_lossy(), bytes)
        }
    };
    Ok(Adapter::read(&file)?)
}

/// A file's or folder's name, without what is only about files.
fn name_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    name.strip_suffix(".gguf").unwrap_or(&name).replace(' ', "-")
}

/// Tells on standard error which adapters are in use.
pub(crate) fn report(adapters: &[AdapterUse]) {
    for AdapterUse { name, adapter, scale } in adapters {
        let (pairs, size) = (adapter.pairs().len(), term::size(adapter.bytes()));
        let when = match scale {
            0.0 => "off where it is not asked for".to_owned(),
            scale => format!("scale {scale}"),
        };
        note!("adapter {name}: {} in {size}, {when}", term::plural(pairs, "pair"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_scales_stand_around_paths() {
        let there = |path: &Path| ["a:2", "b=c", "dir"].iter().any(|own| path == Path::new(own));
        let of = |text: &str| {
            parse(text, &there).map(|e| (e.name, e.path.display().to_string(), e.scale))
        };
        let is = |name: Option<&str>, path: &str, scale: f32| {
            Ok((name.map(str::to_owned), path.to_owned(), scale))
        };
        assert_eq!(of("x.gguf"), is(None, "x.gguf", 1.0));
        assert_eq!(of("x.gguf:0.5"), is(None, "x.gguf", 0.5));
        assert_eq!(of("sql=x.gguf:-2"), is(Some("sql"), "x.gguf", -2.0));
        assert_eq!(of("sql=dir"), is(Some("sql"), "dir", 1.0));
        assert_eq!(of("/a=b/x.gguf"), is(None, "/a=b/x.gguf", 1.0));
        // Names of files that are there are not taken apart.
        assert_eq!(of("a:2"), is(None, "a:2", 1.0));
        assert_eq!(of("b=c"), is(None, "b=c", 1.0));
        for (text, want) in
            [("=x", "name before ="), ("x:y", "\"y\""), (":1", "no file"), ("x:inf", "inf")]
        {
            let got = of(text).unwrap_err();
            assert!(got.contains(want), "{text}: {got}");
        }
    }
}
