//! `--speculate`: what guesses tokens ahead, for all commands that answer.

use crate::error::Error;
use crate::hub::named::{self, Missing};
use crate::model_file;
use arclight_engine::{Speculation, Timings};
use clap::{Args, ValueHint};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

/// What guesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Lookup,
    Predict,
    Draft,
}

/// What guesses, and how many tokens at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct What {
    kind: Kind,
    most: Option<usize>,
}

impl FromStr for What {
    type Err = String;

    fn from_str(text: &str) -> Result<What, String> {
        let number = |text: &str| match text.parse() {
            Ok(0) | Err(_) => Err(format!("{text} is no number of tokens, at least 1")),
            Ok(most) => Ok(Some(most)),
        };
        let (name, most) = match text.split_once(':') {
            Some((name, most)) => (name, number(most)?),
            None if text.starts_with(|c: char| c.is_ascii_digit()) => ("lookup", number(text)?),
            None => (text, None),
        };
        let kind = match name {
            "lookup" => Kind::Lookup,
            "mtp" => Kind::Predict,
            "draft" => Kind::Draft,
            _ => return Err("use lookup, mtp or draft, with :N for at most N tokens".to_owned()),
        };
        Ok(What { kind, most })
    }
}

/// Guesses.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Speculation")]
pub(crate) struct SpeculateArgs {
    /// Guess tokens ahead, to compute several in a step: the same answers, sooner. From the text so far
    /// (lookup), by the model's own layer for it (mtp), or by --draft-model (draft); with :N at most N
    /// tokens [default: 8, of mtp 5]. Guessing stops where it loses
    #[arg(long, value_name = "WHAT[:N]")]
    speculate: Option<What>,
    /// Smaller model of the same vocabulary that guesses
    #[arg(long, value_name = "MODEL", value_hint = ValueHint::FilePath)]
    draft_model: Option<PathBuf>,
}

impl SpeculateArgs {
    /// What they ask for; a smaller model that is not here is fetched unless `offline`.
    ///
    /// # Errors
    /// When they contradict each other, or the smaller model cannot be opened.
    pub(crate) fn speculation(&self, offline: bool) -> Result<Speculation, Error> {
        let most = |default| self.speculate.and_then(|what| what.most).unwrap_or(default);
        match (self.speculate.map(|what| what.kind), &self.draft_model) {
            (None, None) => Ok(Speculation::Off),
            (Some(Kind::Lookup), None) => Ok(Speculation::Lookup(most(8))),
            (Some(Kind::Predict), None) => Ok(Speculation::Predict(most(5))),
            (Some(Kind::Draft) | None, Some(path)) => {
                let missing = if offline { Missing::Offline } else { Missing::Fetch };
                let file = model_file::open(named::file(path, missing)?)?;
                Ok(Speculation::Draft(Arc::new(file), most(8)))
            }
            (Some(Kind::Draft), None) => Err(Error::Usage(
                "--speculate draft wants a smaller model: name it with --draft-model".to_owned(),
            )),
            (Some(Kind::Lookup | Kind::Predict), Some(_)) => Err(Error::Usage(
                "--draft-model guesses by itself: leave --speculate out, or say draft".to_owned(),
            )),
        }
    }
}

/// How many guesses came true, for people; `None` if nothing was guessed.
pub(crate) fn acceptance(timings: &Timings) -> Option<String> {
    let Timings { guessed, right, .. } = *timings;
    let share = 100.0 * right as f64 / guessed.max(1) as f64;
    (guessed > 0).then(|| format!("{right} of {guessed} tokens came true ({share:.0} %)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_read() {
        let read = |text: &str| text.parse::<What>();
        assert_eq!(read("mtp"), Ok(What { kind: Kind::Predict, most: None }));
        assert_eq!(read("lookup:5"), Ok(What { kind: Kind::Lookup, most: Some(5) }));
        assert_eq!(read("6"), Ok(What { kind: Kind::Lookup, most: Some(6) }), "as it once was");
        for wrong in ["", "mpt", "mtp:0", "mtp:", "lookup:x", "0"] {
            assert!(read(wrong).is_err(), "{wrong:?}");
        }
    }
}
