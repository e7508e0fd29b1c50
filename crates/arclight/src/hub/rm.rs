//! `arclight rm`: models and kept conversions out of the caches.

use super::named::{not_here, parse};
use super::progress::size;
use crate::error::Error;
use crate::kept::{self, Kept};
use clap::Args;
use hub::{Hub, Model, Name, Pick, Repo, Settings, Unfinished};
use std::io::{BufRead, IsTerminal, Write};
use std::path::Path;

/// Remove a model, or a kept conversion, from the cache
#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub(crate) struct RmArgs {
    /// Name of the model, as `arclight list` prints it, or a short name; of a conversion that was kept the folder,
    /// which itself stays
    #[arg(value_name = "NAME")]
    name: String,
    /// All models of the repository, and downloads that were not finished
    #[arg(long)]
    all: bool,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

const HELP: &str = "\
The cache is that of the Hugging Face Hub, so other programs lose the model too. Models of
Ollama and of LM Studio are removed there. What --keep-converted has kept of a folder is removed
by the folder's path, also when the folder is gone.

Examples:
  arclight rm qwen3:4b
  arclight rm Qwen/Qwen3-4B-GGUF --all --yes
  arclight rm ./Qwen3-4B";

/// Runs the command.
pub(crate) fn run(args: &RmArgs) -> Result<(), Error> {
    let path = Path::new(&args.name);
    let kept = kept::of(path)?;
    if !kept.is_empty() {
        return conversions(&kept, args);
    }
    let name = parse(&args.name).map_err(|error| match path.is_dir() || path.is_absolute() {
        true => Error::refused(format_args!("no conversion of {} is kept", path.display())),
        false => error,
    })?;
    let hub = Hub::new(Settings::from_env()?);
    let found = wanted(&hub, &name, args.all)?;
    if let Some(other) = found.models.iter().find(|model| !model.is_ours()) {
        // It says whose it is.
        hub.remove(other)?;
    }
    if !args.yes && !agreed(&found)? {
        return Err(Error::refused("nothing was removed"));
    }
    let mut freed = 0;
    for model in &found.models {
        freed += hub.remove(model)?;
    }
    for (repo, file) in &found.unfinished {
        freed += hub.remove_unfinished(repo, file)?;
    }
    writeln!(std::io::stdout(), "{} are free now", size(freed))?;
    Ok(())
}

/// Removes what is kept of a folder.
fn conversions(kept: &[Kept], args: &RmArgs) -> Result<(), Error> {
    if args.all {
        return Err(Error::usage("--all wants a repository: OWNER/REPO"));
    }
    let line = |one: &Kept| {
        let folder = one.folder.as_deref().unwrap_or(&one.file).display();
        format!("the conversion of {folder}, {}: {}", size(one.bytes), one.file.display())
    };
    if !args.yes && !confirmed(kept.iter().map(line))? {
        return Err(Error::refused("nothing was removed"));
    }
    let mut freed = 0;
    for one in kept {
        freed += one.remove()?;
    }
    writeln!(std::io::stdout(), "{} are free now", size(freed))?;
    Ok(())
}

/// What is to be removed.
struct Wanted {
    models: Vec<Model>,
    unfinished: Vec<(Repo, Unfinished)>,
}

fn wanted(hub: &Hub, name: &Name, all: bool) -> Result<Wanted, Error> {
    let Some(model) = hub.find(name).into_iter().next() else {
        let unfinished = unfinished(hub, name);
        return match unfinished.is_empty() {
            true => Err(not_here(hub, name)),
            false => Ok(Wanted { models: Vec::new(), unfinished }),
        };
    };
    let Name::Repo { repo, pick: Pick::Default } = name else {
        return match all {
            true => Err(Error::usage("--all wants a repository: OWNER/REPO")),
            false => Ok(Wanted { models: vec![model], unfinished: Vec::new() }),
        };
    };
    let start = format!("{repo}:");
    let of_repo = |m: &Model| m.place == model.place && m.name.starts_with(&start);
    let models: Vec<Model> = hub.models().into_iter().filter(of_repo).collect();
    if models.len() > 1 && !all {
        let have = models.into_iter().map(|m| m.name).collect();
        return Err(hub::Error::Several { name: name.to_string(), have }.into());
    }
    let unfinished = if all { unfinished(hub, name) } else { Vec::new() };
    Ok(Wanted { models, unfinished })
}

/// The unfinished downloads of a name: all of a repository, or that of a file.
fn unfinished(hub: &Hub, name: &Name) -> Vec<(Repo, Unfinished)> {
    let of_name = |(repo, file): &(Repo, Unfinished)| match name {
        Name::Repo { repo: wanted, pick: Pick::Default } => wanted == repo,
        Name::Repo { repo: wanted, pick: Pick::File(wanted_file) } => {
            wanted == repo && *wanted_file == file.file
        }
        _ => false,
    };
    hub.unfinished().into_iter().filter(of_name).collect()
}

/// Whether a person says yes.
fn agreed(found: &Wanted) -> Result<bool, Error> {
    let model = |model: &Model| {
        let files = model.files.len();
        let parts = if files > 1 { format!(" in {files} files") } else { String::new() };
        format!("{}, {}{parts}: {}", model.name, size(model.bytes), model.path().display())
    };
    let unfinished = |(repo, file): &(Repo, Unfinished)| {
        format!("{repo}:{}, {} of it", file.file, size(file.done))
    };
    confirmed(found.models.iter().map(model).chain(found.unfinished.iter().map(unfinished)))
}

/// The same of what lines name.
fn confirmed(lines: impl Iterator<Item = String>) -> Result<bool, Error> {
    let mut err = std::io::stderr();
    for line in lines {
        writeln!(err, "{line}")?;
    }
    let mut stdin = std::io::stdin().lock();
    if !stdin.is_terminal() {
        return Err(Error::usage(
            "rm asks before it removes, and there is no terminal to ask on: add --yes",
        ));
    }
    write!(err, "Remove? [y/N] ")?;
    err.flush()?;
    let mut answer = String::new();
    let read = stdin.read_line(&mut answer);
    read.map_err(|source| Error::Io { what: "cannot read the answer".into(), source })?;
    Ok(["y", "yes"].contains(&answer.trim().to_ascii_lowercase().as_str()))
}
