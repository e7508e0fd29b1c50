//! Steps of a loaded model, timed for the search.
//!
//! The model is loaded once for each way to cut the machine into groups. Another order of the CPUs of a
//! group, or fewer of them, is a matter of milliseconds ([`Engine::rearrange`]), and another number of
//! threads one of none. What is timed are whole steps of the engine behind as many tokens as the trace
//! has there, on random tokens.

use super::lab::{self, Lab, Task};
use super::matrices;
use super::requests::SPARE;
use super::stored::{self, DISTANCES, PAGE_SIZES, PAGES, PREFETCH};
use crate::bench::measure::deepen;
use crate::error::Error;
use crate::{load, report};
use arclight_engine::{
    BatchEntry, CpuId, Engine, Group, HugePages, LoadOptions, ModelFile, Outputs, Schedules, SeqId,
};
use graph::Phase;
use loadgen::Rng;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};
use topology::{Energy, Machine};
use tune::tuner::{Candidate, Choice, Level, Measure, Objective, Scheme, StepKind};

/// Steps are repeated until they have taken this long together: the clock and the first waits should not
/// count.
const LEAST: Duration = Duration::from_millis(10);
/// Steps that are timed together at most.
const MOST_STEPS: u32 = 64;
/// The same of steps whose energy is read: meters advance once a millisecond, so this keeps their error at 1%.
const LEAST_METERED: Duration = Duration::from_millis(100);
const MOST_METERED: u32 = 10_000;

/// Times steps of one model.
pub(super) struct Steps<'a> {
    file: &'a ModelFile,
    pub(super) machine: &'a Machine,
    options: LoadOptions,
    /// Whether seconds or joules of steps are measured.
    pub(super) objective: Objective,
    /// Sequences that decode together; steps of more tokens are a prompt's.
    together: usize,
    loaded: Option<Loaded>,
    loading: Duration,
    /// Whether loading is shown.
    shown: bool,
    /// What went wrong when a model was loaded or a step taken; the search goes on without that.
    pub(super) faults: Vec<String>,
}

/// A model in memory, and for whom its threads stand.
struct Loaded {
    engine: Engine,
    /// As it was loaded: the order of the CPUs may be another by now.
    groups: Vec<Group>,
    pages: HugePages,
    /// From so many nodes on sums are scattered unless a choice says otherwise.
    scatter_nodes: usize,
    /// What the threads are arranged for, and the levels that are known to it.
    scheme: Scheme,
    levels: Vec<Level>,
    sequences: BTreeMap<u32, Vec<SeqId>>,
    tokens: Vec<u32>,
    /// Kinds of steps that take so long that what was in the caches before is nothing to them.
    long: BTreeMap<u32, bool>,
}

impl<'a> Steps<'a> {
    pub(super) fn new(
        file: &'a ModelFile,
        machine: &'a Machine,
        options: &LoadOptions,
        kinds: &[StepKind],
        together: usize,
    ) -> Steps<'a> {
        let of = |kind: &StepKind| sequences(kind, together);
        let longest =
            kinds.iter().map(|k| (k.depth as usize + new_tokens(k, together)).max(1)).max();
        let options = LoadOptions {
            context: Some(longest.unwrap_or(1) + SPARE),
            sequences: Some(kinds.iter().map(of).sum::<usize>().max(1)),
            step_outputs: Some(together),
            // What is measured is the cores that are asked for.
            fixed_cores: true,
            ..options.clone()
        };
        let (loaded, faults) = (None, Vec::new());
        let loading = Duration::ZERO;
        let shown = true;
        let objective = Objective::Time;
        Steps { file, machine, options, objective, together, loaded, loading, shown, faults }
    }

    /// Without a bar for loading.
    pub(super) fn quietly(self) -> Steps<'a> {
        Steps { shown: false, ..self }
    }

    fn load(&self, options: &LoadOptions) -> Result<Engine, Error> {
        if self.shown {
            load::load_engine_on(self.file, self.machine, options)
        } else {
            Ok(Engine::load_on(self.file, self.machine, options, &mut |_| {})?)
        }
    }

    /// Settings that the search may choose: prefetch distances; page sizes, what the engine takes by itself
    /// first, unless they were given. After [`Steps::default_scheme`].
    pub(super) fn choices(&mut self) -> Vec<Choice> {
        let options = DISTANCES.map(str::to_owned).to_vec();
        let distances = Choice { name: PREFETCH.to_owned(), options };
        let Some(loaded) = self.loaded.as_ref().filter(|_| self.options.huge_pages.is_none())
        else {
            return vec![distances];
        };
        let own = |(_, size): &&(&str, HugePages)| *size == loaded.pages;
        let (first, rest): (Vec<_>, Vec<_>) = PAGE_SIZES.iter().partition(own);
        let options = first.into_iter().chain(rest).map(|(name, _)| (*name).to_owned()).collect();
        vec![distances, Choice { name: PAGES.to_owned(), options }]
    }

    /// The groups and the CPUs that the model gets when nothing is said.
    pub(super) fn default_scheme(&mut self) -> Result<Scheme, Error> {
        let start = Instant::now();
        let engine = self.load(&self.options)?;
        self.loading = start.elapsed();
        let groups = engine.plan().groups.clone();
        let scheme = Scheme::new(groups.clone()).map_err(Error::refused)?;
        self.loaded = Some(Loaded::new(engine, groups, scheme.clone()));
        Ok(scheme)
    }

    /// Loads the model and arranges its threads for a candidate.
    pub(super) fn prepare(&mut self, candidate: &Candidate<'_>) -> Result<(), Error> {
        self.arrange(candidate).map(drop)
    }

    /// Makes the threads stand as a scheme wants them, and gives the number of a level.
    fn arrange(&mut self, candidate: &Candidate<'_>) -> Result<(&mut Loaded, usize), Error> {
        let Candidate { scheme, level, choices, schedules } = *candidate;
        let pages = stored::pages(choices);
        let serves = |loaded: &Loaded| {
            pages.is_none_or(|pages| pages == loaded.pages)
                && serves(&loaded.groups, scheme.groups())
        };
        if !self.loaded.as_ref().is_some_and(serves) {
            self.loaded = None; // One model at a time: there may be no room for two.
            let groups = scheme.groups().to_vec();
            let huge_pages = pages.or(self.options.huge_pages);
            let options =
                LoadOptions { groups: Some(groups.clone()), huge_pages, ..self.options.clone() };
            let start = Instant::now();
            let engine = self.load(&options)?;
            self.loading = start.elapsed();
            self.loaded = Some(Loaded::new(engine, groups, scheme.clone()));
        }
        let machine = self.machine;
        let loaded = self.loaded.as_mut().expect("just loaded");
        let at = loaded.level(scheme, level, machine)?;
        // What of them is not known here was told when they were read or found.
        let mut wanted = schedules.map_or_else(Schedules::default, |found| matrices::all(found).0);
        wanted.usual.ahead = stored::ahead(choices).unwrap_or(wanted.usual.ahead);
        if loaded.engine.plan().schedules != wanted {
            loaded.multiply_by(wanted)?;
        }
        let nodes = stored::scatter_nodes(choices).unwrap_or(loaded.scatter_nodes);
        if loaded.engine.plan().scatter_nodes != nodes {
            loaded.engine.set_scatter_nodes(nodes)?;
        }
        Ok((loaded, at))
    }
}

impl Lab for Steps<'_> {
    fn time(&mut self, candidate: &Candidate<'_>, kind: &StepKind) -> Result<f64, Error> {
        let (together, objective) = (self.together, self.objective);
        let (loaded, level) = self.arrange(candidate)?;
        loaded.engine.force_level(Some(level));
        loaded.fill(kind, together)?;
        if loaded.long.get(&kind.tokens).is_none_or(|long| !long) {
            // What the step before has left in the caches is another step's.
            loaded.step(kind, together)?;
        }
        let (least, most) = match objective {
            Objective::Time => (LEAST, MOST_STEPS),
            Objective::Energy => (LEAST_METERED, MOST_METERED),
        };
        let before = meters(objective)?;
        let (mut steps, mut took) = (0, Duration::ZERO);
        while steps < most && took < least {
            loaded.fill(kind, together)?;
            let start = Instant::now();
            loaded.step(kind, together)?;
            took += start.elapsed();
            steps += 1;
        }
        loaded.long.insert(kind.tokens, steps == 1);
        let spent = match before {
            None => took.as_secs_f64(),
            Some(before) => consumed(report::joules(Some(&before)))?,
        };
        Ok(spent / f64::from(steps))
    }

    fn run(&mut self, candidate: &Candidate<'_>, task: Task) -> Result<(), Error> {
        let (loaded, level) = self.arrange(candidate)?;
        task(&mut loaded.engine, level);
        Ok(())
    }

    fn fault(&mut self, fault: String) {
        if !self.faults.contains(&fault) {
            self.faults.push(fault);
        }
    }
}

impl Measure for Steps<'_> {
    fn seconds(&mut self, candidate: &Candidate<'_>, kind: &StepKind) -> Option<f64> {
        let timed = self.time(candidate, kind);
        lab::told(self, timed)
    }

    fn load_seconds(&self) -> f64 {
        self.loading.as_secs_f64()
    }
}

impl Loaded {
    fn new(engine: Engine, groups: Vec<Group>, scheme: Scheme) -> Loaded {
        let scatter_nodes = engine.plan().scatter_nodes;
        let mut rng = Rng::new(1, "tune");
        let vocab = engine.hparams().vocab;
        let tokens = (0..engine.limits().tokens).map(|_| rng.below(vocab) as u32).collect();
        let pages = engine.report().huge_pages;
        let (levels, sequences) = (vec![scheme.all()], BTreeMap::new());
        let long = BTreeMap::new();
        Loaded { engine, groups, pages, scatter_nodes, scheme, levels, sequences, tokens, long }
    }

    fn multiply_by(&mut self, schedules: Schedules) -> Result<(), Error> {
        Ok(self.engine.set_schedules(schedules)?)
    }

    /// The plan's number of a level of a scheme that this model serves.
    fn level(&mut self, scheme: &Scheme, level: &Level, machine: &Machine) -> Result<usize, Error> {
        let counts: Vec<usize> = level.cpus().to_vec();
        if self.scheme != *scheme || !self.levels.contains(level) {
            // Levels of one scheme are nested, as the plan requires them.
            let mut known = if self.scheme == *scheme { self.levels.clone() } else { Vec::new() };
            known.push(level.clone());
            known.sort_by_key(Level::threads);
            let phases = known
                .iter()
                .zip(1..)
                .map(|(level, tokens)| Phase { tokens, threads: level.cpus().to_vec() });
            let order = self.groups.iter().zip(scheme.groups());
            let groups = order.map(|(all, first)| Group {
                node: all.node,
                cpus: reordered(&all.cpus, &first.cpus),
            });
            let (groups, phases) = (groups.collect(), phases.collect());
            self.engine.rearrange(groups, phases, machine)?;
            (self.scheme, self.levels) = (scheme.clone(), known);
        }
        let levels = self.engine.plan().levels();
        let at = levels.iter().position(|threads| *threads == counts);
        Ok(at.expect("a level of the plan"))
    }

    /// Makes the sequences of a kind of step as deep as it wants them.
    fn fill(&mut self, kind: &StepKind, together: usize) -> Result<(), Error> {
        let wanted = sequences(kind, together);
        while self.sequences.entry(kind.tokens).or_default().len() < wanted {
            let new = self.engine.new_sequence()?;
            self.sequences.entry(kind.tokens).or_default().push(new);
        }
        self.sequences[&kind.tokens].iter().try_for_each(|&sequence| {
            deepen(&mut self.engine, sequence, kind.depth as usize, &self.tokens)
        })
    }

    fn step(&mut self, kind: &StepKind, together: usize) -> Result<(), Error> {
        let new = new_tokens(kind, together);
        let entry = |(at, &sequence): (usize, &SeqId)| {
            let tokens = &self.tokens[at % (self.tokens.len() - new + 1)..][..new];
            BatchEntry { sequence, tokens, outputs: Outputs::Last }
        };
        let batch: Vec<BatchEntry<'_>> =
            self.sequences[&kind.tokens].iter().enumerate().map(entry).collect();
        self.engine.step(&batch)?;
        Ok(())
    }
}

/// The meters before steps whose energy is measured; `None` for time.
///
/// # Errors
/// When there are none that this process may read.
pub(super) fn meters(objective: Objective) -> Result<Option<Energy>, Error> {
    match objective {
        Objective::Time => Ok(None),
        Objective::Energy => Energy::read(Path::new("/")).map(Some).ok_or_else(|| {
            let text = "--objective energy: no meter of a processor (RAPL) can be read in \
                        /sys/class/powercap/intel-rapl:*; most systems permit it to root alone, and virtual machines \
                        have none";
            Error::Refused(text.to_owned())
        }),
    }
}

/// Joules that the meters have counted.
fn consumed(joules: Option<f64>) -> Result<f64, Error> {
    joules.filter(|joules| *joules > 0.0).ok_or_else(|| {
        Error::Refused(
            "the processors' meters of energy did not advance during a measurement".to_owned(),
        )
    })
}

/// Sequences in a step: as many as it has tokens when so many decode together, otherwise a prompt's one.
fn sequences(kind: &StepKind, together: usize) -> usize {
    if kind.tokens as usize <= together { kind.tokens as usize } else { 1 }
}

/// New tokens of each of them.
fn new_tokens(kind: &StepKind, together: usize) -> usize {
    kind.tokens as usize / sequences(kind, together)
}

/// Whether a model that is loaded for `groups` can be rearranged for `wanted`.
fn serves(groups: &[Group], wanted: &[Group]) -> bool {
    let within = |(all, some): (&Group, &Group)| {
        all.node == some.node && some.cpus.iter().all(|cpu| all.cpus.contains(cpu))
    };
    groups.len() == wanted.len() && groups.iter().zip(wanted).all(within)
}

/// `all`, with those that are wanted first.
fn reordered(all: &[CpuId], first: &[CpuId]) -> Vec<CpuId> {
    let rest = all.iter().filter(|cpu| !first.contains(cpu));
    first.iter().chain(rest).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use arclight_engine::NodeId;

    fn group(node: u32, cpus: &[u32]) -> Group {
        Group { node: Some(NodeId(node)), cpus: cpus.iter().map(|&cpu| CpuId(cpu)).collect() }
    }

    #[test]
    fn a_model_serves_what_needs_no_other_weights() {
        let loaded = [group(0, &[0, 1, 2]), group(1, &[3, 4])];
        assert!(serves(&loaded, &[group(0, &[2, 0]), group(1, &[4])]));
        assert!(!serves(&loaded, &[group(0, &[2, 0])]));
        assert!(!serves(&loaded, &[group(0, &[0, 3]), group(1, &[4])]));
        assert!(!serves(&loaded, &[group(1, &[0]), group(0, &[4])]));
        let order = reordered(&loaded[0].cpus, &[CpuId(2), CpuId(0)]);
        assert_eq!(order, [CpuId(2), CpuId(0), CpuId(1)]);
    }

    #[test]
    fn meters_that_stand_still_are_a_fault() {
        assert_eq!(consumed(Some(2.5)).unwrap(), 2.5);
        for nothing in [Some(0.0), None] {
            assert!(consumed(nothing).unwrap_err().to_string().contains("did not advance"));
        }
        assert!(meters(Objective::Time).unwrap().is_none());
    }

    #[test]
    fn steps_of_few_tokens_are_of_many_sequences() {
        let kind = |tokens| StepKind { tokens, depth: 7, weight: 1.0 };
        let of = |tokens, together| {
            (sequences(&kind(tokens), together), new_tokens(&kind(tokens), together))
        };
        assert_eq!([of(1, 1), of(4, 4), of(8, 4), of(512, 4)], [(1, 1), (4, 1), (1, 8), (1, 512)]);
    }
}
