//! `arclight list`: the models on this machine.

use super::progress::size;
use crate::error::Error;
use crate::kept::{self, Kept};
use crate::output::{Cell, Output, OutputArgs, figure, words};
use crate::term;
use clap::Args;
use hub::{Hub, Settings};
use serde_json::json;
use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

/// List the models on this machine, those of Ollama and LM Studio and kept conversions too
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ListArgs {
    /// List the short names instead, with size and licence
    #[arg(long)]
    names: bool,
    #[command(flatten)]
    output: OutputArgs,
}

const EXAMPLES: &str = "\
Examples:
  arclight list
  arclight list --names";

/// Runs the command.
pub(crate) fn run(args: &ListArgs) -> Result<(), Error> {
    let mut out = Output::new(args.output);
    if args.names {
        return names(&mut out);
    }
    let hub = Hub::new(Settings::from_env()?);
    let (models, unfinished, kept) = (hub.models(), hub.unfinished(), kept::all()?);
    let all = models.iter().map(|m| {
        json!({
            "name": m.name, "quant": m.quant, "bytes": m.bytes, "place": m.place.to_string(),
            "path": m.path().to_string_lossy(), "used": m.used.map(unix),
        })
    });
    let begun = unfinished.iter().map(|(repo, file)| {
        json!({"name": format!("{repo}:{}", file.file), "bytes": file.size, "done": file.done})
    });
    let converted = kept.iter().map(|one| {
        json!({
            "folder": one.folder.as_ref().map(|folder| folder.to_string_lossy()),
            "gone": one.is_orphan(), "quant": one.quant, "bytes": one.bytes,
            "path": one.file.to_string_lossy(), "made": one.made.map(unix),
        })
    });
    let all = json!({
        "models": all.collect::<Vec<_>>(), "unfinished": begun.collect::<Vec<_>>(),
        "converted": converted.collect::<Vec<_>>(),
    });
    if out.data(&all, &["/models", "/unfinished", "/converted"])? {
        return Ok(());
    }
    if models.is_empty() && unfinished.is_empty() && kept.is_empty() {
        writeln!(
            out,
            "There are no models here yet: arclight pull qwen3:0.6b fetches a small one."
        )?;
        return Ok(());
    }
    let now = SystemTime::now();
    out.table(models.iter().map(|m| {
        [
            words("name", 0, &m.name),
            figure("size", 8, size(m.bytes)),
            words("quant", 11, if m.quant.is_empty() { "-" } else { &m.quant }),
            words("place", 12, m.place),
            words("last used", 0, m.used.map_or_else(|| "-".to_owned(), |used| ago(now, used))),
        ]
    }))?;
    if !kept.is_empty() {
        if !models.is_empty() {
            writeln!(out)?;
        }
        out.table(kept.iter().map(|one| conversion(one, now)))?;
    }
    for (repo, file) in &unfinished {
        let (done, all) = (size(file.done), size(file.size));
        writeln!(out, "unfinished, {done} of {all}: {repo}:{}", file.file)?;
    }
    if !unfinished.is_empty() {
        writeln!(out, "arclight pull goes on with what is unfinished, arclight rm removes it")?;
    }
    Ok(())
}

/// A kept conversion, as a row.
fn conversion(kept: &Kept, now: SystemTime) -> [Cell; 4] {
    let folder = kept.folder.as_deref().unwrap_or(&kept.file).display();
    let gone = if kept.is_orphan() { " (gone)" } else { "" };
    [
        words("converted from", 0, format_args!("{folder}{gone}")),
        figure("size", 8, size(kept.bytes)),
        words("quant", 11, kept.quant.as_deref().unwrap_or("damaged")),
        words("made", 0, kept.made.map_or_else(|| "-".to_owned(), |made| ago(now, made))),
    ]
}

/// The table of short names.
fn names(out: &mut Output) -> Result<(), Error> {
    let all = hub::shorts().iter().map(|s| {
        json!({
            "name": s.name, "repo": s.repo().id(), "quant": s.quant, "bytes": s.size,
            "licence": s.licence,
        })
    });
    if out.data(&json!({ "names": all.collect::<Vec<_>>() }), &["/names"])? {
        return Ok(());
    }
    Ok(out.table(hub::shorts().iter().map(|s| {
        [
            words("name", 18, &s.name),
            figure("size", 8, size(s.size)),
            words("licence", 11, &s.licence),
            words("means", 0, format_args!("{}:{}", s.repo(), s.quant)),
        ]
    }))?)
}

/// Seconds since 1970.
fn unix(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}

/// How long ago something was, in the largest unit that fits.
pub(super) fn ago(now: SystemTime, then: SystemTime) -> String {
    let seconds = now.duration_since(then).map_or(0, |d| d.as_secs());
    let (count, unit) = match seconds {
        0..60 => return "just now".to_owned(),
        60..3600 => (seconds / 60, "minute"),
        3600..86_400 => (seconds / 3600, "hour"),
        _ => (seconds / 86_400, "day"),
    };
    format!("{} ago", term::plural(count as usize, unit))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn times_have_the_largest_unit_that_fits() {
        let now = SystemTime::now();
        let before = |seconds| ago(now, now - Duration::from_secs(seconds));
        assert_eq!(before(5), "just now");
        assert_eq!(before(60), "1 minute ago");
        assert_eq!(before(7300), "2 hours ago");
        assert_eq!(before(200_000), "2 days ago");
        assert_eq!(ago(now, now + Duration::from_secs(9)), "just now");
    }
}
