//! What took speed from some work, whatever the model did: other programs, limits of the system, sleep.

use arclight_engine::{Company, Engine};
use serde::Serialize;
use std::fmt;
use std::path::Path;
use topology::Machine;
use topology::health::{Sample, State, check_between};

/// From this share of the steps' time on it is worth a sentence that a core was left out, or that a thread was not
/// let run.
const MUCH: f64 = 0.02;

/// A look at the machine before some work.
pub(crate) struct Look {
    sample: Sample,
    company: Company,
}

/// What took speed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Cause {
    /// A sentence with its figure.
    pub(crate) text: String,
    /// What mends it.
    pub(crate) mend: Vec<String>,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cause { text, mend } = self;
        match mend.first() {
            None => f.write_str(text),
            Some(first) => write!(f, "{text} What helps: {first}"),
        }
    }
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
        let checks = checks.into_iter().filter_map(|check| {
            let State::Costs { share, mend } = check.state else { return None };
            let share = super::table::percent(share);
            let text = format!("Up to {share} is lost to {}: {}.", check.name, check.seen);
            Some(Cause { text, mend })
        });
        company.iter().filter_map(of_company).chain(checks).collect()
    }
}

/// What an engine has seen on its cores.
fn of_company(company: &Company) -> Option<Cause> {
    let steps = company.steps.as_secs_f64();
    if steps == 0.0 {
        return None;
    }
    let without = company.steps_without.as_secs_f64() / steps;
    let delays = company.delayed.iter().map(|(cpu, time)| (time.as_secs_f64() / steps, cpu.0));
    let worst = delays.max_by(|a, b| a.0.total_cmp(&b.0));
    let text = if without >= MUCH {
        let share = super::table::percent(without);
        let cpus: Vec<u32> = match company.left_out.as_slice() {
            [] => worst.iter().map(|(_, cpu)| *cpu).collect(),
            some => some.iter().map(|cpu| cpu.0).collect(),
        };
        let ids = cpus.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
        let (are, them) = if cpus.len() == 1 { ("CPU", "it") } else { ("CPUs", "them") };
        format!(
            "Other programs are busy on {are} {ids}: the steps of {share} of the time went without {them}."
        )
    } else {
        let (share, cpu) = worst.filter(|(share, _)| *share >= MUCH)?;
        let share = super::table::percent(share);
        format!(
            "The thread on CPU {cpu} was not let run for {share} of the time, and the others waited for it."
        )
    };
    let mend = ["arclight doctor names the programs; --cpus chooses other cores".to_owned()];
    Some(Cause { text, mend: mend.to_vec() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use topology::CpuId;

    #[test]
    fn cores_that_others_are_busy_on_are_named() {
        let seconds = Duration::from_secs;
        let mut company = Company { steps: seconds(100), ..Company::default() };
        assert_eq!(of_company(&company), None);
        company.delayed.insert(CpuId(2), seconds(1));
        company.delayed.insert(CpuId(7), seconds(3));
        let text = of_company(&company).unwrap().text;
        assert!(text.starts_with("The thread on CPU 7 was not let run for 3.0 % of"), "{text}");
        company.steps_without = seconds(71);
        company.left_out = vec![CpuId(2), CpuId(7)];
        let text = of_company(&company).unwrap().text;
        let words = "busy on CPUs 2, 7: the steps of 71 % of the time went without them.";
        assert!(text.ends_with(words), "{text}");
        assert_eq!(of_company(&Company::default()), None);
    }
}
