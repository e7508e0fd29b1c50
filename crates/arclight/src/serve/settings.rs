//! Options of `serve` from three places: the command line, environment variables, a TOML file.
//!
//! There is one list of options, the command's. A variable is an option's name in capitals after
//! `ARCLIGHT_`; what stands in the file is added to the command line where neither that nor a
//! variable says something. So all three are checked alike, and faults are told in the same words.
//!
//! A table `[models.NAME]` of the file is a model of its own. What it says comes before everything else that holds for
//! all models.

use super::args::{OwnArgs, Said, ServeArgs};
use clap::builder::BoolishValueParser;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{
    Arg, ArgAction, ArgMatches, ColorChoice, Command, CommandFactory, FromArgMatches, ValueEnum,
};
use std::ffi::OsString;
use std::path::Path;
use toml::{Table, Value};

pub(crate) const SERVE: &str = "serve";

/// The program's command line, with variables for the options of `serve`.
pub(crate) fn command() -> Command {
    crate::cli::Cli::command().mut_subcommand(SERVE, |serve| serve.mut_args(with_variable))
}

fn with_variable(arg: Arg) -> Arg {
    let name = format!("ARCLIGHT_{}", key(&arg).to_uppercase().replace('-', "_"));
    let arg = match arg.get_action() {
        ArgAction::SetTrue => arg.value_parser(BoolishValueParser::new()),
        _ => arg,
    };
    // What Kubernetes says of a service is not said to the option.
    if name == PORT && linked_port().is_some() {
        return arg;
    }
    // The help tells of all at once.
    arg.env(name).hide_env(true)
}

/// The variable of the option `port`. Kubernetes sets it as well, for a Service that is called arclight.
const PORT: &str = "ARCLIGHT_PORT";

/// What Kubernetes' service links say in the variable of the port, as in `tcp://10.0.0.1:80`: not where this server
/// is to listen.
pub(crate) fn linked_port() -> Option<String> {
    let value = std::env::var(PORT).ok()?;
    ["tcp://", "udp://", "sctp://"].iter().any(|scheme| value.starts_with(scheme)).then_some(value)
}

/// What an option is called in the file.
pub(crate) fn key(arg: &Arg) -> String {
    arg.get_long().map_or_else(|| arg.get_id().to_string(), str::to_owned)
}

/// Reads a command line.
pub(crate) fn matches(args: Vec<OsString>) -> Result<ArgMatches, clap::Error> {
    let color = color(&args);
    crate::term::set(false, color);
    read_line(args, color)
}

fn read_line(args: Vec<OsString>, color: ColorChoice) -> Result<ArgMatches, clap::Error> {
    let args: Vec<OsString> = args.into_iter().map(spelled).collect();
    let command = || command().color(color);
    let matches = command().try_get_matches_from(&args)?;
    let Some((SERVE, serve)) = matches.subcommand() else { return Ok(matches) };
    let Some(path) = serve.get_one::<std::path::PathBuf>("config") else { return Ok(matches) };
    let more = from_file(path, serve)?;
    let at = args.iter().position(|arg| arg == SERVE).map_or(args.len(), |at| at + 1);
    let (before, after) = args.split_at(at);
    let all = before.iter().cloned().chain(more).chain(after.iter().cloned());
    command().try_get_matches_from(all)
}

/// An argument by its long name, if it is one of the short names of llama.cpp's programs for which there is no letter.
fn spelled(arg: OsString) -> OsString {
    match arg.to_str() {
        Some("-ctk") => "--cache-type-k".into(),
        Some("-ctv") => "--cache-type-v".into(),
        _ => arg,
    }
}

/// The colours of help and faults, which are printed while the command line is read.
fn color(args: &[OsString]) -> ColorChoice {
    let at = args.iter().position(|arg| arg == "--color").map(|at| at + 1);
    let apart = at.and_then(|at| args.get(at)?.to_str());
    let joined = args.iter().find_map(|arg| arg.to_str()?.strip_prefix("--color="));
    let word = apart.or(joined).unwrap_or_default();
    <ColorChoice as ValueEnum>::from_str(word, false).unwrap_or(ColorChoice::Auto)
}

/// Options of `serve` that are about the server, and not about one model.
pub(crate) const OF_SERVER: [&str; 42] = [
    "admin-listen",
    "allowed-host",
    "api-key",
    "api-key-file",
    "batch-requests",
    "config",
    "cors-origin",
    "drain-timeout",
    "file-bytes",
    "files-bytes",
    "files-dir",
    "help",
    "host",
    "kv-events",
    "kv-events-pod",
    "kv-events-replay",
    "log",
    "log-format",
    "manage-models",
    "max-body",
    "mcp-config",
    "max-connections",
    "max-connections-per-address",
    "max-managed-models",
    "max-models",
    "models-dir",
    "models-memory",
    "otlp-endpoint",
    "pin",
    "port",
    "quiet",
    "read-timeout",
    "stage",
    "stage-key-file",
    "stage-listen",
    "stage-without-key",
    "stages",
    "tls-cert",
    "tls-key",
    "verbose",
    "color",
    "write-timeout",
];

/// The options of `serve`, with the models of the file.
pub(crate) fn complete(args: &mut ServeArgs, matches: &ArgMatches) -> Result<(), clap::Error> {
    args.tables = models(matches)?;
    args.said = said(matches)?;
    Ok(())
}

/// Reads the program's own command line, the variables and the file again.
///
/// # Errors
/// What is wrong with the file, in one line.
pub(crate) fn again() -> Result<ServeArgs, clap::Error> {
    let matches = read_line(std::env::args_os().collect(), ColorChoice::Never)?;
    let Some((SERVE, serve)) = matches.subcommand() else {
        return Err(command().error(ErrorKind::InvalidSubcommand, "the command is not serve"));
    };
    let mut args = ServeArgs::from_arg_matches(serve)?;
    complete(&mut args, &matches)?;
    Ok(args)
}

fn said(matches: &ArgMatches) -> Result<Said, clap::Error> {
    let Some((SERVE, serve)) = matches.subcommand() else { return Ok(Said::new()) };
    let command = command();
    let options = command.find_subcommand(SERVE).expect("the command has it");
    let each = options.get_arguments().map(|arg| {
        let values = serve.get_raw(arg.get_id().as_str()).into_iter().flatten();
        (key(arg), values.map(OsString::from).collect())
    });
    let mut all: Said = each.collect();
    if let Some(path) = serve.get_one::<std::path::PathBuf>("config")
        && let Some(Value::Table(tables)) = read(path)?.remove(MODELS)
    {
        for (name, table) in tables {
            for (key, value) in table.as_table().into_iter().flatten() {
                let key = format!("{MODELS}.{name}.{}", key.replace('_', "-"));
                all.insert(key, vec![format!("{value:?}").into()]);
            }
        }
    }
    Ok(all)
}

/// The models that the file of a command line has tables for.
///
/// # Errors
/// When a table has something that is no option of a model.
fn models(matches: &ArgMatches) -> Result<Vec<OwnArgs>, clap::Error> {
    let Some((SERVE, serve)) = matches.subcommand() else { return Ok(Vec::new()) };
    let Some(path) = serve.get_one::<std::path::PathBuf>("config") else { return Ok(Vec::new()) };
    let Some(tables) = read(path)?.remove(MODELS) else { return Ok(Vec::new()) };
    let wrong = |why: String| fault(path, &why);
    let Value::Table(tables) = tables else {
        return Err(wrong(format!("{MODELS} must be tables: [{MODELS}.NAME]")));
    };
    let command = command();
    let options = command.find_subcommand(SERVE).expect("the command has it");
    let mut all = Vec::new();
    for (name, table) in tables {
        let at = format!("{MODELS}.{name}");
        let Value::Table(mut table) = table else {
            return Err(wrong(format!("{at} must be a table: [{at}]")));
        };
        let pin = match table.remove("pin") {
            None => false,
            Some(Value::Boolean(pin)) => pin,
            Some(_) => return Err(wrong(format!("{at}: pin must be true or false"))),
        };
        if !table.contains_key("model") {
            return Err(wrong(format!("{at} has no model")));
        }
        if let Some(key) =
            table.keys().find(|key| OF_SERVER.contains(&key.replace('_', "-").as_str()))
        {
            return Err(wrong(format!("{at}: {key} is about the server, not about one model")));
        }
        let own = arguments(&table, options, |why| wrong(format!("{at}: {why}")), |_| true)?;
        let keys: Vec<String> = table.keys().map(|key| key.replace('_', "-")).collect();
        let shared =
            given(serve, options, |key| key == "model" || keys.iter().any(|own| own == key));
        let args = ["arclight", SERVE].map(OsString::from).into_iter().chain(shared).chain(own);
        let parsed = self::command().try_get_matches_from(args)?;
        let (_, parsed) = parsed.subcommand().expect("the command was given");
        let args = Box::new(ServeArgs::from_arg_matches(parsed)?);
        all.push(OwnArgs { name, args, pin });
    }
    Ok(all)
}

/// What a command line says, as one again, without some keys and without what is about the server.
fn given(serve: &ArgMatches, options: &Command, left_out: impl Fn(&str) -> bool) -> Vec<OsString> {
    let mut args = Vec::new();
    for arg in options.get_arguments() {
        let (id, name) = (arg.get_id().as_str(), key(arg));
        let said = matches!(
            serve.value_source(id),
            Some(ValueSource::CommandLine | ValueSource::EnvVariable)
        );
        if !said || arg.get_long().is_none() || OF_SERVER.contains(&&*name) || left_out(&name) {
            continue;
        }
        if let ArgAction::SetTrue = arg.get_action() {
            if serve.get_flag(id) {
                args.push(format!("--{name}").into());
            }
            continue;
        }
        for value in serve.get_raw(id).into_iter().flatten() {
            let mut one = OsString::from(format!("--{name}="));
            one.push(value);
            args.push(one);
        }
    }
    args
}

/// The table of a file's models.
const MODELS: &str = "models";

fn fault(path: &Path, why: &dyn std::fmt::Display) -> clap::Error {
    command().error(ErrorKind::Io, format!("{}: {why}", path.display()))
}

/// Reads the file.
fn read(path: &Path) -> Result<Table, clap::Error> {
    let text = std::fs::read_to_string(path).map_err(|e| fault(path, &e))?;
    text.parse().map_err(|e: toml::de::Error| {
        let line = e.span().map_or(0, |span| text[..span.start].lines().count().max(1));
        fault(path, &format!("line {line}: {}", e.message()))
    })
}

/// What the file adds to a command line.
fn from_file(path: &Path, given: &ArgMatches) -> Result<Vec<OsString>, clap::Error> {
    let mut table = read(path)?;
    table.remove(MODELS);
    let command = command();
    let serve = command.find_subcommand(SERVE).expect("the command has it");
    let unsaid = |arg: &Arg| {
        let source = given.value_source(arg.get_id().as_str());
        !matches!(source, Some(ValueSource::CommandLine | ValueSource::EnvVariable))
    };
    arguments(&table, serve, |why| fault(path, &why), unsaid)
}

/// A table as arguments, for those options that are `wanted`.
fn arguments(
    table: &Table,
    serve: &Command,
    fault: impl Fn(String) -> clap::Error,
    wanted: impl Fn(&Arg) -> bool,
) -> Result<Vec<OsString>, clap::Error> {
    let mut args = Vec::new();
    for (name, value) in table {
        let name = name.replace('_', "-");
        let arg = serve.get_arguments().find(|arg| key(arg) == name);
        let arg = arg.filter(|arg| arg.get_id() != "config" && arg.get_id() != "help");
        let arg = arg.ok_or_else(|| fault(format!("{name} is no option of arclight serve")))?;
        if !wanted(arg) {
            continue;
        }
        let wrong = |need: &str| fault(format!("{name} must be {need}"));
        match (arg.get_action(), value) {
            (ArgAction::SetTrue, Value::Boolean(true)) => args.push(format!("--{name}").into()),
            (ArgAction::SetTrue, Value::Boolean(false)) => {}
            (ArgAction::SetTrue, _) => return Err(wrong("true or false")),
            (ArgAction::Append, Value::Array(values)) => {
                for value in values {
                    let value = text_of(value).ok_or_else(|| wrong("a list of strings"))?;
                    args.push(option(arg, &name, &value));
                }
            }
            (_, value) => {
                let value = text_of(value).ok_or_else(|| wrong("a string or a number"))?;
                args.push(option(arg, &name, &value));
            }
        }
    }
    Ok(args)
}

fn option(arg: &Arg, name: &str, value: &str) -> OsString {
    match arg.get_long() {
        Some(_) => format!("--{name}={value}").into(),
        None => value.into(),
    }
}

fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Integer(n) => Some(n.to_string()),
        Value::Float(x) => Some(x.to_string()),
        _ => None,
    }
}
