//! Causes of low speed that do not depend on the model: other programs, limits of the system, sleep.

use arclight_engine::{Company, Engine};
use std::path::Path;
use topology::Machine;
use why::Cause;
use why::machine::{Check, Sample, check_between};
use why::threads::Contention;

/// The state of the machine before some work.
pub(crate) struct Look {
    sample: Sample,
    company: Company,
}

impl Look {
    pub(crate) fn new(engine: &Engine) -> Look {
        let company = engine.company().cloned().unwrap_or_default();
        Look { sample: Sample::read(Path::new("/")), company }
    }

    /// The causes since then, the largest loss first.
    pub(crate) fn causes(&self, engine: &Engine, machine: &Machine) -> Vec<Cause> {
        let root = Path::new("/");
        let company = engine.company().map(|now| now.since(&self.company));
        let checks = check_between(root, machine, &self.sample, &Sample::read(root));
        let company = company.map(|Company { left_out, steps, steps_without, delayed }| {
            Contention { left_out, steps, steps_without, delayed }.cause()
        });
        company.flatten().into_iter().chain(checks.iter().filter_map(Check::cause)).collect()
    }
}
