//! Which cores a served model gets: those that were tuned for, or all but one, which is left to HTTP.

use crate::error::Error;
use crate::tune::first;
use crate::tune::stored::{self, Found, ProfileArgs};
use arclight_engine::{LoadOptions, ModelFile, Replicas};
use topology::Machine;

/// What decides on them.
pub(super) struct Cores {
    /// Which profile; `None` for no profile.
    pub(super) tuned: Option<ProfileArgs>,
    pub(super) replicas: usize,
}

impl Cores {
    /// Adds the cores to the options of loading. True if a search is to find them first, which takes its
    /// time: see [`Self::search`].
    pub(super) fn choose(
        &self,
        file: &ModelFile,
        options: &mut LoadOptions,
    ) -> Result<bool, Error> {
        let found = match &self.tuned {
            Some(args) => stored::apply(file, args, options, false)?,
            None => Found::Unwanted,
        };
        let search = found == Found::Nothing && first::is_worth(file)?;
        if !search {
            self.settle(file, options)?;
        }
        Ok(search)
    }

    /// Searches, and adds the cores to the options.
    pub(super) fn search(&self, file: &ModelFile, options: &mut LoadOptions) -> Result<(), Error> {
        first::start(file, options)?;
        self.settle(file, options)
    }

    /// Leaves a core to HTTP, where there are enough.
    fn settle(&self, file: &ModelFile, options: &mut LoadOptions) -> Result<(), Error> {
        let machine = Machine::read()?;
        if options.groups.is_some() {
            stored::leave_one(&machine, options);
        } else if options.threads.is_none() {
            let (parts, _) = Replicas::divide(file, &machine, options, self.replicas)?;
            let cores: usize = parts.iter().map(Machine::usable_cores).sum();
            if cores > 2 && cores > self.replicas {
                options.threads = Some((cores - 1) / self.replicas);
            }
        }
        Ok(())
    }
}
