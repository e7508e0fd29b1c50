//! What on the machine takes speed from the server, as `arclight doctor` looks for it.
//!
//! Programs are not named: whoever may ask the server need not know what else runs beside it.

use std::path::Path;
use std::time::{Duration, Instant};
use topology::Machine;
use why::machine::{Check, Sample, State, check};

/// Time between two looks at what others do: shorter ones tell little, as the kernel counts in hundredths of a
/// second.
const BETWEEN: Duration = Duration::from_secs(2);

/// What was seen last.
#[derive(Default)]
pub(super) struct Health {
    last: Option<(Instant, Sample)>,
    checks: Vec<Check>,
}

impl Health {
    /// What costs speed, what costs most first. At the first call what others take is not known.
    pub(super) fn checks(&mut self, machine: &Machine) -> Vec<Check> {
        let root = Path::new("/");
        let now = Instant::now();
        match &self.last {
            Some((last, _)) if now - *last < BETWEEN => {}
            last => {
                let sample = Sample::read_sums(root);
                let before = last.as_ref().map_or(&sample, |(_, before)| before);
                let mut checks = check(root, machine, before, &sample);
                checks.retain(|check| matches!(check.state, State::Costs { .. }));
                checks.iter_mut().for_each(refer);
                self.checks = checks;
                self.last = Some((now, sample));
            }
        }
        self.checks.clone()
    }
}

/// The program that names programs.
fn refer(check: &mut Check) {
    if let State::Costs { mend, .. } = &mut check.state
        && check.name == "other programs"
    {
        *mend = vec!["arclight doctor names them".to_owned()];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_have_no_names() {
        let machine = Machine::read().unwrap();
        let mut health = Health::default();
        health.checks(&machine);
        // As if it were older.
        let (last, _) = health.last.as_mut().unwrap();
        *last -= BETWEEN;
        let checks = health.checks(&machine);
        let others = checks.iter().find(|check| check.name == "other programs");
        if let Some(Check { seen, state: State::Costs { mend, .. }, .. }) = others {
            assert!(seen.ends_with("of the machine"), "{seen}");
            assert_eq!(mend, &["arclight doctor names them"]);
        }
    }
}
