//! The tests: what they do, and how they take turns.

use super::limits::{Floor, Limits, Probe};
use super::setup::Setup;
use crate::error::Error;
use crate::profile::Recorder;
use crate::report::phases::{self, PhaseFigure};
use crate::report::{self, Cause, Look, Meter, NodeRead, NodesReport, Phase};
use arclight_engine::{BatchEntry, Engine, Outputs, SeqId};
use graph::{Extent, Keep, Needs};
use loadgen::Rng;
use std::fmt;
use std::path::Path;
use std::time::Instant;
use topology::{Energy, Machine};
use why::NoShare;

/// Passes of the probes after all tests, at most, while one of them beats its limit.
const MORE_PASSES: usize = 10;
/// Decoding needs no longer warm-up than to have every page and cache touched.
const WARM_UP_TOKENS: usize = 8;

/// What a test does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Takes a prompt, in steps as large as they may be; the logits of its last token.
    Prompt,
    /// Decodes token by token, all sequences together.
    Decode,
    /// Takes a prompt of every sequence, and then decodes: what llama-batched-bench calls S.
    Combined,
}

/// One test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Test {
    pub(crate) kind: Kind,
    /// Tokens of the prompt, of each sequence.
    pub(crate) prompt: usize,
    /// Tokens that are decoded, of each sequence.
    pub(crate) decoded: usize,
    /// Tokens in the cache before.
    pub(crate) depth: usize,
    /// Sequences.
    pub(crate) batch: usize,
}

impl Test {
    pub(crate) fn prompt(tokens: usize, depth: usize) -> Test {
        Test { kind: Kind::Prompt, prompt: tokens, decoded: 0, depth, batch: 1 }
    }

    pub(crate) fn decode(tokens: usize, depth: usize, batch: usize) -> Test {
        Test { kind: Kind::Decode, prompt: 0, decoded: tokens, depth, batch }
    }

    pub(crate) fn combined(prompt: usize, decoded: usize, depth: usize, batch: usize) -> Test {
        Test { kind: Kind::Combined, prompt, decoded, depth, batch }
    }

    /// Tokens of each sequence.
    pub(crate) fn tokens(&self) -> usize {
        self.prompt + self.decoded
    }

    /// Tokens that each sequence has at the end.
    pub(crate) fn context(&self) -> usize {
        self.depth + self.tokens()
    }

    /// Tokens computed, over all sequences.
    pub(crate) fn total(&self) -> usize {
        self.tokens() * self.batch
    }

    /// The steps: tokens of each sequence in turn, and whether logits are wanted. A step has `most` tokens at most.
    fn steps(&self, most: usize) -> impl Iterator<Item = (usize, bool)> + use<> {
        let Test { prompt, decoded, batch, .. } = *self;
        let size = (most / batch).max(1);
        let prompts = (0..prompt).step_by(size).map(move |at| {
            let step = size.min(prompt - at);
            (step, at + step == prompt)
        });
        prompts.chain((0..decoded).map(|_| (1, true)))
    }
}

impl fmt::Display for Test {
    /// `pp512`, `tg128 b4 @ d4096`, `pp512+tg128 b4`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Kind::Prompt => write!(f, "pp{}", self.prompt)?,
            Kind::Decode => write!(f, "tg{}", self.decoded)?,
            Kind::Combined => write!(f, "pp{}+tg{}", self.prompt, self.decoded)?,
        }
        if self.batch > 1 {
            write!(f, " b{}", self.batch)?;
        }
        if self.depth > 0 {
            write!(f, " @ d{}", self.depth)?;
        }
        Ok(())
    }
}

/// What came of a test.
pub(crate) struct Measured {
    /// Of every repetition.
    pub(crate) seconds: Vec<f64>,
    /// What the processors consumed in all repetitions, where they have meters.
    pub(crate) joules: Option<f64>,
    /// Of all repetitions.
    phase: Phase,
}

impl Measured {
    /// What the machine's counters tell of it.
    pub(crate) fn figures(&self, test: &Test, threads: usize) -> Vec<PhaseFigure> {
        phases::figures(&test.to_string(), threads, &self.phase)
    }
}

/// A loaded model under test.
pub(crate) struct Bench {
    engine: Engine,
    sequences: Vec<SeqId>,
    /// Random; as many as the longest step has.
    tokens: Vec<u32>,
    /// What a step needs at least.
    needs: Needs,
    /// What the model's layers keep.
    classes: Vec<Keep>,
    probe: Probe,
    /// The machine's counters: those of the memory, and where they are wanted those of the threads too.
    meter: Meter,
    /// What took speed from the tests that were measured last.
    causes: Vec<Cause>,
    machine: Machine,
}

impl Bench {
    pub(crate) fn new(
        mut engine: Engine,
        machine: &Machine,
        tests: &[Test],
        counters: bool,
    ) -> Result<Bench, Error> {
        let most = tests.iter().map(|t| t.batch).max().unwrap_or(1);
        let sequences = (0..most).map(|_| engine.new_sequence()).collect::<Result<_, _>>()?;
        let mut rng = Rng::new(1, "bench");
        let vocab = engine.hparams().vocab;
        let longest = engine.limits().tokens.max(most);
        let tokens = (0..longest).map(|_| rng.below(vocab) as u32).collect();
        let needs = engine.needs();
        let classes = engine.graph().classes().to_vec();
        let probe = Probe::new(&mut engine, machine)?;
        let meter = match counters {
            true => Meter::of_threads(machine, engine.pool()),
            false => Meter::of_memory(machine),
        };
        let (causes, machine) = (Vec::new(), machine.clone());
        Ok(Bench { engine, sequences, tokens, needs, classes, probe, meter, causes, machine })
    }

    /// The engine.
    pub(crate) fn engine(&mut self) -> &mut Engine {
        &mut self.engine
    }

    /// What was chosen for the model.
    pub(crate) fn setup(&mut self) -> Setup {
        let plan = self.engine.plan();
        Setup {
            replica: None,
            nodes: plan.groups.len(),
            threads: plan.threads(),
            isa: self.engine.kernels().isa().name(),
            kernels: plan.schedules.foreign().iter().map(|kernel| kernel.name()).collect(),
        }
    }

    /// Runs tests of one depth in turns and tells `done` after each one, the warm-up included.
    /// `recorder`, if there is one, gets what the threads did in the repetitions.
    pub(crate) fn measure(
        &mut self,
        tests: &[Test],
        repetitions: usize,
        mut recorder: Option<&mut Recorder>,
        done: &mut dyn FnMut(&Test),
    ) -> Result<Vec<Measured>, Error> {
        let mut measured = Vec::with_capacity(tests.len());
        for test in tests {
            self.fill(test)?;
            let decoded = test.decoded.min(WARM_UP_TOKENS);
            let warm_up = self.time(&Test { decoded, ..*test })?;
            let (seconds, joules) = (Vec::with_capacity(repetitions), Some(0.0));
            measured.push(Measured { seconds, joules, phase: warm_up });
            done(test);
        }
        let look = Look::new(&self.engine);
        for repetition in 0..repetitions {
            self.probe.pass(&mut self.engine)?;
            for (test, Measured { seconds, joules, phase }) in tests.iter().zip(&mut measured) {
                self.fill(test)?;
                let energy = Energy::read(Path::new("/"));
                let _before = self.engine.take_profile();
                let new = self.time(test)?;
                if let Some((recorder, profile)) = recorder.as_mut().zip(self.engine.take_profile())
                {
                    recorder.add(&test.to_string(), &profile)?;
                }
                let consumed = report::joules(energy.as_ref());
                *joules = joules.zip(consumed).map(|(before, now)| before + now);
                seconds.push(new.time.as_secs_f64());
                match repetition {
                    0 => *phase = new, // in place of the warm-up
                    _ => phase.add(new),
                }
                done(test);
            }
        }
        self.probe.pass(&mut self.engine)?;
        self.causes = look.causes(&self.engine, &self.machine);
        Ok(measured)
    }

    /// Measures limits that one of the tests beats again: others had the machine at the time.
    pub(crate) fn probe_again(
        &mut self,
        tests: &[Test],
        measured: &[Measured],
    ) -> Result<(), Error> {
        for _ in 0..MORE_PASSES {
            let beaten = |(test, measured): (&Test, &Measured)| {
                let best = measured.seconds.iter().copied().fold(f64::INFINITY, f64::min);
                let share = self.floor(test).share(best, &self.limits());
                matches!(share, Err(NoShare::Memory | NoShare::Cores))
            };
            if !tests.iter().zip(measured).any(beaten) {
                break;
            }
            self.probe.pass(&mut self.engine)?;
        }
        Ok(())
    }

    /// What took speed from the tests that were measured last.
    pub(crate) fn causes(&self) -> &[Cause] {
        &self.causes
    }

    /// What tests did to the nodes. Asks where pages are at this moment.
    pub(crate) fn reports(&mut self, tests: &[Test], measured: &[Measured]) -> Vec<NodesReport> {
        let floors: Vec<Floor> = tests.iter().map(|test| self.floor(test)).collect();
        let asked = report::ask(&mut self.engine);
        let Bench { engine, probe, causes, machine, .. } = self;
        let reads = probe.reads();
        let of = |(m, floor): (&Measured, &Floor)| {
            let mean = m.seconds.iter().sum::<f64>() / m.seconds.len() as f64;
            let of_peak = why::share(floor.compute, mean, NoShare::Cores).ok();
            report::of(engine, &asked, &m.phase, causes, reads, machine, of_peak)
        };
        measured.iter().zip(&floors).map(of).collect()
    }

    /// What each node read in a test.
    pub(crate) fn reads(&mut self, measured: &Measured) -> Vec<NodeRead> {
        report::node_reads(self.engine.plan(), &measured.phase)
    }

    /// The best that the machine has done so far.
    pub(crate) fn limits(&self) -> Limits {
        self.probe.limits()
    }

    /// The least time for a test.
    pub(crate) fn floor(&self, test: &Test) -> Floor {
        let (mut floor, mut past) = (Floor::default(), test.depth);
        for (tokens, logits) in test.steps(self.engine.limits().tokens) {
            let outputs = if logits { test.batch } else { 0 };
            let adapted = !self.engine.adapters().is_empty();
            let step = Extent::batch(&self.classes, test.batch, (tokens, past), outputs);
            let step = Extent { adapted, ..step };
            floor.add(self.needs.of(&step), self.limits());
            past += tokens;
        }
        floor
    }

    /// Makes the sequences of a test as deep as it wants them.
    fn fill(&mut self, test: &Test) -> Result<(), Error> {
        let sequences = self.sequences[..test.batch].iter();
        sequences
            .copied()
            .try_for_each(|sequence| deepen(&mut self.engine, sequence, test.depth, &self.tokens))
    }

    fn time(&mut self, test: &Test) -> Result<Phase, Error> {
        let sequences = &self.sequences[..test.batch];
        self.engine.reset_activity();
        self.meter.start();
        let start = Instant::now();
        for (step, (tokens, logits)) in test.steps(self.engine.limits().tokens).enumerate() {
            let outputs = if logits { Outputs::Last } else { Outputs::None };
            let entry = |(i, &sequence): (usize, &SeqId)| {
                // Other tokens for every sequence and step, out of the same random ones.
                let at = (step + i) % (self.tokens.len() - tokens + 1);
                BatchEntry { sequence, tokens: &self.tokens[at..at + tokens], outputs }
            };
            let batch: Vec<BatchEntry<'_>> = sequences.iter().enumerate().map(entry).collect();
            self.engine.step(&batch)?;
        }
        let time = start.elapsed();
        let decoding = test.kind != Kind::Prompt;
        let counted = self.meter.read();
        Ok(Phase { decoding, time, activity: self.engine.take_activity(), counted })
    }
}

/// Makes a sequence as deep as it is wanted, with tokens of a step.
pub(crate) fn deepen(
    engine: &mut Engine,
    sequence: SeqId,
    depth: usize,
    tokens: &[u32],
) -> Result<(), Error> {
    let most = engine.limits().tokens;
    let mut len = engine.truncate(sequence, depth)?;
    while len < depth {
        let tokens = &tokens[..most.min(depth - len)];
        engine.step(&[BatchEntry { sequence, tokens, outputs: Outputs::None }])?;
        len += tokens.len();
    }
    // States of fixed size are found here again.
    Ok(engine.checkpoint(sequence)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_go_in_large_steps_and_decoding_in_small_ones() {
        let steps = |t: Test| t.steps(512).collect::<Vec<_>>();
        assert_eq!(steps(Test::prompt(600, 0)), [(512, false), (88, true)]);
        assert_eq!(steps(Test::prompt(512, 7)), [(512, true)]);
        assert_eq!(steps(Test::decode(2, 0, 3)), [(1, true), (1, true)]);
        // The prompts of all sequences go together.
        let both = [(128, false), (72, true), (1, true), (1, true)];
        assert_eq!(steps(Test::combined(200, 2, 0, 4)), both);
    }

    #[test]
    fn names_are_those_of_llama_bench() {
        assert_eq!(Test::prompt(512, 0).to_string(), "pp512");
        assert_eq!(Test::decode(128, 4096, 4).to_string(), "tg128 b4 @ d4096");
        assert_eq!(Test::combined(512, 128, 0, 4).to_string(), "pp512+tg128 b4");
    }
}
