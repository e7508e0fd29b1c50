//! A model for a program that has this one inside: loaded with the options of `arclight serve`, and not listening.
//!
//! What is about connections and clients is no option here. Requests wait as long as it takes, in a queue without a
//! bound.

use crate::cli::{self, Cli};
use crate::error::Error;
use crate::serve::args::ServeArgs;
use crate::serve::{front, settings};
use crate::{load, logging, term};
use arclight_engine::{LoadOptions, LoadProgress, ReplicaOptions};
use arclight_server::{App, Model};
use clap::{ArgMatches, ColorChoice, CommandFactory, FromArgMatches, parser::ValueSource};
use std::ffi::OsString;
use std::io::ErrorKind;
use std::sync::Arc;
use tokio::runtime::Runtime;

/// Rows of logits in a step, at least: who asks for log-probabilities of a prompt has as many tokens of it at once.
const ROWS: usize = 64;

/// A model that is loaded.
pub struct Opened {
    /// What answers.
    pub app: Arc<App>,
    /// Its file, as it was found.
    pub path: std::path::PathBuf,
}

/// Why a model cannot be had, or something be done with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What kind of failure.
    pub kind: FailureKind,
    /// In a line, for people.
    pub message: String,
}

/// Kinds of failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// A value that cannot be.
    Usage,
    /// There is no such file.
    NotFound,
    /// A file may not be read.
    Permission,
    /// There is too little memory.
    Memory,
    /// Everything else.
    Other,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure { kind: kind(&error), message: error.line() }
    }
}

fn kind(error: &Error) -> FailureKind {
    if let Error::Engine(error) = error
        && let Some(kind) = of_memory(error)
    {
        return kind;
    }
    let mut cause = std::error::Error::source(error);
    while let Some(now) = cause {
        match now.downcast_ref::<std::io::Error>().map(std::io::Error::kind) {
            Some(ErrorKind::NotFound) => return FailureKind::NotFound,
            Some(ErrorKind::PermissionDenied) => return FailureKind::Permission,
            _ => cause = now.source(),
        }
    }
    match error {
        Error::Hub(hub::Error::NotHere { .. } | hub::Error::UnknownShort { .. }) => {
            FailureKind::NotFound
        }
        _ if error.exit_code() == 2 => FailureKind::Usage,
        _ => FailureKind::Other,
    }
}

/// The kind of a fault of files or memory.
fn of_memory(error: &arclight_engine::Error) -> Option<FailureKind> {
    use arclight_engine::Error as E;
    let error = match error {
        E::Replica { source, .. } => return of_memory(source),
        E::File(error) | E::ReplicasRoom { source: error, .. } => error,
        E::Graph(graph::Error::Memory(error)) => error,
        _ => return None,
    };
    match error {
        memory::Error::NotFound { .. } => Some(FailureKind::NotFound),
        memory::Error::Permission { .. } => Some(FailureKind::Permission),
        memory::Error::NoRoom { .. } => Some(FailureKind::Memory),
        _ => None,
    }
}

/// Loads a model. `args` are arguments of `arclight serve`, the model among them; `progress` is told of the bytes of
/// weights that are done, and of all.
///
/// # Errors
/// When an argument is wrong or is about a server, or the model cannot be loaded.
pub fn open(
    args: Vec<OsString>,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Opened, Failure> {
    Ok(opened(&read(args)?, progress)?)
}

/// Reads arguments, without environment variables and files of configuration.
fn read(args: Vec<OsString>) -> Result<ServeArgs, Failure> {
    let usage = |message: String| Failure { kind: FailureKind::Usage, message };
    let words = ["arclight", settings::SERVE].map(OsString::from);
    let matches = Cli::command()
        .color(ColorChoice::Never)
        .try_get_matches_from(words.into_iter().chain(args));
    let wrong = |e: clap::Error| usage(cli::one_line(&e.render().to_string()));
    let matches = matches.map_err(wrong)?;
    let (_, serve) = matches.subcommand().expect("it was named");
    if let Some(name) = of_server(serve) {
        return Err(usage(format!("{name} is about a server: a model in a program has none")));
    }
    let args = ServeArgs::from_arg_matches(serve).map_err(wrong)?;
    if args.has_several() {
        return Err(usage("one model can be loaded at a time".to_owned()));
    }
    Ok(args)
}

/// An argument that was given and is about connections or clients.
fn of_server(serve: &ArgMatches) -> Option<String> {
    let command = Cli::command();
    let options = command.find_subcommand(settings::SERVE).expect("the command has it");
    let given = |id: &str| serve.value_source(id) == Some(ValueSource::CommandLine);
    let mut names = options.get_arguments().filter(|arg| given(arg.get_id().as_str()));
    names.find_map(|arg| {
        let name = settings::key(arg);
        settings::OF_SERVER.contains(&&*name).then_some(name)
    })
}

fn opened(args: &ServeArgs, progress: &mut dyn FnMut(usize, usize)) -> Result<Opened, Error> {
    let file = Arc::new(load::open(args.model())?);
    file.gguf()?;
    let mut options = args.options(file.path())?;
    let mut loading = args.loading()?;
    options.adapters = args.adapters(&file, &mut loading, &options.names)?;
    args.machine().tune(&file, &mut loading)?;
    options.request_timeout = None;
    options.choices = usize::MAX;
    // What a program does between two requests is its own.
    options.measure_reads = None;
    let loading = LoadOptions {
        step_outputs: loading.sequences.map(|sequences| sequences.max(ROWS)),
        stats: false,
        ..loading
    };
    let serving = ReplicaOptions { queue: None, ..args.serving(&file)? };
    let told = &mut |p: LoadProgress| progress(p.done, p.total);
    let model = Model::load(&file, &loading, &serving, &args.style(), told);
    let model = model.map_err(|error| match error {
        // Told as what it is.
        arclight_server::Error::Engine(error) => Error::Engine(error),
        error => Error::Server(error),
    })?;
    let app = Arc::new(App::new(options));
    app.ready(model);
    Ok(Opened { app, path: file.path().to_owned() })
}

/// The threads that prepare requests and read answers.
///
/// # Errors
/// When they cannot be had.
pub fn library_runtime() -> Result<Runtime, Failure> {
    Ok(front::runtime()?)
}

/// Writes warnings to standard error from now on, or what `ARCLIGHT_LOG` asks for, and nothing else.
///
/// # Errors
/// When the variable cannot be understood.
pub fn log_warnings() -> Result<(), Failure> {
    term::set(true, ColorChoice::Auto);
    Ok(logging::install(0, false, logging::Style::Lines, None)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(args: &[&str]) -> Failure {
        let args = args.iter().map(OsString::from).collect();
        open(args, &mut |_, _| {}).err().expect("it cannot be opened")
    }

    #[test]
    fn faults_say_what_they_are() {
        let gone = failure(&["/nowhere/model.gguf"]);
        assert_eq!(gone.kind, FailureKind::NotFound, "{gone:?}");
        assert_eq!(failure(&["--ctx=0"]).kind, FailureKind::Usage);
        assert_eq!(failure(&["--chat-format=nothing"]).kind, FailureKind::Usage);
        let served = failure(&["--port=1"]);
        assert_eq!(served.kind, FailureKind::Usage);
        assert!(served.message.starts_with("port is about a server"), "{}", served.message);
        let long = failure(&["--ctx=1000000"]);
        assert!(long.kind == FailureKind::Usage && long.message.contains("trained"), "{long:?}");
    }
}
