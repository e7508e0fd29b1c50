//! What the program tells about itself: `tracing` events on standard error, in the form of the
//! error line (`warning: …`); a server's with times, or as JSON.

use crate::error::Error;
use clap::ValueEnum;
use std::fmt;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// The environment variable that says what to log.
pub(crate) const VARIABLE: &str = "ARCLIGHT_LOG";

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

/// Logs from now on; errors alone if `quiet`.
///
/// # Errors
/// When the environment variable cannot be understood.
pub(crate) fn install(verbose: u8, quiet: bool, style: Style) -> Result<(), Error> {
    let filter = match std::env::var(VARIABLE) {
        Ok(text) => EnvFilter::try_new(&text).map_err(|e| {
            Error::Usage(format!(
                "{VARIABLE}={text:?} is no filter ({e}): use a level such as debug, or \
                 arclight_engine=debug"
            ))
        })?,
        Err(_) => EnvFilter::new(match (verbose, style) {
            _ if quiet => "error",
            (0, Style::Lines) => "warn",
            (0, Style::Server(_)) => "warn,arclight_server=info",
            (1, _) => "info",
            _ => "debug",
        }),
    };
    let ansi = anstream::AutoStream::choice(&std::io::stderr()) != anstream::ColorChoice::Never;
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(ansi);
    match style {
        Style::Lines => log.event_format(Lines).init(),
        Style::Server(Format::Text) => log.with_target(false).init(),
        Style::Server(Format::Json) => log.json().flatten_event(true).with_target(false).init(),
    }
    Ok(())
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
