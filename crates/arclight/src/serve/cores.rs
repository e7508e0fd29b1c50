//! Which cores a served model gets: those that were tuned for, or all but one, which is left to HTTP.

use crate::error::Error;
use crate::kernel_files::KernelArgs;
use crate::tune::apply::{self, Found, ProfileArgs};
use crate::tune::first::Untuned;
use arclight_engine::{LoadOptions, ModelFile, Replicas};
use topology::Machine;

/// What decides on them.
pub(super) struct Cores {
    /// Which profile; `None`: none fits.
    pub(super) tuned: Option<ProfileArgs>,
    /// Kernels from elsewhere, also without a profile.
    pub(super) kernels: KernelArgs,
    pub(super) replicas: usize,
}

impl Cores {
    /// Adds the cores to the options of loading. Also the model if nothing was found for it yet that may be worth
    /// finding.
    pub(super) fn choose(
        &self,
        file: &ModelFile,
        options: &mut LoadOptions,
    ) -> Result<Option<Untuned>, Error> {
        let Some(tuned) = &self.tuned else {
            options.schedules.preferred = self.kernels.load()?;
            self.settle(file, options)?;
            return Ok(None);
        };
        let found = apply::apply(file, tuned, self.replicas, options)?;
        self.settle(file, options)?;
        match found {
            // The search in idle time is for a model that has the machine for itself.
            Found::Nothing(untuned) if self.replicas == 1 => untuned.if_worth(file),
            Found::Nothing(_) | Found::Used | Found::Unwanted => Ok(None),
        }
    }

    /// Leaves a core to HTTP, where there are enough.
    fn settle(&self, file: &ModelFile, options: &mut LoadOptions) -> Result<(), Error> {
        let machine = Machine::read()?;
        if options.groups.is_some() {
            // As without a profile: of a replica's part each has a core less.
            let parts = machine.divide(self.replicas)?;
            apply::leave_one(&parts[0], options);
        } else if options.threads.is_none() {
            let parts = Replicas::divide(file, &machine, options, self.replicas)?;
            let cores: usize = parts.iter().map(|(part, _)| part.usable_cores()).sum();
            if cores > 2 && cores > self.replicas {
                options.threads = Some((cores - 1) / self.replicas);
            }
        }
        Ok(())
    }
}
