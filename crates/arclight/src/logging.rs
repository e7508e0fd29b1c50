//! What the program tells about itself: `tracing` events on standard error, in the form of the
//! error line (`warning: …`); a server's with times, or as JSON.

use crate::error::Error;
use clap::ValueEnum;
use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// The environment variable that says what to log.
pub(crate) const VARIABLE: &str = "ARCLIGHT_LOG";

/// The target of lines on standard error about what goes on, where they are JSON.
pub(crate) const NOTES: &str = "arclight::serve";

static JSON: AtomicBool = AtomicBool::new(false);

/// Whether all that the program tells of itself is JSON.
pub(crate) fn is_json() -> bool {
    JSON.load(Relaxed)
}

/// How events are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// For people at a terminal.
    Lines,
    /// For people who look later.
    Server(Format),
}

/// How a server's events are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// A line with time, level and fields
    Text,
    /// A JSON object on a line
    Json,
}

/// Logs from now on; errors alone if `quiet`. `said` is what to log, by the command line.
///
/// # Errors
/// When this, or the environment variable without it, cannot be understood.
pub(crate) fn install(
    verbose: u8,
    quiet: bool,
    style: Style,
    said: Option<&str>,
) -> Result<(), Error> {
    let variable = std::env::var(VARIABLE).ok();
    let filter = filter(verbose, quiet, style, said.or(variable.as_deref()))?;
    let ansi = anstream::AutoStream::choice(&std::io::stderr()) != anstream::ColorChoice::Never;
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(ansi);
    // Each has a type of its own.
    macro_rules! start {
        ($log:expr) => {{
            let log = $log.with_filter_reloading();
            let handle = log.reload_handle();
            let set = move |filter| handle.reload(filter).map_err(|e| e.to_string());
            let _ = SET.set(Box::new(set));
            log.init();
        }};
    }
    match style {
        Style::Lines => start!(log.event_format(Lines)),
        Style::Server(Format::Text) => start!(log.with_target(false)),
        Style::Server(Format::Json) => {
            JSON.store(true, Relaxed);
            start!(log.json().flatten_event(true).with_target(false));
        }
    }
    Ok(())
}

/// Changes what is logged.
type Set = Box<dyn Fn(EnvFilter) -> Result<(), String> + Send + Sync>;

static SET: OnceLock<Set> = OnceLock::new();

/// What a server is to log from now on.
///
/// # Errors
/// When it cannot be understood.
pub(crate) fn check(said: &str) -> Result<(), Error> {
    parse(said).map(drop)
}

/// Changes what is logged, which [`check`] has found right.
pub(crate) fn change(quiet: bool, format: Format, said: Option<&str>) -> Result<(), Error> {
    let filter = filter(0, quiet, Style::Server(format), said)?;
    SET.get().map_or(Ok(()), |set| set(filter)).map_err(Error::Refused)
}

fn parse(text: &str) -> Result<EnvFilter, Error> {
    EnvFilter::try_new(text).map_err(|e| {
        Error::Usage(format!(
            "{VARIABLE}={text:?} is no filter ({e}): use a level such as debug, or arclight_engine=debug"
        ))
    })
}

fn filter(verbose: u8, quiet: bool, style: Style, said: Option<&str>) -> Result<EnvFilter, Error> {
    let filter = match said {
        Some(text) => parse(text)?,
        None => EnvFilter::new(match (verbose, style) {
            _ if quiet => "error",
            (0, Style::Lines) => "warn",
            (0, Style::Server(_)) => {
                "warn,arclight_server=info,arclight::serve=info,arclight_engine::stages=info"
            }
            (1, _) => "info",
            _ => "debug",
        }),
    };
    // What would be said without a log as well.
    let notes = !quiet && style == Style::Server(Format::Json);
    Ok(match format!("{NOTES}=info").parse() {
        Ok(notes_too) if notes => filter.add_directive(notes_too),
        _ => filter,
    })
}

struct Lines;

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let word = match *event.metadata().level() {
            Level::ERROR => "error",
            Level::WARN => "warning",
            Level::INFO => "info",
            Level::DEBUG => "debug",
            Level::TRACE => "trace",
        };
        write!(writer, "{word}: ")?;
        context.field_format().format_fields(writer.by_ref(), event)?;
        writeln!(writer)
    }
}
