//! Options of one model over several hosts: the stage of this host, and the addresses of the others.

use crate::error::Error;
use arclight_engine::{StageKey, StageOptions};
use clap::{Args, ValueHint};
use std::path::PathBuf;
use std::str::FromStr;

/// A model that several hosts share.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "One model over several hosts")]
pub(super) struct HostArgs {
    /// Which of the hosts this is: 1/3 has the first layers, 3/3 the last, and takes requests
    #[arg(long, value_name = "K/N")]
    stage: Option<StageArg>,
    /// Address on which a stage before the last listens for the others: ADDRESS:PORT, in a private network
    #[arg(long, value_name = "ADDRESS", requires = "stage")]
    stage_listen: Option<String>,
    /// Addresses of all stages before the last, from the first on, as the last and each other reach them: HOST:PORT
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',', requires = "stage")]
    stages: Vec<String>,
    /// File with a secret that all stages have; those without it are refused
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "stage")]
    stage_key_file: Option<PathBuf>,
    /// Listen for other hosts without a key: every program that reaches the port may use the stage
    #[arg(long, requires = "stage_listen", conflicts_with = "stage_key_file")]
    stage_without_key: bool,
}

/// A stage of several: `2/3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct StageArg {
    number: usize,
    of: usize,
}

impl FromStr for StageArg {
    type Err = String;

    fn from_str(text: &str) -> Result<StageArg, String> {
        let wrong =
            || "it must be two numbers, as in 1/3, the first from 1 to the second".to_owned();
        let (number, of) = text.split_once('/').ok_or_else(wrong)?;
        let size = |text: &str| text.parse::<usize>().map_err(|_| wrong());
        let stage = StageArg { number: size(number)?, of: size(of)? };
        match stage.of >= 2 && (1..=stage.of).contains(&stage.number) {
            true => Ok(stage),
            false => Err(wrong()),
        }
    }
}

impl HostArgs {
    pub(super) fn has_stage(&self) -> bool {
        self.stage.is_some()
    }

    /// Whether it is a stage before the last.
    pub(super) fn takes_no_requests(&self) -> bool {
        self.stage.is_some_and(|stage| stage.number < stage.of)
    }

    /// Address on which it listens for the others.
    pub(super) fn listen(&self) -> &str {
        self.stage_listen.as_deref().unwrap_or_default()
    }

    /// Checks that the options go together; `several`: the server has several models.
    pub(super) fn check(&self, several: bool) -> Result<(), Error> {
        let Some(StageArg { number, of }) = self.stage else { return Ok(()) };
        let usage = |text: String| Err(Error::Usage(format!("--stage {number}/{of}: {text}")));
        if several {
            return usage("hosts share one model: name no others".to_owned());
        }
        match (number == of, &self.stage_listen, self.stages.len()) {
            (true, Some(_), _) => usage(
                "the last stage connects to the others and listens for none: leave out --stage-listen"
                    .to_owned(),
            ),
            (true, None, got) if got != of - 1 => usage(format!(
                "give --stages the address of each stage before, from the first on: {}; there are {got}",
                of - 1
            )),
            (false, None, _) => usage(
                "give --stage-listen the address to listen on, as in 0.0.0.0:7001".to_owned(),
            ),
            (false, Some(_), 1..) => usage(
                "the last stage tells the others where they are: give --stages there alone"
                    .to_owned(),
            ),
            _ => Ok(()),
        }
    }

    /// What loading has to know of it.
    pub(super) fn stage(&self) -> Result<Option<StageOptions>, Error> {
        let Some(StageArg { number, of }) = self.stage else { return Ok(None) };
        let key = match &self.stage_key_file {
            None => StageKey::default(),
            Some(path) => {
                let secret = std::fs::read(path).map_err(|e| Error::read(path, e))?;
                if secret.trim_ascii().is_empty() {
                    return Err(Error::Refused(format!("{} has no key", path.display())));
                }
                StageKey::new(&secret)
            }
        };
        Ok(Some(StageOptions {
            number,
            of,
            peers: self.stages.clone(),
            key,
            without_key: self.stage_without_key,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_are_two_numbers() {
        assert_eq!("2/3".parse(), Ok(StageArg { number: 2, of: 3 }));
        for wrong in ["2", "0/3", "4/3", "1/1", "a/b", "1/2/3", ""] {
            assert!(wrong.parse::<StageArg>().is_err(), "{wrong}");
        }
    }
}
