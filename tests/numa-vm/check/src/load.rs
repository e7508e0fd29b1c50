//! The options of loading that all commands share.

use crate::error::Error;
use arclight_engine::{Engine, LoadOptions, LoadProgress, ModelFile, Numa};
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// Room for the script.
pub(crate) const CONTEXT: usize = 256;

/// Which model, on how much of the machine.
#[derive(Args, Clone, Debug)]
pub(crate) struct LoadArgs {
    /// Model in a GGUF file
    #[arg(long, value_name = "FILE")]
    model: PathBuf,
    /// How the nodes share it
    #[arg(long, value_name = "MODE", value_enum, default_value_t = Mode::Auto)]
    pub(crate) numa: Mode,
    /// Memory nodes [default: the engine's choice]
    #[arg(long, value_name = "N")]
    nodes: Option<usize>,
}

/// The engine's modes by the command line's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    Auto,
    Tp,
    Pp,
    Mirror,
    Interleave,
    Off,
}

impl From<Mode> for Numa {
    fn from(mode: Mode) -> Numa {
        match mode {
            Mode::Auto => Numa::Auto,
            Mode::Tp => Numa::TensorParallel,
            Mode::Pp => Numa::Pipeline,
            Mode::Mirror => Numa::Mirror,
            Mode::Interleave => Numa::Interleave,
            Mode::Off => Numa::Off,
        }
    }
}

impl LoadArgs {
    /// Loads with `threads` threads, or as many as the engine chooses.
    pub(crate) fn load(&self, threads: Option<usize>) -> Result<Engine, Error> {
        self.load_telling(threads, false, &mut |_| {})
    }

    /// As above, telling of the progress, and counting waits or not.
    pub(crate) fn load_telling(
        &self,
        threads: Option<usize>,
        stats: bool,
        progress: &mut dyn FnMut(LoadProgress),
    ) -> Result<Engine, Error> {
        let file = ModelFile::open(&self.model)?;
        let options = LoadOptions {
            numa: self.numa.into(),
            nodes: self.nodes,
            threads,
            context: Some(CONTEXT),
            stats,
            ..LoadOptions::default()
        };
        let engine = Engine::load(&file, &options, progress)?;
        for warning in &engine.report().warnings {
            println!("warning: {warning}");
        }
        Ok(engine)
    }
}
