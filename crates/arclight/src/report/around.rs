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
        Look { company: engine.company().cloned().unwrap_or_default(), ..Look::of_machine() }
    }

    /// For work of several engines.
    pub(crate) fn of_machine() -> Look {
        Look { sample: Sample::read(Path::new("/")), company: Company::default() }
    }

    /// The causes since then, the largest loss first.
    pub(crate) fn causes(&self, engine: &Engine, machine: &Machine) -> Vec<Cause> {
        let company = engine.company().map(|now| now.since(&self.company));
        let company =
            company.map(|Company { left_out, steps, steps_without, watched, delayed }| {
                Contention { left_out, steps, steps_without, watched, delayed }.cause()
            });
        company.flatten().into_iter().chain(self.causes_in(machine)).collect()
    }

    /// Those in the machine.
    pub(crate) fn causes_in(&self, machine: &Machine) -> Vec<Cause> {
        let root = Path::new("/");
        let checks = check_between(root, machine, &self.sample, &Sample::read(root));
        checks.iter().filter_map(Check::cause).collect()
    }
}
