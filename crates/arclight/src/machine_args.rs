//! Options for the part of the machine that a model gets, and its tuning profile.

use crate::args::{KvArgs, PlaceArgs, count};
use crate::error::Error;
use crate::lora::LoraArgs;
use crate::tune::apply::{self, Found, ProfileArgs};
use crate::tune::first::Untuned;
use arclight_engine::{LoadOptions, ModelFile};
use clap::Args;

/// How much of the machine.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Machine")]
pub(crate) struct MachineArgs {
    /// Threads [default: one per physical core that may be used]
    #[arg(short, long, value_name = "N", value_parser = count)]
    pub(crate) threads: Option<usize>,
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
    /// Leave threads where the system puts them instead of pinning each to a core
    #[arg(long)]
    pub(crate) no_pin: bool,
    #[command(flatten)]
    pub(crate) kv: KvArgs,
    #[command(flatten)]
    pub(crate) tuned: ProfileArgs,
    #[command(flatten)]
    pub(crate) lora: LoraArgs,
}

impl MachineArgs {
    /// Loading a model with these, everything else by default, and with what was found by tuning.
    pub(crate) fn options(&self, file: &ModelFile) -> Result<LoadOptions, Error> {
        let mut options = self.untuned();
        self.lora.add(file, &mut options)?;
        self.tune(file, &mut options)?;
        Ok(options)
    }

    /// Adds what was found by tuning.
    pub(crate) fn tune(&self, file: &ModelFile, options: &mut LoadOptions) -> Result<(), Error> {
        apply::apply(file, &self.tuned, 1, options).map(|_| ())
    }

    /// As [`Self::options`], and the model if nothing was found for it yet that may be worth finding.
    pub(crate) fn options_at_start(
        &self,
        file: &ModelFile,
    ) -> Result<(LoadOptions, Option<Untuned>), Error> {
        let mut options = self.untuned();
        self.lora.add(file, &mut options)?;
        let untuned = match apply::apply(file, &self.tuned, 1, &mut options)? {
            Found::Nothing(untuned) => untuned.if_worth(file)?,
            Found::Used | Found::Unwanted => None,
        };
        if let Some(untuned) = &untuned {
            let finds = untuned.finds();
            untuned.try_fewer(&mut options, move |line| finds.add(line));
        }
        Ok((options, untuned))
    }

    /// Loading with these, everything else by default.
    pub(crate) fn untuned(&self) -> LoadOptions {
        let mut options = LoadOptions {
            threads: self.threads,
            no_pin: self.no_pin,
            kv: self.kv.types(),
            ..LoadOptions::default()
        };
        self.place.apply(&mut options);
        options
    }
}
