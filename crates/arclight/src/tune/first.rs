//! The first start of a model on a machine: a quick search, so that nobody has to know of `tune`.

use super::stored::{self, For, Part};
use super::{Depth, requests, search};
use crate::error::Error;
use crate::term::note;
use arclight_engine::{LoadOptions, ModelFile};
use std::time::Instant;
use topology::Machine;
use tune::tuner::Trace;

/// Smaller models answer fast enough on any cores; they are what people play and test with.
const SMALL: usize = 64 << 20;

/// Whether a search for this model may find something that is worth its time.
pub(crate) fn is_worth(file: &ModelFile) -> Result<bool, Error> {
    Ok(worth(file.bytes(), Machine::read()?.usable_cores()))
}

fn worth(bytes: usize, cores: usize) -> bool {
    bytes >= SMALL && cores > 1
}

/// Searches, keeps what is found, and puts it into the options. Whatever goes
/// wrong is told, and the model is served as it would be untuned.
///
/// # Errors
/// When the user has had enough.
pub(crate) fn start(file: &ModelFile, options: &mut LoadOptions) -> Result<(), Error> {
    let machine = Machine::read()?;
    note!(
        "this model's first start on this machine: finding the cores that serve it best takes 20 s at \
         most (--untuned leaves it out, `arclight tune` does it thoroughly)"
    );
    match tuned(file, &machine, options) {
        Err(Error::Interrupted) => Err(Error::Interrupted),
        Err(e) => {
            note!("not tuned: {e}");
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

fn tuned(file: &ModelFile, machine: &Machine, options: &mut LoadOptions) -> Result<(), Error> {
    let owner = For::of(machine, &file.gguf()?)?;
    let Some(path) = owner.path() else { return Ok(()) };
    let part = Part::create(&path)?;
    let trace = Trace::new(requests()).map_err(Error::refused)?;
    let LoadOptions { kv, reading, .. } = *options;
    let plain = LoadOptions { kv, reading, ..LoadOptions::default() };
    let start = Instant::now();
    let (outcome, interrupted) = search(Depth::Quick, &trace, 1, file, machine, &plain)?;
    if interrupted {
        return Err(Error::Interrupted);
    }
    let profile = owner.profile(outcome, start.elapsed());
    part.keep(&profile.text())?;
    stored::put(&profile, options);
    note!("kept in {}", path.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn toys_and_single_cores_are_not_tuned() {
        assert!(worth(300 << 20, 2));
        assert!(!worth(300 << 20, 1) && !worth(1 << 20, 64));
    }
}
