//! Engines by their names.

use super::machine::Target;
use crate::error::Error;
use clap::ValueEnum;
use serde::Serialize;
use tune::{Engine, Pages, known};

/// An engine that can be predicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum EngineArg {
    Unplaced,
    Interleaved,
    Replicated,
    TpA,
    TpB,
    Pp,
    NumaAware,
    PaperA,
    PaperB,
}

impl EngineArg {
    /// What is compared unless asked otherwise.
    pub(super) const DEFAULT: [EngineArg; 5] = [
        EngineArg::Unplaced,
        EngineArg::Interleaved,
        EngineArg::Replicated,
        EngineArg::TpA,
        EngineArg::TpB,
    ];

    /// As the command line has it.
    pub(super) fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// For people.
    pub(super) fn title(self) -> &'static str {
        match self {
            EngineArg::Unplaced => "unplaced (llama.cpp)",
            EngineArg::Interleaved => "interleaved",
            EngineArg::Replicated => "replicated",
            EngineArg::TpA => "this engine, Sync A",
            EngineArg::TpB => "this engine, Sync B",
            EngineArg::Pp => "this engine, pipeline",
            EngineArg::NumaAware => "llama.cpp, NUMA-aware (Arm)",
            EngineArg::PaperA => "ArcLight (paper), Sync A",
            EngineArg::PaperB => "ArcLight (paper), Sync B",
        }
    }

    /// The engine on a machine.
    pub(super) fn on(self, target: &Target) -> Result<Engine, Error> {
        let nodes = target.model.nodes();
        Ok(match self {
            EngineArg::Unplaced => Engine::unplaced(target.unplaced.clone()),
            EngineArg::Interleaved => {
                Engine::unplaced(Pages::interleaved(nodes).map_err(Error::usage)?)
            }
            EngineArg::Replicated => Engine::replicated(),
            EngineArg::TpA => Engine::tensor_parallel_sync_a(),
            EngineArg::TpB => Engine::tensor_parallel(),
            EngineArg::Pp => Engine::pipeline(),
            EngineArg::NumaAware => known::llama_cpp_numa_aware(),
            EngineArg::PaperA => known::arclight_sync_a(nodes),
            EngineArg::PaperB => known::arclight(nodes),
        })
    }
}
