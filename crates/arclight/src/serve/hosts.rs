//! One model over several hosts: which part this one has, and the loop of one that takes no requests.

use super::args::ServeArgs;
use super::front::Front;
use super::reload::Settings;
use super::{runtime, system};
use crate::error::Error;
use crate::load;
use crate::term::note;
use arclight_engine::{StageKey, StageOptions, StageServer};
use arclight_server::{Keys, StageSite};
use clap::{Args, ValueHint};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::thread;
use tokio::sync::oneshot;

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

    /// Whether the options go together.
    pub(super) fn check(&self, args: &ServeArgs) -> Result<(), Error> {
        let Some(StageArg { number, of }) = self.stage else { return Ok(()) };
        let usage = |text: String| Err(Error::Usage(format!("--stage {number}/{of}: {text}")));
        if args.has_several() {
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

/// Runs a stage before the last.
pub(super) fn run(args: &ServeArgs) -> Result<(), Error> {
    let file = Arc::new(load::open(&args.model)?);
    let mut options = args.loading()?;
    args.cores().choose(&file, &mut options)?;
    let listen = args.hosts.stage_listen.as_deref().unwrap_or_default();
    let server = StageServer::bind(listen, &file, &options)?;
    let (status, stop, layers) = (server.status(), server.stopper(), server.layers());
    let site = Arc::new(StageSite::new(args.options(file.path())?, status.clone()));
    let runtime = runtime()?;
    let served = runtime.block_on(async {
        let settings = Settings::new(Keys::default(), args, Box::new(|_| Ok(Box::new(|| {}))));
        let front = Front::open(site, settings, args).await?;
        note!(
            "serving layers {} to {} as stage {}/{} on {}; /health and /metrics on {}",
            layers.start,
            layers.end - 1,
            status.stage,
            status.of,
            server.address(),
            front.urls(),
        );
        system::serving();
        let (ended, end) = oneshot::channel();
        let computing = thread::Builder::new().name("stage".to_owned()).spawn(move || {
            server.run();
            let _ = ended.send(());
        });
        let fault = |source| Error::Io { what: "cannot start a thread".into(), source };
        let computing = computing.map_err(fault)?;
        let failed = async {
            // It ends by itself only when it has panicked.
            let _ = end.await;
            Error::Refused("the thread that computes has ended: see above".to_owned())
        };
        let served = front.run(failed).await;
        stop.stop();
        let _ = computing.join();
        served
    });
    runtime.shutdown_background();
    served
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
