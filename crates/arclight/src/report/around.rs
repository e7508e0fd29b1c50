//! What took speed from some work, whatever the model did: other programs, limits of the system, sleep.

use arclight_engine::{Cause, Company, Engine};
use std::path::Path;
use topology::Machine;
use topology::health::{Sample, check_between};

/// A look at the machine before some work.
pub(crate) struct Look {
    sample: Sample,
    company: Company,
}

impl Look {
    pub(crate) fn new(engine: &Engine) -> Look {
        let company = engine.company().cloned().unwrap_or_default();
        Look { sample: Sample::read(Path::new("/")), company }
    }

    /// What took speed since, what costs most first.
    pub(crate) fn causes(&self, engine: &Engine, machine: &Machine) -> Vec<Cause> {
        let root = Path::new("/");
        let company = engine.company().map(|now| now.since(&self.company));
        let checks = check_between(root, machine, &self.sample, &Sample::read(root));
        let checks = checks.iter().filter_map(|check| {
            Some(Cause { text: check.sentence()?, mend: check.mend().to_vec() })
        });
        let company = company.as_ref().and_then(Company::cause);
        company.into_iter().chain(checks).collect()
    }
}
