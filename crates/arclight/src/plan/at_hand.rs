//! The machine at hand: measured for some seconds, and what to do with it in words.
//!
//! Measured are the bandwidth of every node's cores from every node's memory, that of a single core,
//! a core's multiply peaks and the waits of the pool. Of its peak a kernel reaches a share that is taken
//! from `benchmarks/notes/2026-11-22-what-made-it-fast.md`, as is the time for norms and quantisation; the answer says so.
//!
//! Limits: measured while others work on the machine, it is the machine that is left by them.

use super::engines::EngineArg;
use super::machine::{Target, UNPLACED, home, numbers};
use super::model::NamedModel;
use super::outcome::{Choice, Outcome};
use crate::bench::limits::core_peaks;
use crate::bench_sync::barrier;
use crate::error::Error;
use crate::term;
use crate::topo::measure::{self, Access, Pace};
use crate::wrap::wrap;
use kernels::{Isa, Kernels};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::Write;
use std::time::{Duration, Instant};
use topology::{CpuId, CpuList, Layout, Machine, layout};
use tune::{CoreMath, CoreRead, MachineModel, Matrix, Resource, WaitModel};

/// Share of a multiply peak that matrix kernels reach with a model's matrices.
const KERNELS: f64 = 0.7;
/// The same of AMX, whose sums have to be stored and scaled for every 32 columns.
const TILES: f64 = 0.12;
/// Elements of activations that a core passes over in a second.
const ELEMENTS: f64 = 2e9;
/// Runnable tasks that make a difference.
const BUSY: f64 = 0.5;
/// Rounds of waits.
const ROUNDS: usize = 3;

/// What is known of the machine beyond the numbers.
pub(crate) struct AtHand {
    layout: Layout,
    /// CPUs that nothing runs on, with the reason.
    idle: Vec<(CpuList, &'static str)>,
    took: Duration,
    core: CoreRead,
    peaks: [f64; 3],
    /// Seconds of a wait of all threads of a node, and of all nodes.
    waits: (f64, Option<f64>),
}

/// Share of the peak of 8-bit products that kernels reach.
fn of_int8() -> Result<f64, Error> {
    let kernels = Kernels::detect().map_err(arclight_engine::Error::from)?;
    Ok(if kernels.isa() == Isa::Amx { TILES } else { KERNELS })
}

/// Measures the machine.
pub(crate) fn measure() -> Result<(Target, AtHand), Error> {
    let start = Instant::now();
    // Before there is a load of our own.
    let load = std::fs::read_to_string("/proc/loadavg").ok();
    let machine = Machine::read()?;
    let layout = layout(&machine, None, None)?;
    let access = measure::access(&machine, Pace::BRIEF)?;
    let read = matrix(&access, &layout)?;
    let core = one_core(&machine, &layout, &read)?;
    let peaks = core_peaks(&layout.groups[0])?;
    let math = CoreMath {
        int8: of_int8()? * peaks[0],
        bf16: KERNELS * peaks[1],
        f32: KERNELS * peaks[2],
        elements: ELEMENTS,
    };
    let (waits, measured) = waits(&machine, &layout)?;
    let cores = layout.groups.iter().map(|g| g.cpus.len()).collect();
    let model = MachineModel::new(cores, read, core, math, waits).map_err(Error::refused)?;
    let mut notes = access.warnings;
    notes.extend(load.and_then(|text| busy(&text)));
    notes.extend(layout.notes.iter().cloned());
    if model.nodes() > 1 {
        notes.push(UNPLACED.to_owned());
    }
    let target = Target {
        title: machine.model().unwrap_or("this machine").to_owned(),
        unplaced: home(model.nodes())?,
        nodes: numbers(&layout),
        model,
        notes,
    };
    let idle = idle(&machine, &layout);
    Ok((target, AtHand { layout, idle, took: start.elapsed(), core, peaks, waits: measured }))
}

/// What to know when others are at work: `/proc/loadavg` begins with the mean number of runnable tasks
/// of the last minute.
fn busy(load: &str) -> Option<String> {
    let runnable: f64 = load.split_whitespace().next()?.parse().ok()?;
    (runnable >= BUSY).then(|| {
        format!(
            "other programs run on this machine (load {runnable:.1}): what is measured is what they leave"
        )
    })
}

/// The measured matrix in the order of the layout's groups.
fn matrix(access: &Access, layout: &Layout) -> Result<Matrix, Error> {
    let ids: Vec<_> = layout.groups.iter().map(|g| g.node).collect();
    // Without nodes there is one of each.
    let at = |found: Option<usize>, id: Option<topology::NodeId>| match (found, id) {
        (Some(at), _) => Ok(at),
        (None, None) => Ok(0),
        (None, Some(id)) => Err(Error::Refused(format!("memory of node {id} was not measured"))),
    };
    let row = |&from: &Option<topology::NodeId>| {
        let reader = at(access.readers.iter().position(|r| Some(r.node) == from), from)?;
        let cell = |&to: &Option<topology::NodeId>| {
            let memory = at(access.memories.iter().position(|m| Some(m.node) == to), to)?;
            access.read_bytes_per_second[reader][memory].ok_or_else(|| {
                let why = access.warnings.join("; ");
                Error::Refused(format!("this machine cannot be measured: {why}"))
            })
        };
        ids.iter().map(cell).collect()
    };
    ids.iter().map(row).collect()
}

/// What the first core alone reads from its own node, and from the nearest other one.
fn one_core(machine: &Machine, layout: &Layout, read: &Matrix) -> Result<CoreRead, Error> {
    let first: CpuList = layout.groups[0].cpus.iter().copied().take(1).collect();
    let alone = measure::access(&machine.restrict(None, Some(&first))?, Pace::BRIEF)?;
    let ids: Vec<_> = layout.groups.iter().map(|g| g.node).collect();
    let rate = |at: usize| {
        let memory = alone.memories.iter().position(|m| Some(m.node) == ids[at]).unwrap_or(0);
        alone.read_bytes_per_second.first().and_then(|row| *row.get(memory)?)
    };
    let local = rate(0).ok_or_else(|| {
        Error::Refused(format!("one core cannot be measured: {}", alone.warnings.join("; ")))
    })?;
    let others = (1..ids.len()).filter_map(rate).fold(0.0, f64::max);
    // A core of a node with one core is all its cores.
    let local = local.min(read[0][0]);
    Ok(CoreRead { local, remote: if others > 0.0 { others } else { local } })
}

/// Waits as the pool has them: two numbers of threads give the time of an arrival and of a transfer.
fn waits(machine: &Machine, all: &Layout) -> Result<(WaitModel, (f64, Option<f64>)), Error> {
    let nodes = all.groups.len();
    let widest = all.groups.iter().map(|g| g.cpus.len()).max().unwrap_or(1);
    let (local, global) = wait(all)?;
    if widest < 2 {
        // Nobody waits within a node; a nanosecond stands for nothing.
        let away = global.map_or(1e-9, |g| g / (nodes + 2) as f64).max(1e-9);
        let model =
            WaitModel { arrival: 1e-9, remote_arrival: away, line: 1e-9, remote_line: away };
        return Ok((model, (0.0, global)));
    }
    let two = if widest > 2 { wait(&layout(machine, Some(1), Some(2))?)?.0 } else { local };
    let arrival = if widest > 2 { (local - two) / (widest - 2) as f64 } else { local / 4.0 };
    let arrival = arrival.max(1e-9);
    let line = ((two - 2.0 * arrival) / 2.0).max(1e-9);
    // The crossing: an arrival for each node, and two transfers.
    let crossing = global.map_or(local, |g| g - local);
    let away = (crossing / (nodes + 2) as f64).max(line);
    let model = WaitModel { arrival, remote_arrival: away, line, remote_line: away };
    Ok((model, (local, global)))
}

/// Seconds of a local and a global wait; none of a local one where each group is one thread.
fn wait(layout: &Layout) -> Result<(f64, Option<f64>), Error> {
    let row = barrier::measure(layout, ROUNDS, &mut || ())?;
    let local = row.local.map_or(0.0, |wait| wait.median * 1e-6);
    Ok((local, row.global.map(|wait| wait.median * 1e-6)))
}

/// CPUs that no thread runs on, by reason.
fn idle(machine: &Machine, layout: &Layout) -> Vec<(CpuList, &'static str)> {
    let used: BTreeSet<CpuId> = layout.groups.iter().flat_map(|g| g.cpus.iter().copied()).collect();
    let busy: BTreeSet<_> = used.iter().filter_map(|&id| machine.cpu(id)).map(|c| c.core).collect();
    let idle = |why: &dyn Fn(&topology::Cpu) -> bool| -> CpuList {
        let cpus = machine.all_cpus().iter().filter(|c| !used.contains(&c.id));
        cpus.filter(|c| why(c)).map(|c| c.id).collect()
    };
    let reasons = [
        (idle(&|c| !c.allowed), "not allowed here, by affinity or cpuset"),
        (
            idle(&|c| c.allowed && busy.contains(&c.core)),
            "second threads of cores that work already",
        ),
        (
            idle(&|c| c.allowed && !busy.contains(&c.core)),
            "more than the quota of CPU time lets run, or without memory to use",
        ),
    ];
    reasons.into_iter().filter(|(cpus, _)| !cpus.is_empty()).collect()
}

/// CPUs in words.
fn named(cpus: &CpuList) -> String {
    format!("{} {cpus}", if cpus.len() == 1 { "cpu" } else { "cpus" })
}

impl AtHand {
    /// The first `threads[i]` CPUs of each group.
    fn cpus(&self, threads: &[usize]) -> CpuList {
        let groups = self.layout.groups.iter().zip(threads);
        groups.flat_map(|(group, &n)| group.cpus.iter().copied().take(n)).collect()
    }

    /// CPUs of the layout that a choice leaves out.
    fn spared(&self, threads: &[usize]) -> CpuList {
        let groups = self.layout.groups.iter().zip(threads);
        groups.flat_map(|(group, &n)| group.cpus.iter().copied().skip(n)).collect()
    }

    /// What would be done: the placement that is asked for, or this engine's own.
    fn choice<'a>(&self, outcome: &'a Outcome) -> Option<&'a Choice> {
        let own = |c: &&Choice| c.arg == EngineArg::TpB;
        outcome.choices.iter().find(own).or_else(|| outcome.choices.first())
    }

    /// What was measured, and the plan.
    pub(super) fn print(
        &self,
        out: &mut impl Write,
        target: &Target,
        model: &NamedModel,
        outcome: &Outcome,
    ) -> Result<(), Error> {
        let g = |rate: f64| term::rate(rate / 1e9);
        writeln!(out, "\nmeasured in {}", term::seconds(self.took))?;
        for (node, row) in target.read_matrix().iter().enumerate() {
            let cells: Vec<String> = row.iter().map(|&rate| g(rate)).collect();
            let cores = term::plural(target.model.cores()[node], "core");
            let id = target.nodes[node];
            writeln!(out, "  node {id}, {cores}: {} GB/s", cells.join(", "))?;
        }
        let CoreRead { local, remote } = self.core;
        let away = if target.model.nodes() > 1 {
            format!(", {} from another node", g(remote))
        } else {
            String::new()
        };
        writeln!(out, "  one core alone: {} GB/s{away}", g(local))?;
        let [int8, bf16, f32] = self.peaks.map(g);
        writeln!(
            out,
            "  one core multiplies int8 {int8}, bf16 {bf16}, f32 {f32} G/s; kernels are taken to reach \
             {:.0} % of the first and {:.0} % of the others",
            100.0 * of_int8()?,
            100.0 * KERNELS
        )?;
        let us = |seconds: f64| format!("{} µs", term::rate(seconds * 1e6));
        let global = self.waits.1.map_or(String::new(), |g| format!(", of all nodes {}", us(g)));
        writeln!(out, "  a wait of the threads of a node: {}{global}", us(self.waits.0))?;
        if let Some(choice) = self.choice(outcome) {
            self.words(out, target, model, outcome, choice)?;
        }
        Ok(())
    }

    fn words(
        &self,
        out: &mut impl Write,
        target: &Target,
        model: &NamedModel,
        outcome: &Outcome,
        choice: &Choice,
    ) -> Result<(), Error> {
        writeln!(out, "\nplan for {}, {}", model.name, choice.arg.title())?;
        let (decode, prompt) = (&choice.decode, &choice.prompt);
        let mut say = |what: &str, words: String| -> Result<(), Error> {
            for (i, line) in wrap(&words).iter().enumerate() {
                writeln!(out, "  {:<9} {line}", if i == 0 { what } else { "" })?;
            }
            Ok(())
        };
        for (what, best, of) in [
            ("prompts", prompt, format!("for {}", term::plural(outcome.prompt.tokens, "token"))),
            (
                "decoding",
                decode,
                format!("after {}", term::plural(outcome.decode.context, "token")),
            ),
        ] {
            let words = format!(
                "{} on {}: about {} tokens/s {of}, limited by {}",
                term::plural(best.threads.iter().sum(), "thread"),
                named(&self.cpus(&best.threads)),
                term::rate(best.prediction.tokens_per_second()),
                target.name_of(best.prediction.bottleneck)
            );
            say(what, words)?;
        }
        for (cpus, why) in &self.idle {
            say("left out", format!("{}: {why}", named(cpus)))?;
        }
        for (when, best) in [("taking prompts", prompt), ("decoding", decode)] {
            let spared = self.spared(&best.threads);
            if !spared.is_empty() {
                let limit = target.name_of(best.prediction.bottleneck);
                let why = match best.prediction.bottleneck {
                    Resource::Memory(_) | Resource::Link { .. } => {
                        format!("the others take all that {limit} gives")
                    }
                    _ => "waits would grow by more than they help".to_owned(),
                };
                say("left out", format!("{} when {when}: {why}", named(&spared)))?;
            }
        }
        let threads = |best: &tune::Best| best.threads.iter().sum::<usize>();
        let (few, many, all) = (threads(decode), threads(prompt), self.layout.threads());
        let so = if (few, many) == (all, all) {
            "run, chat and serve do so by themselves".to_owned()
        } else {
            format!(
                "run, chat and serve take {all} for both as long as nothing else is said; `arclight \
                 tune` measures whether {many} for prompts and {few} for decoding are faster, and \
                 they use what it finds"
            )
        };
        say("so", so)
    }

    /// The plan as JSON.
    pub(super) fn json(&self, target: &Target, outcome: &Outcome) -> Option<Value> {
        let choice = self.choice(outcome)?;
        let best = |best: &tune::Best| {
            json!({
                "cpus": self.cpus(&best.threads).to_string(),
                "left_out": self.spared(&best.threads).to_string(),
                "tokens_per_second": best.prediction.tokens_per_second(),
                "limit": target.name_of(best.prediction.bottleneck),
            })
        };
        let idle = |(cpus, why): &(CpuList, &str)| json!({ "cpus": cpus.to_string(), "why": why });
        Some(json!({
            "engine": choice.arg,
            "prompt": best(&choice.prompt),
            "decode": best(&choice.decode),
            "left_out": self.idle.iter().map(idle).collect::<Vec<_>>(),
            "core_read_bytes_per_second": self.core.local,
            "core_int8_macs_per_second": self.peaks[0],
            "local_wait_seconds": self.waits.0,
            "global_wait_seconds": self.waits.1,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use topology::fake::FakeMachine;

    #[test]
    fn idle_cpus_have_their_reason() {
        let machine = FakeMachine::uniform(2, 4).smt(2).machine().unwrap();
        let layout = layout(&machine, None, None).unwrap();
        let found = idle(&machine, &layout);
        let cpus = |n: usize| found[n].0.len();
        assert_eq!((found.len(), cpus(0)), (1, 8));
        assert!(found[0].1.contains("second threads"), "{found:?}");

        let narrow = machine.restrict(None, Some(&"0-1".parse().unwrap())).unwrap();
        let layout = topology::layout(&narrow, None, None).unwrap();
        let found = idle(&narrow, &layout);
        assert!(found[0].1.contains("not allowed"), "{found:?}");
        let left: usize = found.iter().map(|(cpus, _)| cpus.len()).sum();
        assert_eq!(left + layout.threads(), 16);
    }

    #[test]
    fn the_plan_says_what_is_used_and_what_not_and_why() {
        // 2 nodes x 8 cores x 2 threads; 4 cores read all that a node's memory gives.
        let machine = FakeMachine::uniform(2, 8).smt(2).machine().unwrap();
        let layout = layout(&machine, None, None).unwrap();
        let core = CoreRead { local: 11e9, remote: 11e9 };
        let math = CoreMath { int8: 100e9, bf16: 50e9, f32: 30e9, elements: ELEMENTS };
        let waits =
            WaitModel { arrival: 1e-8, remote_arrival: 1e-7, line: 5e-8, remote_line: 1e-7 };
        let read = vec![vec![40e9, 20e9], vec![20e9, 40e9]];
        let model = MachineModel::new(vec![8, 8], read, core, math, waits).unwrap();
        let hand = AtHand {
            idle: idle(&machine, &layout),
            layout: layout.clone(),
            took: Duration::from_secs(2),
            core,
            peaks: [1e11; 3],
            waits: (1e-6, Some(2e-6)),
        };
        let target = Target {
            title: "a machine".into(),
            unplaced: home(2).unwrap(),
            nodes: numbers(&layout),
            model,
            notes: vec![],
        };
        let choice: super::super::model::ModelChoice = "qwen3-4b:q4_0".parse().unwrap();
        let shape = choice.read(arclight_engine::KvType::F16.into()).unwrap();
        let question = super::super::outcome::Question {
            prompt: 512,
            answer: 128,
            context: 0,
            batch: 1,
            threads: None,
        };
        let outcome = Outcome::of(&target, &shape, &EngineArg::DEFAULT, &question).unwrap();
        let mut out = vec![];
        hand.print(&mut out, &target, &shape, &outcome).unwrap();
        let text = String::from_utf8(out).unwrap();
        for line in [
            "  node 1, 8 cores: 20.0, 40.0 GB/s",
            "  a wait of the threads of a node: 1.00 µs, of all nodes 2.00 µs",
            "plan for Qwen3 4B Q4_0, this engine, Sync B",
            "prompts   16 threads on cpus 0-15: about ",
            " tokens/s for 512 tokens, limited by multipliers of node ",
            "decoding  8 threads on cpus 0-3,8-11: about ",
            "left out  cpus 16-31: second threads of cores that work already",
            "left out  cpus 4-7,12-15 when decoding: the others take all that memory of node ",
        ] {
            assert!(text.contains(line), "no {line:?} in:\n{text}");
        }
        let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let so = "take 16 for both as long as nothing else is said; `arclight tune` measures \
                  whether 16 for prompts and 8 for decoding are faster, and they use what it finds";
        assert!(flat.ends_with(so), "{text}");
        let json = hand.json(&target, &outcome).unwrap();
        assert_eq!(json["decode"]["left_out"], "4-7,12-15");
        // Another engine was asked for, and is planned with.
        let outcome = Outcome::of(&target, &shape, &[EngineArg::Pp], &question).unwrap();
        let mut out = vec![];
        hand.print(&mut out, &target, &shape, &outcome).unwrap();
        assert!(String::from_utf8(out).unwrap().contains("Q4_0, this engine, pipeline"));
    }

    #[test]
    fn a_busy_machine_is_said_to_be_one() {
        assert_eq!(busy("0.20 1.50 4.00 1/200 999"), None);
        assert!(busy("4.23 1.50 4.00 3/200 999").unwrap().contains("load 4.2"));
        assert_eq!(busy(""), None);
    }

    #[test]
    fn the_matrix_is_in_the_order_of_the_groups() {
        let machine = FakeMachine::uniform(2, 2).machine().unwrap();
        let layout = layout(&machine, None, None).unwrap();
        let node = |n: usize| layout.groups[n].node.unwrap();
        let reader = |n| measure::Reader { node: node(n), cpus: vec![CpuId(n as u32)] };
        let memory = |n| measure::Memory {
            node: node(n),
            buffer_bytes: 1,
            huge_bytes: 0,
            pages_elsewhere: None,
        };
        let mut access = Access {
            readers: vec![reader(1), reader(0)],
            memories: vec![memory(0), memory(1)],
            read_bytes_per_second: vec![vec![Some(1.0), Some(2.0)], vec![Some(3.0), Some(4.0)]],
            latency_nanoseconds: vec![],
            bytes_read: 0,
            seconds: 0.0,
            warnings: vec!["node 1 is small".into()],
        };
        assert_eq!(matrix(&access, &layout).unwrap(), [[3.0, 4.0], [1.0, 2.0]]);
        access.read_bytes_per_second[0][1] = None;
        let fault = matrix(&access, &layout).unwrap_err().to_string();
        assert!(fault.contains("node 1 is small"), "{fault}");
    }
}
